// SALU and SMEM.
#include "lane_math.h"
#include "memory.h"
#include "operands.h"
#include "races.h"

#define OP(name, ...) S_##name,
enum {
#include "scalar.inc"
    S_COUNT
};
#define OP(name, ...) #name,
static const char *const names[] = {
#include "scalar.inc"
};

int core_sop_count(void)
{
    return S_COUNT;
}
const char *core_sop_name(int i)
{
    return names[i];
}

// ── bits that the vector unit has no instruction for ────────────────────────────────────────────────────────────────
static u32 first_from_top64(u64 x)
{
    return x ? (u32)__builtin_clzll(x) : ~0u;
}
static u32 first_from_bottom64(u64 x)
{
    return x ? (u32)__builtin_ctzll(x) : ~0u;
}
static u64 double_each_bit(u32 x)
{
    u64 v = 0;
    for (int i = 0; i < 32; i++)
        v |= (u64)(x >> i & 1) * 3 << 2 * i;
    return v;
}
// The scalar bit field instructions take a width of 7 bits, unlike v_bfe
static u32 sbfe_u32(u32 x, u32 offset, u32 n)
{
    return n >= 32 ? x >> offset : extract_u32(x, offset, n);
}
static u32 sbfe_i32(u32 x, u32 offset, u32 n)
{
    return extract_i32(x, offset, n);
}
static u64 sbfe_u64(u64 x, u32 offset, u32 n)
{
    return n >= 64 ? x >> offset : x >> offset & ((1ull << n) - 1);
}
static u64 sbfe_i64(u64 x, u32 offset, u32 n)
{
    if (n == 0)
        return 0;
    if (n + offset >= 64)
        return (u64)((i64)x >> offset);
    return (u64)((i64)(x << (64 - n - offset)) >> (64 - n));
}

// ── SALU ────────────────────────────────────────────────────────────────────────────────────────────────────────────
typedef union {
    u32 u;
    i32 i;
    u64 U;
    i64 I;
} Scalar;

static Scalar read_scalar(const Wave *w, const Insn *I, int code, int wide)
{
    Scalar S = {.U = 0};
    if (code >= 0)
        S.U = wide ? sread64(w, code, I->lit, 0) : sread(w, code, I->lit);
    return S;
}

static u64 write64(u32 *d, u64 v)
{
    st64(d, v);
    return v;
}

static void save_exec(Wave *w, int sdst, u64 exec)
{
    st64(w->sgpr + sdst, exec_mask(w));
    st64(w->sgpr + EXEC, exec);
    w->sgpr[SCC] = exec != 0;
}

int salu(Wave *w, Insn *I)
{
    const Scalar S0 = read_scalar(w, I, I->s0, I->salu.wide0), S1 = read_scalar(w, I, I->s1, I->salu.wide1);
    const u64 exec = exec_mask(w);
    const i32 K = I->imm;
    u32 *const s = w->sgpr;

#define OLD32 s[I->sdst]
#define OLD64 ld64(s + I->sdst)
#define SCC_SET (s[SCC] != 0)
#define SET_SCC(e) (s[SCC] = (e) ? 1 : 0)
#define SET_EXEC(e) st64(s + EXEC, e)
#define D32(e) (s[I->sdst] = (u32)(e))
#define D64(e) write64(s + I->sdst, e)
#define D32_SCC(e) SET_SCC(D32(e))
#define D64_SCC(e) SET_SCC(D64(e))
#define SAVEEXEC(e) save_exec(w, I->sdst, e)
#define OP(name, ...)                                                                                                  \
    case S_##name: {                                                                                                   \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }
    switch (I->op) {
#include "scalar.inc"
    default:
        return R_BADOP;
    }
    return 0;
}

// ── SMEM ────────────────────────────────────────────────────────────────────────────────────────────────────────────
// s_load and s_buffer_load. The scalar cache is the workgroup's view of memory here too.
int smem(Wave *w, Insn *I)
{
    u64 base = ld64(w->sgpr + I->s0), offset = (i64)I->imm, size = ~0ull;
    if (I->smem.soffset >= 0)
        offset += w->sgpr[I->smem.soffset];
    if (I->smem.is_buffer) {
        base &= 0xffffffffffffull;
        size = w->sgpr[I->s0 + 2];
    }
    u32 t[16];
    for (int i = 0; i < I->smem.dwords; i++) {
        t[i] = 0;                   // behind the end of a buffer
        if (offset + 4 * i + 4 > size)
            continue;
        u64 a = ((base + offset) & ~3ull) + 4 * i;
        if (out_of_range(w, a, 4, 0, FAULT_LOAD))
            return R_FAULT;
        view_read(w->view, a, (u8 *)(t + i), 4);
        races_access(w, RACE_MEMORY, a, 4, RACE_READ, 0);
    }
    memcpy(w->sgpr + I->sdst, t, 4 * I->smem.dwords);
    return 0;
}
