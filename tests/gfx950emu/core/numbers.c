// Conversions to and from the narrow float formats. All go through double, in which each format's values, their
// products with a power-of-two scale and the place of the rounding are exact, so that there is one rounding.
#include "numbers.h"

// |x| to nearest even, with `mant` fraction bits and the smallest normal exponent `emin`
static double round_even(double x, int mant, int emin)
{
    if (x == 0 || !isfinite(x))
        return x;
    int e;
    frexp(x, &e);
    e -= 1;
    if (e < emin)
        e = emin;
    double q = ldexp(1.0, e - mant);
    double r = nearbyint(x / q);        // x / q is exact: q is a power of two
    return r * q;
}

// ── f16 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
u32 f2h_d(double x, int sat)
{
    u32 s = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return s | 0x7e00;
    double a = round_even(fabs(x), 10, -14);
    if (a >= 65536.0)
        return s | (sat && !isinf(x) ? 0x7bff : 0x7c00);
    if (a < 0x1p-14)
        return s | (u32)(a * 0x1p24);
    int e;
    double m = frexp(a, &e);
    return s | (u32)(e + 14) << 10 | ((u32)(m * 2048.0) & 0x3ff);
}

u32 f2h_rtz(float x)
{
    u32 b = asu(x), s = b >> 16 & 0x8000, a = b & 0x7fffffff;
    if (a > 0x7f800000)
        return s | 0x7e00;
    if (a == 0x7f800000)
        return s | 0x7c00;
    if (a >= 0x47800000)
        return s | 0x7bff;
    double q = fabs((double)x);
    if (q < 0x1p-14)
        return s | (u32)(q * 0x1p24);
    return s | ((a >> 13) - (112 << 10));
}

// ── small formats ───────────────────────────────────────────────────────────────────────────────────────────────────
const Format formats[NFORMATS] = {
    [FP8] = {4, 3, 7, NAN_ONLY, 8},
    [BF8] = {5, 2, 15, IEEE, 8},
    [FP6] = {2, 3, 1, NO_SPECIALS, 6},
    [BF6] = {3, 2, 3, NO_SPECIALS, 6},
    [FP4] = {2, 1, 1, NO_SPECIALS, 4},
};

static double small_to_double(u32 b, Format f)
{
    u32 s = b >> (f.e + f.m) & 1, e = b >> f.m & ((1 << f.e) - 1), m = b & ((1 << f.m) - 1);
    u32 last_e = (1u << f.e) - 1, last_m = (1u << f.m) - 1;
    double v;
    if (f.kind == IEEE && e == last_e)
        v = m ? NAN : INFINITY;
    else if (f.kind == NAN_ONLY && e == last_e && m == last_m)
        v = NAN;
    else
        v = e ? ldexp(1.0 + ldexp(m, -f.m), (int)e - f.bias) : ldexp(m, 1 - f.bias - f.m);
    return s ? -v : v;
}

// The largest number of a format, as bits and as a value
static u32 largest_bits(Format f)
{
    u32 all = (1u << (f.e + f.m)) - 1;
    if (f.kind == IEEE)
        return (((1u << f.e) - 2) << f.m) | ((1u << f.m) - 1);
    return f.kind == NAN_ONLY ? all - 1 : all;
}
static double largest_value(Format f)
{
    int last_e = (1 << f.e) - (f.kind == IEEE ? 2 : 1);
    double below_2 = ldexp(f.kind == NAN_ONLY ? 2.0 : 1.0, -f.m);
    return ldexp(2.0 - below_2, last_e - f.bias);
}

u32 double_to_small(double x, Format f, int sat)
{
    u32 s = (signbit(x) ? 1u : 0u) << (f.e + f.m), largest = largest_bits(f);
    u32 infinity = ((1u << f.e) - 1) << f.m;    // of an IEEE kind
    if (isnan(x)) {
        if (f.kind == NO_SPECIALS)
            return largest;
        return f.kind == NAN_ONLY ? s | (largest + 1) : s | infinity | 1u << (f.m - 1);
    }
    double a = round_even(fabs(x), f.m, 1 - f.bias);
    if (a > largest_value(f)) {
        if (f.kind == NO_SPECIALS || sat)
            return s | largest;
        return f.kind == IEEE ? s | infinity : s | (largest + 1);
    }
    if (a < ldexp(1.0, 1 - f.bias))
        return s | (u32)ldexp(a, f.bias - 1 + f.m);
    int e;
    double m = frexp(a, &e);
    return s | (u32)(e - 1 + f.bias) << f.m | ((u32)ldexp(m, f.m + 1) & ((1u << f.m) - 1));
}

double stochastic(double x, u32 random, Format f)
{
    if (x == 0 || !isfinite(x))
        return x;
    int e;
    frexp(x, &e);
    e -= 1;
    if (e < 1 - f.bias)
        e = 1 - f.bias;
    double q = ldexp(1.0, e - f.m);
    return trunc(x / q + copysign(random * 0x1p-32, x)) * q;
}

double small_values[NFORMATS][256], e8m0_values[256];

__attribute__((constructor)) static void fill_tables(void)
{
    for (int t = 0; t < NFORMATS; t++)
        for (int i = 0; i < 1 << formats[t].bits; i++)
            small_values[t][i] = small_to_double(i, formats[t]);
    for (int i = 0; i < 256; i++)
        e8m0_values[i] = i == 255 ? NAN : ldexp(1.0, i - 127);
}
