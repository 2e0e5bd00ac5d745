// Numbers: bits and values of f16, bf16 and the small formats, rounding, and the minima and maxima of the device.
//
// What runs once a lane is inline; the rest is in numbers.c. f2h and plain float arithmetic follow the rounding mode
// and the denormal bits of MODE, which run.c puts into the CPU's own control register.
#pragma once
#include "core.h"
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static inline float asf(u32 x)
{
    float f;
    memcpy(&f, &x, 4);
    return f;
}
static inline u32 asu(float f)
{
    u32 x;
    memcpy(&x, &f, 4);
    return x;
}
static inline double asd(u64 x)
{
    double f;
    memcpy(&f, &x, 8);
    return f;
}
static inline u64 asq(double f)
{
    u64 x;
    memcpy(&x, &f, 8);
    return x;
}

// ── f16 and bf16 ────────────────────────────────────────────────────────────────────────────────────────────────────
u32 f2h_d(double x, int sat);           // nearest even; sat: too large becomes the largest number, not infinity
u32 f2h_rtz(float x);                   // towards zero

static inline float h2f(u32 h)
{
    u32 s = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31)
        return asf(s | 0x7f800000 | m << 13);
    if (e)
        return asf(s | (e + 112) << 23 | m << 13);
    float v = (float)m * 0x1p-24f;
    return s ? -v : v;
}
static inline u32 f2h(float x, int sat)
{
#if defined(__F16C__)
    u32 h = _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
    if (sat && (h & 0x7fff) == 0x7c00 && !isinf(x))
        h = (h & 0x8000) | 0x7bff;
    return h;
#else
    return f2h_d(x, sat);
#endif
}
static inline float bf2f(u32 b)
{
    return asf(b << 16);
}
static inline u32 f2bf(float f)
{
    u32 b = asu(f);
    if ((b & 0x7fffffff) > 0x7f800000)
        return (b >> 16 | 0x40) & 0xffff;
    return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

// ── small formats: OCP MX and FP8 ───────────────────────────────────────────────────────────────────────────────────
enum { NO_SPECIALS, NAN_ONLY, IEEE };   // the largest exponent means: numbers, numbers and a NaN, infinity and NaNs
typedef struct {
    int e, m, bias, kind, bits;         // bits of exponent and mantissa, and of all
} Format;
enum { FP8, BF8, FP6, BF6, FP4, NFORMATS };
extern const Format formats[NFORMATS];
extern double small_values[NFORMATS][256];  // value of each number of a format
extern double e8m0_values[256];             // of each scale: 2^(n - 127), 255 is NaN

u32 double_to_small(double x, Format f, int sat);  // nearest even
double stochastic(double x, u32 random, Format f); // x cut to the format after adding a random part of its last place

// ── order ───────────────────────────────────────────────────────────────────────────────────────────────────────────
// minNum and maxNum: a number wins over a NaN, and -0 is below +0
static inline float fminx(float a, float b)
{
    if (isnan(a))
        return b;
    if (isnan(b))
        return a;
    if (a == 0 && b == 0)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}
static inline float fmaxx(float a, float b)
{
    if (isnan(a))
        return b;
    if (isnan(b))
        return a;
    if (a == 0 && b == 0)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}
static inline double dminx(double a, double b)
{
    if (isnan(a))
        return b;
    if (isnan(b))
        return a;
    if (a == 0 && b == 0)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}
static inline double dmaxx(double a, double b)
{
    if (isnan(a))
        return b;
    if (isnan(b))
        return a;
    if (a == 0 && b == 0)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}
// "minimum" and "maximum": a NaN wins
static inline float fmin1(float a, float b)
{
    return isnan(a) ? a : isnan(b) ? b : fminx(a, b);
}
static inline float fmax1(float a, float b)
{
    return isnan(a) ? a : isnan(b) ? b : fmaxx(a, b);
}
static inline float med3f(float a, float b, float c)
{
    if (isnan(a) || isnan(b) || isnan(c))
        return fminx(fminx(a, b), c);
    return fmaxx(fminx(a, b), fminx(fmaxx(a, b), c));
}
static inline u32 minu(u32 a, u32 b)
{
    return a < b ? a : b;
}
static inline u32 maxu(u32 a, u32 b)
{
    return a > b ? a : b;
}
static inline i32 mini(i32 a, i32 b)
{
    return a < b ? a : b;
}
static inline i32 maxi(i32 a, i32 b)
{
    return a > b ? a : b;
}
static inline i32 med3i(i32 a, i32 b, i32 c)
{
    return maxi(mini(a, b), mini(maxi(a, b), c));
}
static inline u32 med3u(u32 a, u32 b, u32 c)
{
    return maxu(minu(a, b), minu(maxu(a, b), c));
}

// ── into a range ────────────────────────────────────────────────────────────────────────────────────────────────────
static inline float clamp01(float x)    // what `clamp` does to a float result; a NaN becomes 0 (DX10_CLAMP)
{
    return isnan(x) ? 0 : x < 0 ? 0 : x > 1 ? 1 : x;
}
static inline u32 sat16i(i32 x)
{
    return (u32)(x < -32768 ? -32768 : x > 32767 ? 32767 : x) & 0xffff;
}
static inline u32 sat32i(i64 x)
{
    return (u32)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}
static inline i32 f2i(double x)         // towards zero
{
    return isnan(x) ? 0 : x <= -2147483648.0 ? INT32_MIN : x >= 2147483647.0 ? INT32_MAX : (i32)x;
}
static inline u32 f2u(double x)
{
    return isnan(x) || x <= 0 ? 0 : x >= 4294967295.0 ? UINT32_MAX : (u32)x;
}

// ── parts of a float ────────────────────────────────────────────────────────────────────────────────────────────────
static inline int exponent32(float f)
{
    return asu(f) >> 23 & 255;
}
static inline int exponent64(double f)
{
    return (int)(asq(f) >> 52 & 2047);
}
static inline int snan32(u32 x)
{
    return (x & 0x7fffffff) > 0x7f800000 && !(x & 0x400000);
}
static inline int snan16(u32 x)
{
    return (x & 0x7fff) > 0x7c00 && !(x & 0x200);
}
