// VOP3P: two results at once, dot products, and multiply-adds of mixed precision.
//
// op_sel and neg choose the part and the sign of each source for the low result, op_sel_hi and neg_hi for the high one.
#include "lane_math.h"
#include "operands.h"

enum { HALF, SHORT, PAIR, MOVE, DOT_FLOAT, DOT_SHORT, DOT_BYTE, MIX };

#define OP(form, name, ...) P_##name,
enum {
#include "packed.inc"
    P_COUNT
};
#define OP(form, name, ...) {#name, form},
static const struct {
    const char *name;
    int form;
} table[] = {
#include "packed.inc"
};

int core_pop_count(void)
{
    return P_COUNT;
}
const char *core_pop_name(int i)
{
    return table[i].name;
}

// ── sources ─────────────────────────────────────────────────────────────────────────────────────────────────────────
static int bit(int bits, int n)
{
    return bits >> n & 1;
}
// The first or second register of a pair; a constant is both
static void fetch_of_pair(const Wave *w, const Insn *I, int code, int second, u32 *out)
{
    fetch32(w, code >= VGPR || code < 128 ? code + second : code, I->lit, 'f', out);
}

// One half of a register of two f16 or 16-bit integers
static void read_half(const Wave *w, const Insn *I, int code, int n, int high, int is_float, u32 *out)
{
    int shift = bit(high ? I->opsel_hi : I->opsel, n) ? 16 : 0;
    u32 flip = is_float && bit(high ? I->neg_hi : I->neg, n) ? 0x8000 : 0;
    fetch32(w, code, I->lit, is_float ? 'h' : 'u', out);
    EACH_LANE
        out[l] = (out[l] >> shift & 0xffff) ^ flip;
}

// Both halves, for a dot product
static void read_halves(const Wave *w, const Insn *I, int code, int n, char type, int is_float, u32 *out)
{
    int shift_lo = bit(I->opsel, n) ? 16 : 0, shift_hi = bit(I->opsel_hi, n) ? 16 : 0;
    u32 flip_lo = is_float && bit(I->neg, n) ? 0x8000 : 0, flip_hi = is_float && bit(I->neg_hi, n) ? 0x8000 : 0;
    fetch32(w, code, I->lit, type, out);
    EACH_LANE {
        u32 lo = (out[l] >> shift_lo & 0xffff) ^ flip_lo, hi = (out[l] >> shift_hi & 0xffff) ^ flip_hi;
        out[l] = lo | hi << 16;
    }
}

// op_sel_hi: the source is an f16, op_sel: its upper half; neg_hi means |x| here
static void read_mixed(const Wave *w, const Insn *I, int code, int n, Lanes *S)
{
    int is_half = bit(I->opsel_hi, n), shift = bit(I->opsel, n) ? 16 : 0;
    fetch32(w, code, I->lit, is_half ? 'h' : 'f', S->u);
    EACH_LANE {
        float x = is_half ? h2f(S->u[l] >> shift & 0xffff) : S->f[l];
        if (bit(I->neg_hi, n))
            x = fabsf(x);
        if (bit(I->neg, n))
            x = -x;
        S->f[l] = x;
    }
}

static void read_source(const Wave *w, const Insn *I, int n, int high, Lanes *S)
{
    const int codes[3] = {I->s0, I->s1, I->s2}, code = codes[n];
    switch (table[I->op].form) {
    case HALF:
    case SHORT:
        read_half(w, I, code, n, high, table[I->op].form == HALF, S->u);
        break;
    case PAIR:
        if (n == 2 && I->op != P_v_pk_fma_f32)      // a pair that is not there may end behind the last register
            break;
        fetch_of_pair(w, I, code, bit(high ? I->opsel_hi : I->opsel, n), S->u);
        if (bit(high ? I->neg_hi : I->neg, n))
            EACH_LANE
                S->u[l] ^= 0x80000000;
        break;
    case MOVE:                                      // low result: source 0 by op_sel[0]; high: source 1 by op_sel[1]
        if (n == 0)
            fetch_of_pair(w, I, codes[high], bit(I->opsel, high), S->u);
        break;
    case DOT_FLOAT:
        if (n < 2)
            read_halves(w, I, code, n, I->op == P_v_dot2_f32_f16 ? 'h' : 'u', 1, S->u);
        else {
            fetch32(w, code, I->lit, 'u', S->u);
            sign_modifiers(S->u, 'f', 0, bit(I->neg, 2));
        }
        break;
    case DOT_SHORT:
        if (n < 2)
            read_halves(w, I, code, n, 'u', 0, S->u);
        else
            fetch32(w, code, I->lit, 'u', S->u);
        break;
    case DOT_BYTE:
        fetch32(w, code, I->lit, 'u', S->u);
        break;
    case MIX:
        read_mixed(w, I, code, n, S);
    }
}

// ── arithmetic that only these instructions have ────────────────────────────────────────────────────────────────────
static inline i64 dot2_i16(u32 a, u32 b, i32 sum)
{
    return (i64)sum + (i16)a * (i16)b + (i64)((i16)(a >> 16) * (i16)(b >> 16));
}
static inline u64 dot2_u16(u32 a, u32 b, u32 sum)
{
    return (u64)sum + (u64)(a & 0xffff) * (b & 0xffff) + (u64)(a >> 16) * (b >> 16);
}
static inline u32 dot4_u8(u32 a, u32 b, u32 sum)
{
    for (int i = 0; i < 32; i += 8)
        sum += (u8)(a >> i) * (u8)(b >> i);
    return sum;
}
static inline u32 clamp_f16(u32 h)
{
    return f2h(clamp01(h2f(h)), 0);
}
static inline u32 fma_to_f16(float a, float b, float c, int clamp, int f16_sat)
{
    u32 h = f2h_d(fma(a, b, c), f16_sat);
    return clamp ? clamp_f16(h) : h;
}

// ── one instruction ─────────────────────────────────────────────────────────────────────────────────────────────────
int vop3p(Wave *w, Insn *I)
{
    const int form = table[I->op].form, f16_sat = f16_saturates(w);
    const int results = form <= MOVE ? 2 : 1;
    const u32 *old = w->vgpr + I->dst * LANES;
    const u64 exec = exec_mask(w);
    Lanes S0, S1, S2, out[2];
    for (int high = 0; high < results; high++) {
        read_source(w, I, 0, high, &S0);
        read_source(w, I, 1, high, &S1);
        read_source(w, I, 2, high, &S2);
#define D out[high]
#define H(S) h2f((S).u[l])
#define TO_H(x) f2h(x, f16_sat)
#define OP(form, name, ...)                                                                                            \
    case P_##name:                                                                                                     \
        EACH_LANE {                                                                                                    \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
        break;
        switch (I->op) {
#include "packed.inc"
        default:
            return R_BADOP;
        }
        if (form == PAIR && I->clamp)
            EACH_LANE
                D.f[l] = clamp01(D.f[l]);
        if (form == HALF && I->clamp)
            EACH_LANE
                D.u[l] = clamp_f16(D.u[l]);
    }
    if (form == HALF || form == SHORT)
        EACH_LANE
            out[0].u[l] = (out[0].u[l] & 0xffff) | out[1].u[l] << 16;
    put32(w, I->dst, out[0].u, exec);
    if (form == PAIR || form == MOVE)
        put32(w, I->dst + 1, out[1].u, exec);
    return 0;
}
