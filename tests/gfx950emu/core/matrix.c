// MFMA: D = A * B + C on matrices that are spread over the lanes of the wave. EXEC does not matter to it.
//
// Of `blocks` independent products, each has LANES / blocks lanes. In a block, lane i + R * g holds elements of row i
// of A (of R = M rows) or column i of B (R = N), those with k = g * count .. g * count + count - 1; see place_of_k for
// the one exception. D and C: see place_of_result.
#include "numbers.h"
#include "operands.h"

enum { T_F32, T_F16, T_BF16, T_I8, T_SMALL, T_F64 = 9 };   // I->mfma.type; T_SMALL + a format: fp8 bf8 fp6 bf6 fp4
enum { F32, I32, F64 };                                    // I->mfma.result
enum { SCALE_BLOCK = 32, MAX_ELEMENTS = 16 * 32 * 32 + 32 * 128 };

// ── operands ────────────────────────────────────────────────────────────────────────────────────────────────────────
// n bits at a place in a row of registers, of one lane
static inline u32 bits_at(const u32 *r, u32 place, u32 n)
{
    u32 shift = place % 32;
    u64 v = r[place / 32 * LANES];
    if (shift + n > 32)
        v |= (u64)r[(place / 32 + 1) * LANES] << 32;
    return v >> shift & ((1ull << n) - 1);
}

// Element j of a lane, whose first register r is
static double element(const u32 *r, int type, int j)
{
    switch (type) {
    case T_F32:
        return asf(r[j * LANES]);
    case T_F16:
        return h2f(bits_at(r, 16 * j, 16));
    case T_BF16:
        return bf2f(bits_at(r, 16 * j, 16));
    case T_I8:
        return (i8)bits_at(r, 8 * j, 8);
    case T_F64:
        return asd(r[2 * j * LANES] | (u64)r[(2 * j + 1) * LANES] << 32);
    case T_SMALL + FP8:
    case T_SMALL + BF8:
        return small_values[type - T_SMALL][bits_at(r, 8 * j, 8)];
    case T_SMALL + FP4:
        return small_values[FP4][bits_at(r, 4 * j, 4)];
    default:
        return small_values[type - T_SMALL][bits_at(r, 6 * j, 6)];
    }
}

// Of element j of the lanes of group g. 8-bit operands of the f8f6f4 forms: a lane's 32 values are two runs of 16, half
// of K apart (inferred, not documented).
static int place_of_k(const Insn *I, int type, int g, int count, int j)
{
    int is_8_bit = type == T_SMALL + FP8 || type == T_SMALL + BF8;
    if (I->mfma.split8 && is_8_bit)
        return j / 16 * (I->mfma.K / 2) + g * 16 + j % 16;
    return g * count + j;
}

// Operand 0 (A) or 1 (B), with its scales, as X[block][row][k]
static int read_operand(const Wave *w, const Insn *I, int operand, double *X)
{
    const int code = operand ? I->s1 : I->s0, type = I->mfma.type[operand], K = I->mfma.K;
    const int rows = operand ? I->mfma.N : I->mfma.M, lanes = LANES / I->mfma.blocks, count = K / (lanes / I->mfma.M);
    const u32 *rf = I->mfma.agpr[operand] ? w->acc : w->vgpr;
    u32 scale[LANES];
    if (code < VGPR)
        return R_BADOP;
    if (I->mfma.scaled)
        fetch32(w, I->mfma.scale[operand], I->lit, 'u', scale);
    EACH_LANE {
        int block = l / lanes, row = l % lanes % rows, g = l % lanes / rows;
        for (int j = 0; j < count; j++) {
            int k = place_of_k(I, type, g, count, j);
            double v = element(rf + (code - VGPR) * LANES + l, type, j);
            if (I->mfma.scaled) {       // one byte of the lane that has this row and block of k
                u32 s = scale[k / SCALE_BLOCK * rows + row] >> 8 * I->mfma.scale_byte[operand] & 255;
                v *= e8m0_values[s];
            }
            X[(block * rows + row) * K + k] = v;
        }
    }
    return 0;
}

// ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────────
typedef struct {
    int block, row, column;
} Place;

// Which element result r of lane l is. Four rows of an f32 or i32 result are in successive registers of a lane, the
// next four in the next lanes; of an f64 result each row is in other lanes.
static Place place_of_result(const Insn *I, int r, int l)
{
    const int M = I->mfma.M, N = I->mfma.N, is_f64 = I->mfma.result == F64, lanes = LANES / I->mfma.blocks;
    if (M == 4)
        return (Place){l / lanes, is_f64 ? l % lanes / N : r, l % N};
    int per_block = M * N / LANES, i = r % per_block, row;
    if (is_f64)
        row = l / 16 + 4 * i;
    else if (M == 32)
        row = 8 * (i / 4) + 4 * (l / 32) + i % 4;
    else
        row = 4 * (l / 16) + i;
    return (Place){r / per_block, row, l % N};
}

// C, as the bits of the result's type
static u64 addend(const Wave *w, const Insn *I, const u32 *rf, int r, int l)
{
    const int wide = I->mfma.result == F64;
    if (I->s2 < VGPR)
        return wide ? sread64(w, I->s2, I->lit, 1) : sread(w, I->s2, I->lit);
    const u32 *p = rf + (I->s2 - VGPR + r * (wide ? 2 : 1)) * LANES + l;
    return p[0] | (wide ? (u64)p[LANES] << 32 : 0);
}

// x . y + c. f32 operands are added up one by one. Of the narrower types, whose products are exact, the sum is formed
// in double and rounded once; the device's order and roundings are not documented.
static u64 dot(const Insn *I, const double *x, const double *y, u64 c)
{
    const int K = I->mfma.K;
    if (I->mfma.result == I32) {
        i64 s = (i32)c;
        for (int k = 0; k < K; k++)
            s += (i64)x[k] * (i64)y[k];
        return (u32)s;
    }
    if (I->mfma.result == F64) {
        double s = asd(c);
        for (int k = 0; k < K; k++)
            s = fma(x[k], y[k], s);
        return asq(s);
    }
    if (I->mfma.type[0] == T_F32) {
        float s = asf((u32)c);
        for (int k = 0; k < K; k++)
            s = fmaf((float)x[k], (float)y[k], s);
        return asu(s);
    }
    double s[4] = {0, 0, 0, 0};         // four sums, for speed; K is a multiple of four
    for (int k = 0; k < K; k += 4)
        for (int q = 0; q < 4; q++)
            s[q] += x[k + q] * y[k + q];
    return asu((float)((s[0] + s[1]) + (s[2] + s[3]) + asf((u32)c)));
}

int mfma(Wave *w, Insn *I)
{
    static double A[MAX_ELEMENTS], B[MAX_ELEMENTS];
    const int M = I->mfma.M, N = I->mfma.N, K = I->mfma.K, words = I->mfma.result == F64 ? 2 : 1;
    const int results = M * N * I->mfma.blocks / LANES;         // of a lane
    u32 *rf = I->mfma.agpr_cd ? w->acc : w->vgpr;
    u32 out[64][LANES];                 // D may lie over A, B and C: written when all have been read
    if (read_operand(w, I, 0, A) || read_operand(w, I, 1, B))
        return R_BADOP;
    for (int r = 0; r < results; r++)
        EACH_LANE {
            Place at = place_of_result(I, r, l);
            u64 d = dot(I, A + (at.block * M + at.row) * K, B + (at.block * N + at.column) * K, addend(w, I, rf, r, l));
            out[words * r][l] = (u32)d;
            if (words == 2)
                out[words * r + 1][l] = (u32)(d >> 32);
        }
    for (int r = 0; r < words * results; r++)
        memcpy(rf + (I->dst + r) * LANES, out[r], 4 * LANES);
    return 0;
}
