// VOP1, VOP2 and VOP3: read the sources, do what the tables say, modify and write the result.
#include "lane_math.h"
#include "operands.h"

// ── the tables, as names ────────────────────────────────────────────────────────────────────────────────────────────
#define OP(name, sig, ...) OP_##name,
enum {
#include "valu.inc"
    OP_COUNT
};

typedef struct {
    const char *name, *sig;
    int carries, low_half;          // OP_CARRY, OP_LOW
} Op;
#define OP(name, sig, ...) {#name, sig, 0, 0},
#define OP_CARRY(name, sig, ...) {#name, sig, 1, 0},
#define OP_LOW(name, sig, ...) {#name, sig, 0, 1},
static const Op op_table[] = {
#include "valu.inc"
};

int core_op_count(void)
{
    return OP_COUNT;
}
const char *core_op_name(int i)
{
    return op_table[i].name;
}
const char *core_op_sig(int i)
{
    return op_table[i].sig;
}

// ── sources ─────────────────────────────────────────────────────────────────────────────────────────────────────────
// The destination as third source, of the multiply-adds
static void read_destination(const Wave *w, const Insn *I, char type, Lanes *S)
{
    if (type == 'F') {
        fetch64(w, I->dst + VGPR, 0, 'F', S->U);
        return;
    }
    memcpy(S->u, w->vgpr + I->dst * LANES, 4 * LANES);
    if (type == 'h')
        EACH_LANE
            S->u[l] &= 0xffff;
    sign_modifiers(S->u, type, I->abs >> 2 & 1, I->neg >> 2 & 1);
}

static int read_sources(const Wave *w, const Insn *I, const char *sig, Lanes *S[3], u64 *carry_in, u64 *written)
{
    int codes[3] = {I->s0, I->s1, I->s2}, rc = 0;
    for (int n = 0; n < 3 && !rc; n++) {
        char t = sig[n + 1];
        switch (t) {
        case '-':
        case 'o':
            break;
        case 'm':               // v_cndmask moves bits, but may change their sign as an f32's
            sign_modifiers(S[0]->u, 'f', I->abs & 1, I->neg & 1);
            sign_modifiers(S[1]->u, 'f', I->abs & 2, I->neg & 2);
            *carry_in = ld64(w->sgpr + codes[n]);
            break;
        case 'c':
            *carry_in = ld64(w->sgpr + codes[n]);
            break;
        case 'd':
            read_destination(w, I, sig[0], S[2]);
            break;
        case 'U':
        case 'F':
            rc = source64(w, I, n, codes[n], t, S[n]->U, written);
            break;
        default:
            rc = source32(w, I, n, codes[n], t, S[n]->u, written);
        }
    }
    return rc;
}

// ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────────
// omod and clamp of a float
static void modify_result(const Insn *I, char type, Lanes *D, int f16_sat)
{
    if (!I->omod && !I->clamp)
        return;
    if (type == 'f')
        EACH_LANE {
            float r = omod(D->f[l], I->omod);
            D->f[l] = I->clamp ? clamp01(r) : r;
        }
    else if (type == 'F')
        EACH_LANE {
            double r = D->F[l];
            r = I->omod == 1 ? r * 2 : I->omod == 2 ? r * 4 : I->omod == 3 ? r / 2 : r;
            if (I->clamp)
                r = isnan(r) ? 0 : r < 0 ? 0 : r > 1 ? 1 : r;
            D->F[l] = r;
        }
    else if (type == 'h')
        EACH_LANE {
            float r = omod(h2f(D->u[l]), I->omod);
            D->u[l] = f2h(I->clamp ? clamp01(r) : r, f16_sat);
        }
}

// SDWA writes a byte or a word; the rest of the register is cleared, extended with the sign, or kept
enum { UNUSED_PAD, UNUSED_SEXT, UNUSED_PRESERVE, SDWA_DWORD = 6 };
static void place_sdwa(const Insn *I, u32 *D, const u32 *old)
{
    int bits = I->dsel < 4 ? 8 : 16, shift = I->dsel < 4 ? 8 * I->dsel : 16 * (I->dsel - 4);
    u32 mask = (bits == 8 ? 0xffu : 0xffffu) << shift;
    EACH_LANE {
        u32 v = D[l] << shift & mask;
        if (I->dunused == UNUSED_PRESERVE)
            v |= old[l] & ~mask;
        else if (I->dunused == UNUSED_SEXT && v >> (shift + bits - 1) & 1 && shift + bits < 32)
            v |= ~0u << (shift + bits);
        D[l] = v;
    }
}

// Where in its register a result goes that is narrower than that
static void place_result(const Wave *w, const Insn *I, const Op *op, u32 *D)
{
    const u32 *old = w->vgpr + I->dst * LANES;
    int is_16_bit = op->sig[0] == 'h' || op->sig[0] == 'w';
    if (I->sdwa && I->dsel != SDWA_DWORD)
        place_sdwa(I, D, old);
    else if (is_16_bit && I->opsel & 8)
        EACH_LANE
            D[l] = (old[l] & 0xffff) | D[l] << 16;
    else if (is_16_bit && !I->sdwa && op->low_half)
        EACH_LANE
            D[l] = (old[l] & 0xffff0000) | (D[l] & 0xffff);
}

// ── one instruction ─────────────────────────────────────────────────────────────────────────────────────────────────
int valu(Wave *w, Insn *I)
{
    const Op *op = op_table + I->op;
    const char *sig = op->sig;
    u64 written = ~0ull, carry_in = 0, carry_out = 0;
    const u64 exec = exec_mask(w), vcc = ld64(w->sgpr + VCC);
    const int f16_sat = f16_saturates(w), ieee = ieee_mode(w);
    Lanes D, S0, S1, S2;            // here, not behind pointers: the compiler then knows that they do not overlap
    int rc = read_sources(w, I, sig, (Lanes *[]){&S0, &S1, &S2}, &carry_in, &written);
    if (rc)
        return rc;
    const u64 carries_in = carry_in;    // a copy that nothing points to, so that it can stay in a register

#define H(S) h2f((S).u[l])
#define TO_H(x) f2h(x, f16_sat)
#define CARRY_IN (carries_in >> l & 1)
#define CARRY_OUT(bit) carry_out |= (u64)(bit) << l
#define OP(name, sig, ...)                                                                                             \
    case OP_##name:                                                                                                    \
        EACH_LANE {                                                                                                    \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
        break;
    switch (I->op) {
#include "valu.inc"
    default:
        return R_BADOP;
    }

    modify_result(I, sig[0], &D, f16_sat);
    written &= exec;
    if (op->carries)
        st64(w->sgpr + I->sdst, carry_out & exec);
    if (sig[0] == 'U' || sig[0] == 'F') {
        put64(w, I->dst, D.U, written);
        return 0;
    }
    place_result(w, I, op, D.u);
    put32(w, I->dst, D.u, written);
    return 0;
}
