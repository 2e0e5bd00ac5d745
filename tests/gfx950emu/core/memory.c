// Vector memory: global, flat, scratch and buffer loads, stores and atomics, and loads straight to LDS.
//
// Addresses are the CPU's own. What a load sees and where a store goes is the matter of workgroup_view.c.
#include "memory.h"
#include "numbers.h"
#include "operands.h"
#include "races.h"

enum { GLOBAL, SCRATCH, BUFFER };       // I->mem.space; FLAT is GLOBAL
enum { LOAD, STORE, ATOMIC };           // I->mem.op
// What may become of a lane's access. PARTLY: of a buffer access wider than a dword, the dwords inside the buffer
enum { INACTIVE, INSIDE, OUTSIDE, PARTLY };

// ── atomics ─────────────────────────────────────────────────────────────────────────────────────────────────────────
static u32 add_halves(u64 a, u64 b, int sat)
{
    u32 lo = f2h(h2f(a & 0xffff) + h2f(b & 0xffff), sat);
    return lo | f2h(h2f(a >> 16 & 0xffff) + h2f(b >> 16 & 0xffff), sat) << 16;
}
static u32 add_bf16s(u64 a, u64 b)
{
    u32 lo = f2bf(bf2f(a & 0xffff) + bf2f(b & 0xffff));
    return lo | f2bf(bf2f(a >> 16 & 0xffff) + bf2f(b >> 16 & 0xffff)) << 16;
}

// What memory holds after an operation of n bytes on `o`. cmpswap: v is the new value, v2 the one compared with
u64 atomic_value(int op, u64 o, u64 v, u64 v2, int n, int sat)
{
    int wide = n == 8;
    i64 so = wide ? (i64)o : (i64)(i32)o, sv = wide ? (i64)v : (i64)(i32)v;
    float fo = asf((u32)o), fv = asf((u32)v);
    switch (op) {
    case A_SWAP:
        return v;
    case A_CMPSWAP:
        return o == v2 ? v : o;
    case A_ADD:
        return o + v;
    case A_SUB:
        return o - v;
    case A_RSUB:
        return v - o;
    case A_SMIN:
        return sv < so ? v : o;
    case A_UMIN:
        return v < o ? v : o;
    case A_SMAX:
        return sv > so ? v : o;
    case A_UMAX:
        return v > o ? v : o;
    case A_AND:
        return o & v;
    case A_OR:
        return o | v;
    case A_XOR:
        return o ^ v;
    case A_INC:
        return o >= v ? 0 : o + 1;
    case A_DEC:
        return o == 0 || o > v ? v : o - 1;
    case A_FADD:
        return wide ? asq(asd(o) + asd(v)) : asu(fo + fv);
    case A_FMIN:
        return wide ? asq(dminx(asd(o), asd(v))) : asu(fminx(fo, fv));
    case A_FMAX:
        return wide ? asq(dmaxx(asd(o), asd(v))) : asu(fmaxx(fo, fv));
    case A_PKF16:
        return add_halves(o, v, sat);
    case A_PKBF16:
        return add_bf16s(o, v);
    case A_MSKOR:
        return (o & ~v) | v2;
    case A_WRAP:
        return o >= v ? o - v : o + v2;
    default:
        return o;
    }
}

// ── addresses ───────────────────────────────────────────────────────────────────────────────────────────────────────
typedef struct {
    u64 addr[LANES];
    u8 state[LANES];
    u64 end;                            // of the buffer
} Access;

static int scratch_address(Wave *w, const Insn *I, int l, u64 base, Access *A)
{
    u64 offset = (I->mem.has_vaddr ? w->vgpr[I->s0 * LANES + l] : 0) + base + (i64)I->imm;
    if (offset + I->mem.bytes > w->scratch_stride)
        return fault(w, FAULT_SCRATCH, offset, l, I->mem.bytes);
    A->addr[l] = (u64)w->scratch + l * w->scratch_stride + offset;
    return 0;
}

// base: of saddr, to which a 32-bit vaddr is added; without saddr vaddr has 64 bits
static int flat_address(const Wave *w, const Insn *I, int l, u64 base, Access *A)
{
    const u32 *va = w->vgpr + I->s0 * LANES + l;
    u64 a = I->mem.saddr >= 0 ? base + va[0] : va[0] | (u64)va[LANES] << 32;
    A->addr[l] = a + (i64)I->imm;
    return 0;
}

typedef struct {
    u64 base, records, stride;
    u32 soffset;
    int swizzled;
} Buffer;

static Buffer read_descriptor(const Wave *w, const Insn *I)
{
    const u32 *r = w->sgpr + I->mem.srsrc;
    Buffer b = {r[0] | (u64)(r[1] & 0xffff) << 32, r[2], r[1] >> 16 & 0x3fff, sread(w, I->mem.soffset, 0), r[1] >> 31};
    if (b.base >> 47)
        b.base |= 0xffff000000000000ull;
    return b;
}

static void buffer_address(const Wave *w, const Insn *I, int l, const Buffer *b, Access *A)
{
    const u32 *va = w->vgpr + I->s0 * LANES + l;
    const u64 n = I->mem.bytes, size = b->records > b->soffset ? b->records - b->soffset : 0;
    const int structured = I->mem.idxen && b->stride;   // the range is then one of records, else of bytes
    u64 index = I->mem.idxen ? va[0] : 0, offset = I->mem.offen ? va[I->mem.idxen ? LANES : 0] : 0;
    offset += (u32)I->imm + b->stride * index;
    int wraps = (u32)offset != offset;
    A->addr[l] = b->base + b->soffset + offset;
    if (wraps || (structured ? index >= b->records : offset + n > size))
        A->state[l] = n > 4 && !structured && !wraps && offset + 4 <= size ? PARTLY : OUTSIDE;
}

// How many bytes of a lane's access happen
static int bytes_inside(const Access *A, int l, int n)
{
    if (A->state[l] != PARTLY)
        return A->state[l] == INSIDE ? n : 0;
    int m = (A->end - A->addr[l]) / 4 * 4;
    return m > n ? n : m;
}

static int addresses(Wave *w, const Insn *I, Access *A)
{
    const u64 exec = exec_mask(w);
    const int space = I->mem.space, kind = I->mem.op == LOAD ? FAULT_LOAD : FAULT_STORE;
    Buffer buffer = {0};
    u64 base = 0;
    if (space == BUFFER) {
        buffer = read_descriptor(w, I);
        if (buffer.swizzled)
            return R_BADOP;
    } else if (I->mem.saddr >= 0)
        base = space == SCRATCH ? w->sgpr[I->mem.saddr] : ld64(w->sgpr + I->mem.saddr);
    A->end = buffer.base + buffer.records;
    EACH_LANE {
        A->state[l] = exec >> l & 1 ? INSIDE : INACTIVE;
        if (!A->state[l])
            continue;
        if (space == BUFFER)
            buffer_address(w, I, l, &buffer, A);
        else if (space == SCRATCH ? scratch_address(w, I, l, base, A) : flat_address(w, I, l, base, A))
            return R_FAULT;
        const int n = bytes_inside(A, l, I->mem.bytes);
        if (space != SCRATCH && n && out_of_range(w, A->addr[l], n, l, kind))
            return R_FAULT;
    }
    return 0;
}

// ── accesses ────────────────────────────────────────────────────────────────────────────────────────────────────────
static void read_memory(const Insn *I, u64 a, u8 *t, int n, View *view)
{
    if (n && I->mem.sc1) {
        settle(view, a, n);
        memcpy(t, (void *)a, n);
        follow(view, a, n);
    } else if (n)
        view_read(view, a, t, n);
}

// A lane's bytes go to M0 + offset + lane * size, now or when the load is waited for
static int load_to_lds(Wave *w, const Insn *I, const Access *A, View *view, Pend *p)
{
    const int n = I->mem.bytes, step = n < 4 ? 4 : n;
    const u64 place = (w->sgpr[M0] & 0x3ffff) + (u32)I->imm;
    EACH_LANE {
        if (!A->state[l])
            continue;
        u64 a = place + (u64)l * step;
        u32 t[4] = {0, 0, 0, 0};
        if (out_of_lds(w, a, step, l))
            return R_FAULT;
        const int inside = bytes_inside(A, l, n);
        read_memory(I, A->addr[l], (u8 *)t, inside, view);
        if (I->mem.sext)
            t[0] = n == 1 ? (u32)(i32)(i8)t[0] : (u32)(i32)(i16)t[0];
        races_access(w, RACE_MEMORY, A->addr[l], inside, I->mem.sc1 ? RACE_ATOMIC : RACE_READ, 0);
        races_access(w, RACE_LDS, a, step, RACE_WRITE, t);      // from here on, until it has landed
        if (p) {
            p->lanes |= 1ull << l;
            memcpy(p->data[l], t, step);
        } else
            memcpy(w->lds + a, t, step);
    }
    if (p) {
        p->what = P_LDS;
        p->lbase = place;
        p->step = step;
    }
    return 0;
}

static void load_lane(const Insn *I, u32 *rf, int l, u64 a, int inside, View *view)
{
    u32 t[4] = {0, 0, 0, 0};            // what is outside of the buffer reads as 0
    read_memory(I, a, (u8 *)t, inside, view);
    load_regs(rf, I->dst, l, (u8 *)t, I->mem.bytes, I->mem.sext, I->mem.d16);
}

static void store_lane(Wave *w, const Insn *I, const u32 *rf, int l, u64 a, int inside, View *view, Pend *p)
{
    u32 t[4];
    store_regs(rf, I->s1, l, (u8 *)t, I->mem.bytes, I->mem.d16);
    if (I->mem.space != SCRATCH)
        races_access(w, RACE_MEMORY, a, inside, I->mem.sc1 ? RACE_ATOMIC : RACE_WRITE, t);
    if (inside == I->mem.bytes && I->mem.sc1 && view && p)
        post(w, p, l, a, t, 0, inside, -1);
    else if (inside && I->mem.sc1)
        write_through(view, a, (u8 *)t, inside);
    else if (inside)
        view_write(view, a, (u8 *)t, inside);
}

static void atomic_lane(Wave *w, const Insn *I, u32 *rf, int l, u64 a, int inside, View *view, Pend *p)
{
    const int n = I->mem.bytes;
    u64 old = 0, v = get_value(rf, I->s1, l, n), v2 = 0;
    if (I->mem.atomic == A_CMPSWAP)
        v2 = get_value(rf, I->s1 + n / 4, l, n);
    if (inside && view && p && !I->mem.returns)
        post(w, p, l, a, &v, &v2, n, I->mem.atomic);
    else if (inside)
        old = read_modify_write(w, I->mem.atomic, a, v, v2, n);
    if (I->mem.returns)
        put_value(rf, I->dst, l, n, old);
}

int vmem(Wave *w, Insn *I)
{
    const int is_scratch = I->mem.space == SCRATCH, n = I->mem.bytes;
    View *view = is_scratch ? 0 : w->view;      // scratch is nobody else's
    u32 *rf = I->mem.agpr ? w->acc : w->vgpr;
    Access A;
    int rc = addresses(w, I, &A);
    if (rc)
        return rc;
    if (view && view->nposted)                  // a workgroup's own order at one place
        EACH_LANE
            if (A.state[l])
                perform_posted(view, A.addr[l], A.addr[l] + n);
    Pend *p = issue(w);
    if (I->mem.op == LOAD && I->mem.to_lds)
        return load_to_lds(w, I, &A, view, p);
    EACH_LANE {
        if (!A.state[l])
            continue;
        int inside = bytes_inside(&A, l, n);
        if (!is_scratch && I->mem.op != STORE) {
            int plain = I->mem.op == LOAD && !I->mem.sc1;
            races_access(w, RACE_MEMORY, A.addr[l], inside, plain ? RACE_READ : RACE_ATOMIC, 0);
        }
        if (I->mem.op == LOAD)
            load_lane(I, rf, l, A.addr[l], inside, view);
        else if (I->mem.op == STORE)
            store_lane(w, I, rf, l, A.addr[l], inside, view, p);
        else
            atomic_lane(w, I, rf, l, A.addr[l], A.state[l] == INSIDE, view, p);
    }
    return 0;
}
