// What the instruction tables call for one lane, where an instruction is more than an operator.
#pragma once
#include "numbers.h"

// ── bits ────────────────────────────────────────────────────────────────────────────────────────────────────────────
static inline u32 reverse32(u32 x)
{
    u32 r = 0;
    for (int i = 0; i < 32; i++)
        r |= (x >> i & 1) << (31 - i);
    return r;
}
static inline u32 first_from_top(u32 x)         // the place of the first 1, counted from bit 31; none: -1
{
    return x ? (u32)__builtin_clz(x) : ~0u;
}
static inline u32 first_from_bottom(u32 x)
{
    return x ? (u32)__builtin_ctz(x) : ~0u;
}
static inline u32 magnitude_bits(u32 x)         // all leading copies of the sign bit cleared
{
    return (i32)x < 0 ? ~x : x;
}
static inline u32 extract_u32(u32 x, u32 offset, u32 n)
{
    return x >> offset & ((1u << n) - 1);
}
static inline u32 extract_i32(u32 x, u32 offset, u32 n)
{
    if (n == 0)
        return 0;
    if (n + offset >= 32)
        return (u32)((i32)x >> offset);
    return (u32)((i32)(x << (32 - n - offset)) >> (32 - n));
}
// Any function of three bits, given as its truth table
static inline u32 bitop3(u32 a, u32 b, u32 c, u32 table)
{
    u32 r = 0;
    for (int i = 0; i < 8; i++)
        if (table >> i & 1)
            r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return r;
}
// v_perm_b32: each selector takes a byte of a:b, a sign, 0 or 255
static inline u32 permute_bytes(u32 a, u32 b, u32 selectors)
{
    u64 v = (u64)a << 32 | b;
    u32 r = 0;
    for (int i = 0; i < 4; i++) {
        u32 s = selectors >> 8 * i & 255, x;
        if (s >= 13)
            x = 255;
        else if (s == 12)
            x = 0;
        else if (s >= 8)
            x = v >> (16 * (s - 8) + 15) & 1 ? 255 : 0;
        else
            x = v >> 8 * s & 255;
        r |= x << 8 * i;
    }
    return r;
}

// ── integers ────────────────────────────────────────────────────────────────────────────────────────────────────────
static inline i32 sext24(u32 x)
{
    return (i32)(x << 8) >> 8;
}
static inline u32 low24(u32 x)
{
    return x & 0xffffff;
}
static inline u32 absdiff(u32 a, u32 b)
{
    return a > b ? a - b : b - a;
}
static inline u32 sum_absdiff(u32 a, u32 b, u32 sum, int bits)
{
    u32 mask = (1u << bits) - 1;
    for (int i = 0; i < 32; i += bits)
        sum += absdiff(a >> i & mask, b >> i & mask);
    return sum;
}
static inline u32 average_bytes(u32 a, u32 b, u32 round)
{
    u32 r = 0;
    for (int i = 0; i < 32; i += 8)
        r |= (((a >> i & 255) + (b >> i & 255) + (round >> i & 1)) >> 1) << i;
    return r;
}
static inline u32 clamp_byte(i32 x, int lo, int hi)
{
    return (u32)mini(maxi(x, lo), hi) & 255;
}
static inline i32 dot4_i8(u32 a, u32 b, u32 sum)
{
    for (int i = 0; i < 32; i += 8)
        sum += (u32)((i8)(a >> i) * (i8)(b >> i));
    return (i32)sum;
}
static inline i32 dot8_i4(u32 a, u32 b, u32 sum)
{
    for (int i = 0; i < 32; i += 4)
        sum += (u32)(((i32)(a << (28 - i)) >> 28) * ((i32)(b << (28 - i)) >> 28));
    return (i32)sum;
}

// ── floats ──────────────────────────────────────────────────────────────────────────────────────────────────────────
// In IEEE mode, the result of a signalling NaN is that NaN made quiet
static inline u32 min_f32(u32 a, u32 b, int ieee)
{
    if (ieee && (snan32(a) || snan32(b)))
        return (snan32(a) ? a : b) | 0x400000;
    return asu(fminx(asf(a), asf(b)));
}
static inline u32 max_f32(u32 a, u32 b, int ieee)
{
    if (ieee && (snan32(a) || snan32(b)))
        return (snan32(a) ? a : b) | 0x400000;
    return asu(fmaxx(asf(a), asf(b)));
}
static inline u32 min_f16(u32 a, u32 b, int ieee, int sat)
{
    if (ieee && (snan16(a) || snan16(b)))
        return (snan16(a) ? a : b) | 0x200;
    return f2h(fminx(h2f(a), h2f(b)), sat);
}
static inline u32 max_f16(u32 a, u32 b, int ieee, int sat)
{
    if (ieee && (snan16(a) || snan16(b)))
        return (snan16(a) ? a : b) | 0x200;
    return f2h(fmaxx(h2f(a), h2f(b)), sat);
}
static inline double fract(double x, double below_1)
{
    double r = x - floor(x);
    return isnan(r) ? r : dminx(r, below_1);
}
static inline float dot2_f16(u32 a, u32 b, float sum)
{
    return fmaf(h2f(a >> 16), h2f(b >> 16), fmaf(h2f(a & 0xffff), h2f(b & 0xffff), sum));
}
static inline float dot2_bf16(u32 a, u32 b, float sum)
{
    return fmaf(bf2f(a >> 16), bf2f(b >> 16), fmaf(bf2f(a & 0xffff), bf2f(b & 0xffff), sum));
}
// The exponent of 0.5 <= |mantissa| < 1; of zero, infinity and NaN 0
static inline int frexp_exponent(double x)
{
    int e = 0;
    if (isfinite(x) && x != 0)
        frexp(x, &e);
    return e;
}
static inline float frexp_mantissa32(float x)  // apart from the next, which would make a signalling NaN quiet
{
    int e;
    return isfinite(x) ? frexpf(x, &e) : x;
}
static inline double frexp_mantissa(double x)
{
    int e;
    return isfinite(x) ? frexp(x, &e) : x;
}
static inline float flush_denormal(float f)
{
    return exponent32(f) ? f : copysignf(0, f);
}
// v_exp_f32 flushes denormal results, v_log_f32 denormal operands, whatever MODE says. Correctly rounded here; the
// device is allowed an error of about one place.
static inline float exp2_f32(float x)
{
    return isnan(x) ? x : flush_denormal((float)exp2((double)x));
}
static inline float log2_f32(float x)
{
    x = flush_denormal(x);
    return x == 0 ? -INFINITY : x < 0 ? NAN : (float)log2((double)x);
}
static inline double turns(double x)            // v_sin and v_cos take turns, not radians
{
    return (x - floor(x)) * 6.283185307179586476925;
}

// ── conversions ─────────────────────────────────────────────────────────────────────────────────────────────────────
static inline u32 f2u16(float x)
{
    return isnan(x) || x <= 0 ? 0 : x >= 65535 ? 65535 : (u32)x;
}
static inline u32 f2i16(float x)
{
    return (u32)(isnan(x) ? 0 : x <= -32768 ? -32768 : x >= 32767 ? 32767 : (i32)x) & 0xffff;
}
static inline u32 f2u8(double x)
{
    return isnan(x) || x <= 0 ? 0 : x >= 255 ? 255 : (u32)nearbyint(x);
}
static inline u32 norm_i16(double x)            // -1 .. 1 to -32767 .. 32767
{
    x = isnan(x) ? 0 : x < -1 ? -1 : x > 1 ? 1 : x;
    return (u32)(i32)nearbyint(x * 32767) & 0xffff;
}
static inline u32 norm_u16(double x)
{
    x = isnan(x) || x < 0 ? 0 : x > 1 ? 1 : x;
    return (u32)nearbyint(x * 65535);
}
static inline float small_to_float(u32 bits, int format)
{
    return (float)small_values[format][bits & 255];
}
static inline u64 small_pair(u32 bits, int format)
{
    return asu(small_to_float(bits, format)) | (u64)asu(small_to_float(bits >> 8, format)) << 32;
}
static inline u32 replace_byte(u32 old, u32 byte, u32 v)
{
    u32 shift = 8 * (byte & 3);
    return (old & ~(255u << shift)) | v << shift;
}

// ── division ────────────────────────────────────────────────────────────────────────────────────────────────────────
// n / d is div_scale of both, a reciprocal, some fma, div_fmas, div_fixup: see lane_math.c
float div_fixup32(float q, float d, float n);
double div_fixup64(double q, double d, double n);
float div_scale32(float s0, float d, float n, int *scaled);
double div_scale64(double s0, double d, double n, int *scaled);
float div_fmas32(float a, float b, float c, int scaled);
double div_fmas64(double a, double b, double c, int scaled);
