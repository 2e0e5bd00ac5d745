// VOPC: v_cmp, v_cmpx and v_cmp_class. One bit a lane into a scalar pair, 0 for inactive lanes.
//
// I->vopc.type: f f32, F f64, h f16; i and u 32 bits, I and U 64, s and w 16, signed and unsigned.
#include "numbers.h"
#include "operands.h"

enum { LT = 1, EQ = 2, GT = 4, UNORDERED = 8 };     // I->vopc.relation: where the comparison is true

// Which of the ten classes of v_cmp_class a float is in
enum { SIGNALLING, QUIET, NEG_INF, NEG_NORMAL, NEG_DENORMAL, NEG_ZERO, POS_ZERO, POS_DENORMAL, POS_NORMAL, POS_INF };
static int class_of(u64 bits, int exponent_bits, int mantissa_bits)
{
    u64 m = bits & ((1ull << mantissa_bits) - 1), quiet = 1ull << (mantissa_bits - 1);
    int e_max = (1 << exponent_bits) - 1;
    int e = (int)(bits >> mantissa_bits) & e_max, s = bits >> (exponent_bits + mantissa_bits) & 1;
    if (e == e_max && m)
        return m & quiet ? QUIET : SIGNALLING;
    if (e == e_max)
        return s ? NEG_INF : POS_INF;
    if (e)
        return s ? NEG_NORMAL : POS_NORMAL;
    if (m)
        return s ? NEG_DENORMAL : POS_DENORMAL;
    return s ? NEG_ZERO : POS_ZERO;
}

// How source32 and source64 read an operand of a type
static char operand_type(char type)
{
    switch (type) {
    case 'f':
    case 'F':
    case 'h':
        return type;
    case 's':
    case 'w':
        return 'w';
    case 'I':
    case 'U':
        return 'U';
    default:
        return 'u';
    }
}

static int read_sources(const Wave *w, const Insn *I, Lanes *S0, Lanes *S1)
{
    u64 written = ~0ull;            // DPP does not keep bits of the result
    char t = operand_type((char)I->vopc.type);
    int wide = t == 'F' || t == 'U';
    int rc = wide ? source64(w, I, 0, I->s0, t, S0->U, &written) : source32(w, I, 0, I->s0, t, S0->u, &written);
    if (rc)
        return rc;
    if (I->vopc.is_class)
        return source32(w, I, 1, I->s1, 'u', S1->u, &written);
    return wide ? source64(w, I, 1, I->s1, t, S1->U, &written) : source32(w, I, 1, I->s1, t, S1->u, &written);
}

int vopc(Wave *w, Insn *I)
{
    const int rel = I->vopc.relation;
    Lanes S0, S1;
    u64 r = 0;
    int rc = read_sources(w, I, &S0, &S1);
    if (rc)
        return rc;

#define RESULT(bit)                                                                                                    \
    EACH_LANE                                                                                                          \
        r |= (u64)(bit) << l;                                                                                          \
    break
#define RELATION(a, b) (((rel & LT) && (a) < (b)) || ((rel & EQ) && (a) == (b)) || ((rel & GT) && (a) > (b)))
#define FLOATS(a, b) (isnan(a) || isnan(b) ? (rel & UNORDERED) != 0 : RELATION(a, b))
    if (I->vopc.is_class)
        switch (I->vopc.type) {
        case 'f':
            RESULT(S1.u[l] >> class_of(S0.u[l], 8, 23) & 1);
        case 'h':
            RESULT(S1.u[l] >> class_of(S0.u[l], 5, 10) & 1);
        default:
            RESULT(S1.u[l] >> class_of(S0.U[l], 11, 52) & 1);
        }
    else
        switch (I->vopc.type) {
        case 'f':
            RESULT(FLOATS(S0.f[l], S1.f[l]));
        case 'h':
            RESULT(FLOATS(h2f(S0.u[l]), h2f(S1.u[l])));
        case 'F':
            RESULT(FLOATS(S0.F[l], S1.F[l]));
        case 'i':
            RESULT(RELATION(S0.i[l], S1.i[l]));
        case 'u':
            RESULT(RELATION(S0.u[l], S1.u[l]));
        case 'I':
            RESULT(RELATION(S0.I[l], S1.I[l]));
        case 'U':
            RESULT(RELATION(S0.U[l], S1.U[l]));
        case 's':
            RESULT(RELATION((i16)S0.u[l], (i16)S1.u[l]));
        case 'w':
            RESULT(RELATION((u16)S0.u[l], (u16)S1.u[l]));
        default:
            return R_BADOP;
        }

    r &= exec_mask(w);
    st64(w->sgpr + I->sdst, r);
    if (I->vopc.writes_exec)
        st64(w->sgpr + EXEC, r);
    return 0;
}
