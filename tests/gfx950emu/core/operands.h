// Reading sources and writing destinations.
//
// A signature says how an operand is read, one letter each: u 32 bits, f f32, h f16, w 16-bit integer, U 64 bits,
// F f64. It decides the width, what an inline constant of that operand means, and which modifiers apply.
#pragma once
#include "core.h"

// One operand of all lanes. The members are named like the signature's letters; h and w are in u, zero extended.
typedef union {
    u32 u[LANES];
    i32 i[LANES];
    float f[LANES];
    u64 U[LANES];
    i64 I[LANES];
    double F[LANES];
} Lanes;

static inline u32 sread(const Wave *w, int code, u32 lit)
{
    switch (code) {
    case VCCZ:
        return ld64(w->sgpr + VCC) == 0;
    case EXECZ:
        return exec_mask(w) == 0;
    case LITERAL:
        return lit;
    default:
        return w->sgpr[code];
    }
}
u64 constant64(const Wave *w, int code, u32 lit, int is_float);
static inline u64 sread64(const Wave *w, int code, u32 lit, int is_float)
{
    return code < 128 ? ld64(w->sgpr + code) : constant64(w, code, lit, is_float);
}

static inline const u32 *vgpr(const Wave *w, int code)  // the lanes of the register that an operand code names
{
    return w->vgpr + (code - VGPR) * LANES;
}

// Raw operands: inline constants as the type asks, no modifiers
void fetch32(const Wave *w, int code, u32 lit, char type, u32 *out);
void fetch64(const Wave *w, int code, u32 lit, char type, u64 *out);

// Source n with its modifiers: DPP, SDWA, op_sel, |x| and -x. Takes the lanes that DPP does not write out of *written.
int source32(const Wave *w, const Insn *I, int n, int code, char type, u32 *out, u64 *written);
int source64(const Wave *w, const Insn *I, int n, int code, char type, u64 *out, u64 *written);

void sign_modifiers(u32 *v, char type, int abs, int neg);

static inline float omod(float r, int o)                // the output modifier: times 2, times 4, halved
{
    return o == 1 ? r * 2 : o == 2 ? r * 4 : o == 3 ? r * 0.5f : r;
}

static inline void put32(Wave *w, int reg, const u32 *d, u64 lanes)
{
    u32 *p = w->vgpr + reg * LANES;
    if (lanes == ~0ull)
        memcpy(p, d, 4 * LANES);
    else
        EACH_LANE
            if (lanes >> l & 1)
                p[l] = d[l];
}
static inline void put64(Wave *w, int reg, const u64 *d, u64 lanes)
{
    u32 lo[LANES], hi[LANES];
    EACH_LANE {
        lo[l] = (u32)d[l];
        hi[l] = (u32)(d[l] >> 32);
    }
    put32(w, reg, lo, lanes);
    put32(w, reg + 1, hi, lanes);
}
