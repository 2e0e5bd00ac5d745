// Sources of vector instructions: constants, DPP, SDWA, op_sel and sign modifiers.
#include "operands.h"
#include "numbers.h"

enum { FIRST_FLOAT = 240, ONE_OVER_2PI = 248 };     // operand codes of the float constants: 0.5 .. -4.0, 1 / (2 pi)

// ── scalars, constants, registers ───────────────────────────────────────────────────────────────────────────────────
static int is_float_constant(int code)
{
    return code >= FIRST_FLOAT && code <= ONE_OVER_2PI;
}

u64 constant64(const Wave *w, int code, u32 lit, int is_float)
{
    if (code == LITERAL)
        return is_float ? (u64)lit << 32 : lit;     // of an f64, a literal is the upper half
    if (code == ONE_OVER_2PI)
        return 0x3fc45f306dc9c882ull;
    if (is_float_constant(code))
        return is_float ? asq(asf(w->sgpr[code])) : w->sgpr[code];
    return (u64)(i64)(i32)sread(w, code, lit);
}

void fetch32(const Wave *w, int code, u32 lit, char type, u32 *out)
{
    if (code >= VGPR) {
        memcpy(out, vgpr(w, code), 4 * LANES);
        return;
    }
    u32 v = sread(w, code, lit);
    if (type == 'h' && is_float_constant(code))
        v = code == ONE_OVER_2PI ? 0x3118 : f2h(asf(v), 0);
    EACH_LANE
        out[l] = v;
}

void fetch64(const Wave *w, int code, u32 lit, char type, u64 *out)
{
    if (code >= VGPR) {
        const u32 *p = vgpr(w, code);
        EACH_LANE
            out[l] = p[l] | (u64)p[LANES + l] << 32;
        return;
    }
    u64 v = sread64(w, code, lit, type == 'F');
    EACH_LANE
        out[l] = v;
}

// ── DPP ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
// The lane that a control makes lane l read; NO_LANE: none; NO_CONTROL: there is no such control
enum { NO_LANE = -1, NO_CONTROL = -2 };
static inline int dpp_source(int c, int l)
{
    int row = l & ~15, i = l & 15;
    if (c < 0x100)
        return (l & ~3) | (c >> 2 * (l & 3) & 3);                   // quad_perm
    if (c > 0x100 && c < 0x110)
        return i + (c & 15) <= 15 ? l + (c & 15) : NO_LANE;         // row_shl
    if (c > 0x110 && c < 0x120)
        return i >= (c & 15) ? l - (c & 15) : NO_LANE;              // row_shr
    if (c > 0x120 && c < 0x130)
        return row | ((i - (c & 15)) & 15);                         // row_ror
    if (c >= 0x150 && c < 0x160)
        return row | (c & 15);                                      // row_newbcast
    switch (c) {
    case 0x130:
        return l < 63 ? l + 1 : NO_LANE;                            // wave_shl:1
    case 0x134:
        return (l + 1) & 63;                                        // wave_rol:1
    case 0x138:
        return l > 0 ? l - 1 : NO_LANE;                             // wave_shr:1
    case 0x13c:
        return (l - 1) & 63;                                        // wave_ror:1
    case 0x140:
        return row | (15 - i);                                      // row_mirror
    case 0x141:
        return row | (i & 8) | (7 - (i & 7));                       // row_half_mirror
    case 0x142:
        return l >= 16 ? row - 1 : NO_LANE;                         // row_bcast:15
    case 0x143:
        return l >= 32 ? 31 : NO_LANE;                              // row_bcast:31
    default:
        return NO_CONTROL;
    }
}

// Permute a source; takes out of *written the lanes that keep their destination: those that the masks leave out, and
// without bound_ctrl those whose source lane does not exist or is inactive.
static int dpp_apply(const Wave *w, const Insn *I, u32 *v, u64 *written)
{
    u64 ex = exec_mask(w), m = 0;
    u32 o[LANES];
    EACH_LANE {
        int s = dpp_source(I->dpp - 1, l);
        if (s == NO_CONTROL)
            return R_BADOP;
        int enabled = (I->row_mask >> (l >> 4) & 1) && (I->bank_mask >> (l >> 2 & 3) & 1);
        int ok = s >= 0 && (ex >> s & 1);
        o[l] = ok ? v[s] : 0;
        if (enabled && (ok || I->bc))
            m |= 1ull << l;
    }
    memcpy(v, o, sizeof o);
    *written &= m;
    return 0;
}

// ── SDWA and signs ──────────────────────────────────────────────────────────────────────────────────────────────────
enum { SDWA_WORD0 = 4, SDWA_WORD1, SDWA_DWORD };    // 0 to 3: that byte
static u32 sdwa_select(u32 v, int sel, int sext)
{
    if (sel < SDWA_WORD0) {
        v = v >> 8 * sel & 255;
        return sext ? (u32)(i32)(i8)v : v;
    }
    if (sel < SDWA_DWORD) {
        v = v >> 16 * (sel - SDWA_WORD0) & 0xffff;
        return sext ? (u32)(i32)(i16)v : v;
    }
    return v;
}

void sign_modifiers(u32 *v, char type, int abs, int neg)
{
    u32 sign = type == 'f' ? 0x80000000 : type == 'h' ? 0x8000 : 0;
    if (abs)
        EACH_LANE
            v[l] &= ~sign;
    if (neg)
        EACH_LANE
            v[l] ^= sign;
}

// ── sources ─────────────────────────────────────────────────────────────────────────────────────────────────────────
int source32(const Wave *w, const Insn *I, int n, int code, char type, u32 *out, u64 *written)
{
    fetch32(w, code, I->lit, type, out);
    if (n == 0 && I->dpp && dpp_apply(w, I, out, written))
        return R_BADOP;
    if (I->sdwa && n < 2) {
        int sel = n ? I->sel1 : I->sel0, sext = n ? I->sext1 : I->sext0;
        if (code >= VGPR || sel != SDWA_DWORD)
            EACH_LANE
                out[l] = sdwa_select(out[l], sel, sext);
    }
    if (type == 'h' || type == 'w') {
        int shift = !I->sdwa && I->opsel >> n & 1 ? 16 : 0;
        EACH_LANE
            out[l] = out[l] >> shift & 0xffff;
    }
    if (I->abs || I->neg)
        sign_modifiers(out, type, I->abs >> n & 1, I->neg >> n & 1);
    return 0;
}

int source64(const Wave *w, const Insn *I, int n, int code, char type, u64 *out, u64 *written)
{
    fetch64(w, code, I->lit, type, out);
    if (n == 0 && I->dpp) {
        u32 lo[LANES], hi[LANES];
        EACH_LANE {
            lo[l] = (u32)out[l];
            hi[l] = (u32)(out[l] >> 32);
        }
        if (dpp_apply(w, I, lo, written) || dpp_apply(w, I, hi, written))
            return R_BADOP;
        EACH_LANE
            out[l] = lo[l] | (u64)hi[l] << 32;
    }
    if (type == 'F') {
        const u64 sign = 1ull << 63;
        if (I->abs >> n & 1)
            EACH_LANE
                out[l] &= ~sign;
        if (I->neg >> n & 1)
            EACH_LANE
                out[l] ^= sign;
    }
    return 0;
}
