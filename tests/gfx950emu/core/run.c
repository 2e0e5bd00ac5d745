// The loop that runs a wave, and the instructions that steer it: branches, waits, MODE and other hardware registers.
#include "memory.h"
#include "operands.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

int core_insn_size(void)
{
    return sizeof(Insn);
}
int core_wave_size(void)
{
    return sizeof(Wave);
}
int core_pend_bytes(void)
{
    return sizeof(Pend) * NPEND;
}

// ── MODE ────────────────────────────────────────────────────────────────────────────────────────────────────────────
enum { MODE_GPR_IDX = 27, MODE_VSKIP = 28 };    // bits of it

// Rounding and the treatment of f32 denormals, into the CPU's own control register
static void set_float_mode(const Wave *w)
{
#if defined(__x86_64__)
    enum { ROUNDING = 0x6000, DENORMALS_ARE_0 = 0x8040 };
    static const u32 rounding[4] = {0, 2, 1, 3};    // nearest, up, down, to zero
    u32 m = _mm_getcsr() & ~(u32)(ROUNDING | DENORMALS_ARE_0);
    m |= rounding[w->mode & 3] << 13;
    if ((w->mode >> 4 & 3) == 0)
        m |= DENORMALS_ARE_0;
    _mm_setcsr(m);
#endif
}

static u32 field(i32 size)
{
    return size >= 32 ? ~0u : (1u << size) - 1;
}
enum { HW_MODE = 1, HW_ID = 4, HW_XCC_ID = 20 };
static void setreg(Wave *w, const Insn *I)
{
    u32 v = I->op ? I->lit : w->sgpr[I->sdst], mask = field(I->hwreg.size) << I->hwreg.offset;
    if (I->hwreg.id != HW_MODE)
        return;
    w->mode = (w->mode & ~(u64)mask) | (v << I->hwreg.offset & mask);
    set_float_mode(w);
}
static void getreg(Wave *w, const Insn *I)
{
    u64 v = I->hwreg.id == HW_MODE ? w->mode : I->hwreg.id == HW_ID ? w->hwid : I->hwreg.id == HW_XCC_ID ? w->xcc : 0;
    w->sgpr[I->sdst] = (u32)(v >> I->hwreg.offset) & field(I->hwreg.size);
}

// ── relative VGPR addressing ────────────────────────────────────────────────────────────────────────────────────────
// In VGPR index mode, M0 holds an offset (bits 0 to 7) and which operands of a vector instruction it moves (12 to 15)
enum { IDX_ON, IDX_OFF, IDX_MODE, IDX_IDX };
static void gpr_idx(Wave *w, const Insn *I)
{
    u32 *m0 = w->sgpr + M0;
    if (I->op == IDX_ON || I->op == IDX_IDX)
        *m0 = (*m0 & ~255u) | (sread(w, I->s0, I->lit) & 255);
    if (I->op == IDX_ON || I->op == IDX_MODE)
        *m0 = (*m0 & ~0xf000u) | (u32)(I->idx.enable & 15) << 12;
    if (I->op == IDX_ON)
        w->mode |= 1ull << MODE_GPR_IDX;
    if (I->op == IDX_OFF)
        w->mode &= ~(1ull << MODE_GPR_IDX);
}

static int vector(Wave *w, Insn *I, int (*f)(Wave *, Insn *))
{
    if (!(w->mode >> MODE_GPR_IDX & 1))
        return f(w, I);
    const u32 m0 = w->sgpr[M0], offset = m0 & 255;
    const int scalar_result = I->kind == K_VOPC || (I->kind == K_LANE && I->op <= L_READ);
    Insn T = *I;
    if (m0 >> 12 & 1 && T.s0 >= VGPR)
        T.s0 += offset;
    if (m0 >> 13 & 1 && T.s1 >= VGPR)
        T.s1 += offset;
    if (m0 >> 14 & 1 && T.s2 >= VGPR)
        T.s2 += offset;
    if (m0 >> 15 & 1 && !scalar_result)
        T.dst += offset;
    if (T.s0 > 511 || T.s1 > 511 || T.s2 > 511 || T.dst > 255)
        return R_BADOP;
    return f(w, &T);
}

// ── control ─────────────────────────────────────────────────────────────────────────────────────────────────────────
enum { ALWAYS, SCC0, SCC1, VCC_Z, VCC_NZ, EXEC_Z, EXEC_NZ };
static int taken(const Wave *w, const Insn *I)
{
    switch (I->op) {
    case ALWAYS:
        return 1;
    case SCC0:
        return !w->sgpr[SCC];
    case SCC1:
        return w->sgpr[SCC] != 0;
    case VCC_Z:
        return ld64(w->sgpr + VCC) == 0;
    case VCC_NZ:
        return ld64(w->sgpr + VCC) != 0;
    case EXEC_Z:
        return exec_mask(w) == 0;
    case EXEC_NZ:
        return exec_mask(w) != 0;
    default:
        return 0;
    }
}

// The address after s_getpc, s_setpc, s_swappc or s_call
enum { GETPC, SETPC, SWAPPC, CALL };
static u64 pc_relative(Wave *w, const Insn *I, u64 pc)
{
    const u64 next = pc + I->size, target = I->op == SETPC || I->op == SWAPPC ? ld64(w->sgpr + I->s0) : 0;
    if (I->op != SETPC)
        st64(w->sgpr + I->sdst, next);
    if (I->op == GETPC)
        return next;
    return I->op == CALL ? pc + 4 + (i64)I->imm * 4 : target;
}

// buffer_wbl2 and buffer_inv: see workgroup_view.c
static void cache_control(Wave *w, const Insn *I)
{
    if (!w->view)
        return;
    if (I->imm & 1)
        perform_posted(w->view, 0, ~0ull);
    core_view(w->view, I->imm);
}

static void setvskip(Wave *w, const Insn *I)
{
    u64 on = sread(w, I->s0, I->lit) >> (sread(w, I->s1, I->lit) & 31) & 1;
    w->mode = (w->mode & ~(1ull << MODE_VSKIP)) | on << MODE_VSKIP;
}

// ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────────────
static int skipped_by_vskip(int kind)
{
    switch (kind) {
    case K_VALU:
    case K_VOPC:
    case K_VOP3P:
    case K_LANE:
    case K_VMEM:
    case K_DS:
    case K_MFMA:
    case K_CVTS:
    case K_ACC:
        return 1;
    default:
        return 0;
    }
}

// One instruction. *next is the address behind it, changed by what jumps. Returns R_* where the wave cannot go on.
static int step(Wave *w, Insn *I, u64 pc, u64 *next)
{
    switch (I->kind) {
    case K_VALU:
        return vector(w, I, valu);
    case K_VOPC:
        return vector(w, I, vopc);
    case K_VOP3P:
        return vector(w, I, vop3p);
    case K_LANE:
        return vector(w, I, lane_op);
    case K_CVTS:
        return vector(w, I, cvts);
    case K_ACC:
        return vector(w, I, acc_op);
    case K_MFMA:
        return mfma(w, I);
    case K_VMEM:
        return vmem(w, I);
    case K_DS:
        return ds(w, I);
    case K_SALU:
        return salu(w, I);
    case K_SMEM:
        return smem(w, I);
    case K_NOP:
        return 0;
    case K_WAIT:
        retire(w, I->imm);
        return 0;
    case K_CACHE:
        cache_control(w, I);
        return 0;
    case K_IDX:
        gpr_idx(w, I);
        return 0;
    case K_VSKIP:
        setvskip(w, I);
        return 0;
    case K_SETREG:
        setreg(w, I);
        return 0;
    case K_GETREG:
        getreg(w, I);
        return 0;
    case K_BRANCH:
        if (taken(w, I))
            *next = pc + 4 + (i64)I->imm * 4;
        return 0;
    case K_PCREL:
        *next = pc_relative(w, I, pc);
        return 0;
    case K_TRAP:
        return R_TRAP;
    default:
        return R_BADOP;
    }
}

static int stop(Wave *w, u64 pc, int rc)
{
    st64(w->sgpr + PC, pc);
    return rc;
}

static int run(Wave *w, Insn **table, u64 base, u64 size, u64 budget)
{
    for (u64 pc = ld64(w->sgpr + PC), next;; pc = next) {
        if (budget-- == 0)
            return stop(w, pc, R_LIMIT);
        if (pc - base >= size)
            return stop(w, pc, R_BADOP);
        Insn *I = table[(pc - base) >> 2];
        if (!I)
            return stop(w, pc, R_DECODE);
        next = pc + I->size;
        if (w->mode >> MODE_VSKIP & 1 && skipped_by_vskip(I->kind))
            continue;
        int ends = I->kind == K_END || I->kind == K_BARRIER;
        w->pc = pc - base;
        int rc = ends ? 0 : step(w, I, pc, &next);
        if (rc)
            return stop(w, pc, rc);
        I->count++;
        w->icount++;
        if (I->kind == K_BARRIER)
            return stop(w, next, R_BARRIER);
        if (I->kind == K_END) {
            retire(w, 0);
            return R_END;
        }
    }
}

// Run one wave until it ends, waits at a barrier, meets an instruction that is not in `table` yet, or has executed
// `budget` instructions. table[i] is the instruction at base + 4 * i; the code is `size` bytes long.
int core_run(Wave *w, Insn **table, u64 base, u64 size, u64 budget)
{
#if defined(__x86_64__)
    u32 saved = _mm_getcsr();
#endif
    set_float_mode(w);
    int rc = run(w, table, base, size, budget);
#if defined(__x86_64__)
    _mm_setcsr(saved);
#endif
    return rc;
}
