// v_cvt_scalef32_* and the conversions to fp8 and bf8: one, two or 32 numbers a lane between f32, f16 or bf16 ("wide")
// and fp8, bf8, fp6, bf6 or fp4 ("narrow"). A scale is the exponent of an f32; it multiplies what is widened and
// divides what is narrowed.
#include "numbers.h"
#include "operands.h"

enum { WIDEN, NARROW, NARROW_STOCHASTIC };  // I->cvt.direction
enum { F32, F16, BF16 };                    // I->cvt.wide

static double from_wide(u32 raw, int type)
{
    return type == F32 ? asf(raw) : type == F16 ? h2f(raw & 0xffff) : bf2f(raw & 0xffff);
}
static u32 to_wide(double v, int type, int sat)
{
    return type == F32 ? asu((float)v) : type == F16 ? f2h_d(v, sat) : f2bf((float)v);
}

// 2^(exponent of an f32), or NaN where that is all ones
static double scale_of(u32 f32_bits)
{
    int e = (int)(f32_bits >> 23 & 255) - 127;
    return e == 128 ? NAN : ldexp(1.0, e);
}
static double scale_up(double v, double scale)
{
    return isnan(scale) ? NAN : v * scale;
}
static u32 narrow(const Insn *I, double v, double scale, u32 random, int sat)
{
    Format f = formats[I->cvt.narrow];
    v = isnan(scale) ? NAN : v / scale;
    if (I->cvt.direction == NARROW_STOCHASTIC)
        v = stochastic(v, random, f);
    return double_to_small(v, f, sat);
}

static void read_scale(const Wave *w, const Insn *I, u32 *scale)
{
    const int codes[3] = {I->s0, I->s1, I->s2};
    if (I->cvt.scaled)
        fetch32(w, codes[I->cvt.scale_source], I->lit, 'f', scale);
    else
        EACH_LANE
            scale[l] = 0x3f800000;
}

// ── one or two numbers ──────────────────────────────────────────────────────────────────────────────────────────────
// op_sel chooses the byte or the half of the source, and for a single f16 the half of the destination
static void widen_few(Wave *w, const Insn *I, const u32 *scale)
{
    const int type = I->cvt.wide, bits = formats[I->cvt.narrow].bits, sat = f16_saturates(w), one = I->cvt.count == 1;
    const int shift = one || bits == 4 ? 8 * (I->opsel & 3) : 16 * (I->opsel & 1);
    const double *value = small_values[I->cvt.narrow];
    const u32 *old = w->vgpr + I->dst * LANES, mask = (1u << bits) - 1;
    u32 S[LANES], D[LANES], D2[LANES];
    fetch32(w, I->s0, I->lit, 'u', S);
    EACH_LANE {
        double s = scale_of(scale[l]);
        u32 a = to_wide(scale_up(value[S[l] >> shift & mask], s), type, sat);
        u32 b = to_wide(scale_up(value[S[l] >> shift >> bits & mask], s), type, sat);
        D2[l] = b;
        if (type == F32)
            D[l] = a;
        else if (!one)
            D[l] = a | b << 16;
        else
            D[l] = I->opsel & 8 ? (old[l] & 0xffff) | a << 16 : (old[l] & 0xffff0000) | a;
    }
    put32(w, I->dst, D, exec_mask(w));
    if (!one && type == F32)
        put32(w, I->dst + 1, D2, exec_mask(w));
}

// op_sel chooses the byte or the half of the destination; the rest of it stays
static void narrow_few(Wave *w, const Insn *I, const u32 *scale, const u32 *random)
{
    const int type = I->cvt.wide, bits = formats[I->cvt.narrow].bits, sat = f16_saturates(w), one = I->cvt.count == 1;
    const int to_byte = one || bits == 4;
    const int shift = to_byte ? 8 * (I->opsel >> 2 & 3) : 16 * (I->opsel >> 3 & 1);
    const u32 *old = w->vgpr + I->dst * LANES, mask = (to_byte ? 0xffu : 0xffffu) << shift;
    u32 S0[LANES], S1[LANES], D[LANES];
    fetch32(w, I->s0, I->lit, type == F32 ? 'f' : 'u', S0);
    if (I->cvt.two_sources)
        fetch32(w, I->s1, I->lit, 'f', S1);
    else if (I->cvt.source_pair)
        fetch32(w, I->s0 + 1, I->lit, 'f', S1);
    else
        EACH_LANE
            S1[l] = S0[l] >> 16;
    if (type == F32) {
        sign_modifiers(S0, 'f', I->abs & 1, I->neg & 1);
        if (I->cvt.two_sources)
            sign_modifiers(S1, 'f', I->abs & 2, I->neg & 2);
    }
    EACH_LANE {
        double s = scale_of(scale[l]);
        u32 v = narrow(I, from_wide(S0[l], type), s, random[l], sat);
        if (!one)
            v |= narrow(I, from_wide(S1[l], type), s, random[l], sat) << bits;
        D[l] = (old[l] & ~mask) | v << shift;
    }
    put32(w, I->dst, D, exec_mask(w));
}

// ── 32 numbers of 6 bits, in six registers ──────────────────────────────────────────────────────────────────────────
static void widen_32(Wave *w, const Insn *I, const u32 *scale)
{
    const int type = I->cvt.wide, sat = f16_saturates(w), words = type == F32 ? 32 : 16;
    const double *value = small_values[I->cvt.narrow];
    u32 out[32][LANES] = {{0}};
    EACH_LANE {
        double s = scale_of(scale[l]);
        for (int i = 0; i < 32; i++) {
            int place = 6 * i, shift = place % 32;
            const u32 *p = vgpr(w, I->s0 + place / 32) + l;
            u64 v = p[0];
            if (shift > 26)
                v |= (u64)p[LANES] << 32;
            u32 wide = to_wide(scale_up(value[v >> shift & 63], s), type, sat);
            if (type == F32)
                out[i][l] = wide;
            else
                out[i / 2][l] |= wide << 16 * (i & 1);
        }
    }
    for (int i = 0; i < words; i++)
        put32(w, I->dst + i, out[i], exec_mask(w));
}

static u32 element_of_32(const Wave *w, const Insn *I, int i, int l)
{
    if (I->cvt.two_sources)             // 2xpk16: the two sources take turns
        return vgpr(w, (i & 1 ? I->s1 : I->s0) + i / 2)[l];
    if (I->cvt.wide == F32)
        return vgpr(w, I->s0 + i)[l];
    return vgpr(w, I->s0 + i / 2)[l] >> 16 * (i & 1);
}

static void narrow_32(Wave *w, const Insn *I, const u32 *scale, const u32 *random)
{
    u32 out[6][LANES] = {{0}};
    const int sat = f16_saturates(w);
    EACH_LANE {
        double s = scale_of(scale[l]);
        for (int i = 0; i < 32; i++) {
            int word = 6 * i / 32;
            double x = from_wide(element_of_32(w, I, i, l), I->cvt.wide);
            u64 v = (u64)narrow(I, x, s, random[l], sat) << 6 * i % 32;
            out[word][l] |= (u32)v;
            if (v >> 32)
                out[word + 1][l] |= (u32)(v >> 32);
        }
    }
    for (int i = 0; i < 6; i++)
        put32(w, I->dst + i, out[i], exec_mask(w));
}

int cvts(Wave *w, Insn *I)
{
    u32 scale[LANES], random[LANES] = {0};
    read_scale(w, I, scale);
    if (I->cvt.direction == NARROW_STOCHASTIC)
        fetch32(w, I->s1, I->lit, 'u', random);
    int few = I->cvt.count <= 2;
    if (I->cvt.direction == WIDEN && few)
        widen_few(w, I, scale);
    else if (I->cvt.direction == WIDEN)
        widen_32(w, I, scale);
    else if (few)
        narrow_few(w, I, scale, random);
    else
        narrow_32(w, I, scale, random);
    return 0;
}
