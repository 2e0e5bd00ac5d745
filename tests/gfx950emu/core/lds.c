// DS: LDS loads, stores and atomics, the transposed loads, and the lane permutes that go through LDS's crossbar.
#include "memory.h"
#include "operands.h"
#include "races.h"

enum {                                  // I->ds.op
    READ, WRITE, READ2, WRITE2, ATOMIC, BPERMUTE, PERMUTE, SWIZZLE, READ_TRANSPOSED, READ_ADDTID, WRITE_ADDTID
};

static u32 offset_of(const Insn *I)     // the two offset fields as one
{
    return I->ds.offset0 | I->ds.offset1 << 8;
}
static u32 *data_registers(const Wave *w, const Insn *I)
{
    return I->ds.agpr ? w->acc : w->vgpr;
}
static void write_active(const Wave *w, u32 *d, const u32 *v)
{
    const u64 exec = exec_mask(w);
    EACH_LANE
        if (exec >> l & 1)
            d[l] = v[l];
}

// ── permutes: no memory is touched ──────────────────────────────────────────────────────────────────────────────────
// bpermute pulls from the lane that the address names, permute pushes to it; what comes from no active lane is 0
static void permute(Wave *w, const Insn *I)
{
    const u64 exec = exec_mask(w);
    const u32 *va = w->vgpr + I->s0 * LANES, offset = offset_of(I);
    u32 *rf = data_registers(w, I), *d = rf + I->s1 * LANES, t[LANES] = {0};
    EACH_LANE {
        int named = (va[l] + offset) / 4 & 63;
        if (I->ds.op == BPERMUTE && exec >> named & 1)
            t[l] = d[named];
        if (I->ds.op == PERMUTE && exec >> l & 1)
            t[named] = d[l];
    }
    write_active(w, rf + I->dst * LANES, t);
}

static int swizzle(Wave *w, const Insn *I)
{
    const u64 exec = exec_mask(w);
    const u32 mode = offset_of(I), *d = w->vgpr + I->s0 * LANES;
    u32 t[LANES];
    if (mode >= 0xc000)                 // FFT and rotate
        return R_BADOP;
    EACH_LANE {
        int quad = (l & ~3) | (mode >> 2 * (l & 3) & 3);
        u32 and_or = (l & 31 & mode) | (mode >> 5 & 31);
        int masked = (l & 32) | ((and_or ^ mode >> 10) & 31);
        int source = mode & 0x8000 ? quad : masked;
        t[l] = exec >> source & 1 ? d[source] : 0;
    }
    write_active(w, data_registers(w, I) + I->dst * LANES, t);
    return 0;
}

// ── transposed loads ────────────────────────────────────────────────────────────────────────────────────────────────
static u32 get_bits(const u8 *p, int place, int n)
{
    u32 v = 0;
    for (int b = 0; b < n; b++)
        v |= (u32)(p[(place + b) >> 3] >> ((place + b) & 7) & 1) << b;
    return v;
}
static void set_bits(u8 *p, int place, int n, u32 v)    // in p, 0 before
{
    for (int b = 0; b < n; b++)
        p[(place + b) >> 3] |= (v >> b & 1) << ((place + b) & 7);
}

// ds_read_b64_tr_b16 and the like: each 16 lanes load a matrix with rows of 16 elements, and each gets a column
static int read_transposed(Wave *w, const Insn *I)
{
    const u64 exec = exec_mask(w);
    const int n = I->ds.bytes, bits = I->ds.element_bits, per_lane = 8 * n / bits;
    const int lanes_of_row = 16 / per_lane > 0 ? 16 / per_lane : 1;
    u8 loaded[LANES][16] = {{0}};
    EACH_LANE {
        u64 a = (u64)w->vgpr[I->s0 * LANES + l] + offset_of(I);
        if (!(exec >> l & 1))
            continue;
        if (out_of_lds(w, a, n, l))
            return R_FAULT;
        memcpy(loaded[l], w->lds + a, n);
        races_access(w, RACE_LDS, a, n, RACE_READ, 0);
    }
    EACH_LANE {
        u8 out[16] = {0};
        int group = l & ~15, column = l & 15;
        if (!(exec >> l & 1))
            continue;
        for (int row = 0; row < per_lane; row++) {
            int lane = group + row * lanes_of_row + column / per_lane;
            u32 v = get_bits(loaded[lane], column % per_lane * bits, bits);
            set_bits(out, row * bits, bits, v);
        }
        load_regs(data_registers(w, I), I->dst, l, out, n, 0, D16_NONE);
    }
    return 0;
}

// ── loads, stores, atomics ──────────────────────────────────────────────────────────────────────────────────────────
static u64 address(const Wave *w, const Insn *I, int l)
{
    switch (I->ds.op) {
    case READ_ADDTID:
    case WRITE_ADDTID:
        return (u64)(w->sgpr[M0] & 0xffff) + offset_of(I) + 4 * l;
    case READ2:
    case WRITE2:                        // two offsets, in units: added by two_places
        return w->vgpr[I->s0 * LANES + l];
    default:
        return (u64)w->vgpr[I->s0 * LANES + l] + offset_of(I);
    }
}

static int two_places(Wave *w, const Insn *I, int l, u64 a)
{
    const int n = I->ds.bytes, data1 = I->dst + n / 4;
    u64 a0 = a + (u64)I->ds.offset0 * I->ds.unit, a1 = a + (u64)I->ds.offset1 * I->ds.unit;
    u32 *rf = data_registers(w, I);
    if (out_of_lds(w, a0, n, l) || out_of_lds(w, a1, n, l))
        return R_FAULT;
    if (I->ds.op == READ2) {
        load_regs(rf, I->dst, l, w->lds + a0, n, 0, D16_NONE);
        load_regs(rf, data1, l, w->lds + a1, n, 0, D16_NONE);
        races_access(w, RACE_LDS, a0, n, RACE_READ, 0);
        races_access(w, RACE_LDS, a1, n, RACE_READ, 0);
    } else {
        for (int i = 0; i < n / 4; i++) {       // where the two places overlap, the second one's words win
            memcpy(w->lds + a0 + 4 * i, rf + (I->s1 + i) * LANES + l, 4);
            memcpy(w->lds + a1 + 4 * i, rf + (I->s2 + i) * LANES + l, 4);
        }
        races_access(w, RACE_LDS, a0, n, RACE_WRITE, w->lds + a0);
        races_access(w, RACE_LDS, a1, n, RACE_WRITE, w->lds + a1);
    }
    return 0;
}

static void atomic(Wave *w, const Insn *I, int l, u64 a)
{
    const int n = I->ds.bytes, compares = I->ds.atomic == A_CMPSWAP;
    u32 *rf = data_registers(w, I);
    u64 data0 = get_value(rf, I->s1, l, n), data1 = get_value(rf, I->s2, l, n), old = 0;
    memcpy(&old, w->lds + a, n);
    // of a compare and swap, data0 is what is compared, unlike in memory
    u64 r = atomic_value(I->ds.atomic, old, compares ? data1 : data0, compares ? data0 : data1, n, f16_saturates(w));
    memcpy(w->lds + a, &r, n);
    if (I->ds.returns)
        put_value(rf, I->dst, l, n, old);
}

static int one_lane(Wave *w, const Insn *I, int l)
{
    const u64 a = address(w, I, l);
    u32 *rf = data_registers(w, I);
    if (I->ds.op == READ2 || I->ds.op == WRITE2)
        return two_places(w, I, l, a);
    if (out_of_lds(w, a, I->ds.bytes, l))
        return R_FAULT;
    switch (I->ds.op) {
    case READ:
    case READ_ADDTID:
        load_regs(rf, I->dst, l, w->lds + a, I->ds.bytes, I->ds.sext, I->ds.d16);
        races_access(w, RACE_LDS, a, I->ds.bytes, RACE_READ, 0);
        return 0;
    case WRITE:
    case WRITE_ADDTID:
        store_regs(rf, I->s1, l, w->lds + a, I->ds.bytes, I->ds.d16);
        races_access(w, RACE_LDS, a, I->ds.bytes, RACE_WRITE, w->lds + a);
        return 0;
    case ATOMIC:
        atomic(w, I, l, a);
        races_access(w, RACE_LDS, a, I->ds.bytes, RACE_ATOMIC, 0);
        return 0;
    default:
        return R_BADOP;
    }
}

int ds(Wave *w, Insn *I)
{
    const u64 exec = exec_mask(w);
    switch (I->ds.op) {
    case BPERMUTE:
    case PERMUTE:
        permute(w, I);
        return 0;
    case SWIZZLE:
        return swizzle(w, I);
    case READ_TRANSPOSED:
        return read_transposed(w, I);
    }
    // A load may overwrite its own addresses, but each lane reads only its own
    EACH_LANE {
        int rc = exec >> l & 1 ? one_lane(w, I, l) : 0;
        if (rc)
            return rc;
    }
    return 0;
}
