// What memory.c, lds.c, scalar.c and workgroup_view.c have in common: checks, atomic operations, a workgroup's view.
#pragma once
#include "core.h"

// The memory of the arguments is all that a kernel may touch; notes the fault and returns 1 elsewhere
static inline int out_of_range(Wave *w, u64 a, u32 n, int lane, int kind)
{
    if (!w->nranges)
        return 0;
    for (u64 i = 0; i < w->nranges; i++)
        if (a >= w->ranges[i].lo && a + n <= w->ranges[i].hi)
            return 0;
    fault(w, kind, a, lane, n);
    return 1;
}
static inline int out_of_lds(Wave *w, u64 a, int n, int lane)
{
    if (a + n <= w->lds_size)
        return 0;
    fault(w, FAULT_LDS, a, lane, n);
    return 1;
}

// ── registers ───────────────────────────────────────────────────────────────────────────────────────────────────────
enum { D16_NONE, D16_LOW, D16_HIGH };   // a 16-bit value: alone, or in one half of a register whose other half stays

// n loaded bytes into the registers of lane l
static inline void load_regs(u32 *rf, int reg, int l, const u8 *p, int n, int sext, int d16)
{
    u32 v = 0, *d = rf + reg * LANES + l;
    if (n >= 4) {
        for (int i = 0; i < n / 4; i++)
            memcpy(d + i * LANES, p + 4 * i, 4);
        return;
    }
    memcpy(&v, p, n);
    if (sext)
        v = n == 1 ? (u32)(i32)(i8)v : (u32)(i32)(i16)v;
    if (d16 == D16_LOW)
        v = (*d & 0xffff0000) | (v & 0xffff);
    else if (d16 == D16_HIGH)
        v = (*d & 0xffff) | v << 16;
    *d = v;
}
// The n bytes that lane l stores
static inline void store_regs(const u32 *rf, int reg, int l, u8 *p, int n, int d16)
{
    const u32 *s = rf + reg * LANES + l;
    if (n >= 4) {
        for (int i = 0; i < n / 4; i++)
            memcpy(p + 4 * i, s + i * LANES, 4);
        return;
    }
    u32 v = *s >> (d16 == D16_HIGH ? 16 : 0);
    memcpy(p, &v, n);
}
// A value of 4 or 8 bytes
static inline u64 get_value(const u32 *rf, int reg, int l, int n)
{
    u64 v = rf[reg * LANES + l];
    return n == 8 ? v | (u64)rf[(reg + 1) * LANES + l] << 32 : v;
}
static inline void put_value(u32 *rf, int reg, int l, int n, u64 v)
{
    rf[reg * LANES + l] = (u32)v;
    if (n == 8)
        rf[(reg + 1) * LANES + l] = (u32)(v >> 32);
}

// ── atomics (memory.c) ──────────────────────────────────────────────────────────────────────────────────────────────
enum {
    A_SWAP, A_CMPSWAP, A_ADD, A_SUB, A_RSUB, A_SMIN, A_UMIN, A_SMAX, A_UMAX, A_AND, A_OR, A_XOR, A_INC, A_DEC, A_FADD,
    A_FMIN, A_FMAX, A_PKF16, A_PKBF16, A_MSKOR, A_WRAP,
};
u64 atomic_value(int op, u64 old, u64 v, u64 v2, int n, int sat);

// ── a workgroup's view of memory (workgroup_view.c); v == NULL: one memory that all see at once ─────────────────────
void view_read(View *v, u64 a, u8 *t, int n);
void view_write(View *v, u64 a, const u8 *t, int n);
void settle(View *v, u64 a, int n);
void follow(View *v, u64 a, int n);
void write_through(View *v, u64 a, const u8 *t, int n);
u64 read_modify_write(Wave *w, int op, u64 a, u64 v, u64 v2, int n);

Pend *issue(Wave *w);
void post(Wave *w, Pend *p, int l, u64 a, const void *v, const void *v2, int n, int op);
void perform_posted(View *v, u64 lo, u64 hi);
void retire(Wave *w, u64 keep);
void core_view(View *v, int what);
