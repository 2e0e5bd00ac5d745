// The steps of a division.
#include "lane_math.h"

// ── division: special cases of the quotient ─────────────────────────────────────────────────────────────────────────
float div_fixup32(float q, float d, float n)
{
    int s = signbit(d) != signbit(n);
    if (isnan(n))
        return asf(asu(n) | 0x400000);
    if (isnan(d))
        return asf(asu(d) | 0x400000);
    if ((n == 0 && d == 0) || (isinf(n) && isinf(d)))
        return asf(0xffc00000);
    if (d == 0 || isinf(n))
        return s ? -INFINITY : INFINITY;
    if (isinf(d) || n == 0)
        return s ? -0.0f : 0.0f;
    if (exponent32(n) - exponent32(d) < -150)   // below half of the smallest denormal
        return s ? -0.0f : 0.0f;
    if (isnan(q))
        return s ? -INFINITY : INFINITY;
    return s ? -fabsf(q) : fabsf(q);
}

double div_fixup64(double q, double d, double n)
{
    int s = signbit(d) != signbit(n);
    if (isnan(n))
        return asd(asq(n) | 1ull << 51);
    if (isnan(d))
        return asd(asq(d) | 1ull << 51);
    if ((n == 0 && d == 0) || (isinf(n) && isinf(d)))
        return asd(0xfff8000000000000ull);
    if (d == 0 || isinf(n))
        return s ? -INFINITY : INFINITY;
    if (isinf(d) || n == 0)
        return s ? -0.0 : 0.0;
    if (exponent64(n) - exponent64(d) < -1075)
        return s ? -0.0 : 0.0;
    if (isnan(q))
        return s ? -INFINITY : INFINITY;
    return s ? -fabs(q) : fabs(q);
}

// ── division: scaling ───────────────────────────────────────────────────────────────────────────────────────────────
// s0 is the numerator or the denominator again, and comes back times a power of two where the steps between would
// overflow or lose bits. *scaled (VCC): the quotient then comes out scaled too, and div_fmas undoes it.
float div_scale32(float s0, float d, float n, int *scaled)
{
    *scaled = 0;
    if (n == 0 || d == 0)
        return NAN;
    int en = exponent32(n), ed = exponent32(d);
    int is_d = asu(s0) == asu(d), is_n = asu(s0) == asu(n);
    int denormal_reciprocal = ed >= 253 && ed != 255;
    int denormal_quotient = en != 255 && ed != 255 && fabs((double)n / (double)d) < 0x1p-126;
    if (en - ed >= 96) {
        *scaled = 1;
        return is_d ? ldexpf(s0, 64) : s0;
    }
    if (ed == 0)
        return ldexpf(s0, 64);
    if (denormal_reciprocal && denormal_quotient) {
        *scaled = 1;
        return is_d ? ldexpf(s0, -64) : s0;
    }
    if (denormal_reciprocal)
        return ldexpf(s0, -64);
    if (denormal_quotient) {
        *scaled = 1;
        return is_n ? ldexpf(s0, 64) : s0;
    }
    return en <= 23 ? ldexpf(s0, 64) : s0;
}

double div_scale64(double s0, double d, double n, int *scaled)
{
    *scaled = 0;
    if (n == 0 || d == 0)
        return NAN;
    int en = exponent64(n), ed = exponent64(d);
    int is_d = asq(s0) == asq(d), is_n = asq(s0) == asq(n);
    int denormal_reciprocal = ed >= 2045 && ed != 2047;
    int denormal_quotient = en != 2047 && ed != 2047 && en - ed < -1022;
    if (en - ed >= 768) {
        *scaled = 1;
        return is_d ? ldexp(s0, 128) : s0;
    }
    if (ed == 0)
        return ldexp(s0, 128);
    if (denormal_reciprocal && denormal_quotient) {
        *scaled = 1;
        return is_d ? ldexp(s0, -128) : s0;
    }
    if (denormal_reciprocal)
        return ldexp(s0, -128);
    if (denormal_quotient) {
        *scaled = 1;
        return is_n ? ldexp(s0, 128) : s0;
    }
    return en <= 53 ? ldexp(s0, 128) : s0;
}

// a * b + c as a double whose last bit is set where it is not exact: safe to scale and to round once more, to float
static double fma_to_odd(float a, float b, float c)
{
    double product = (double)a * b, sum = product + c, back = sum - product;
    double error = (product - (sum - back)) + (c - back);   // the product is exact, sum + error is a * b + c
    u64 x = asq(sum);
    if (!isfinite(sum) || error == 0 || x & 1)
        return sum;
    return asd((error > 0) == (sum > 0) ? x + 1 : x - 1);
}

float div_fmas32(float a, float b, float c, int scaled)
{
    double r = fma_to_odd(a, b, c);
    return (float)(scaled ? ldexp(r, exponent32(c) > 127 ? 64 : -64) : r);
}

double div_fmas64(double a, double b, double c, int scaled)
{
    double r = fma(a, b, c);
    return scaled ? ldexp(r, exponent64(c) > 1023 ? 128 : -128) : r;
}
