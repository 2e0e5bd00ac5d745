// Moves across lanes (v_readlane and its kin, the permlane swaps) and between VGPRs and AGPRs.
#include "operands.h"

// src0 from one lane of a VGPR; a scalar is the same in all of them
static u32 read_lane(const Wave *w, const Insn *I, int lane)
{
    return I->s0 >= VGPR ? vgpr(w, I->s0)[lane] : sread(w, I->s0, I->lit);
}

// Rows (halves) of src0 and of vdst change places: the even ones of src0 with the odd ones of vdst. An inactive lane
// keeps its value; its partner gets that value (fetch_inactive), or 0 (bound_ctrl), or keeps its own too.
static void permlane_swap(Wave *w, const Insn *I, int row)
{
    const u64 exec = exec_mask(w);
    const int fetch = I->lane.fetch_inactive, write = fetch || I->lane.bound_ctrl;
    u32 *src = w->vgpr + (I->s0 - VGPR) * LANES, *dst = w->vgpr + I->dst * LANES;
    EACH_LANE {
        if (l & row)
            continue;
        int other = l + row, src_active = exec >> l & 1, dst_active = exec >> other & 1;
        u32 a = src[l], b = dst[other];
        if (src_active && (dst_active || write))
            src[l] = dst_active || fetch ? b : 0;
        if (dst_active && (src_active || write))
            dst[other] = src_active || fetch ? a : 0;
    }
}

static void swap(Wave *w, const Insn *I)
{
    const u64 exec = exec_mask(w);
    u32 *src = w->vgpr + (I->s0 - VGPR) * LANES, *dst = w->vgpr + I->dst * LANES;
    EACH_LANE {
        if (!(exec >> l & 1))
            continue;
        u32 t = src[l];
        src[l] = dst[l];
        dst[l] = t;
    }
}

int lane_op(Wave *w, Insn *I)
{
    const u64 exec = exec_mask(w);
    switch (I->op) {
    case L_READFIRST:               // of the first active lane, of lane 0 when there is none
        w->sgpr[I->dst] = read_lane(w, I, exec ? __builtin_ctzll(exec) : 0);
        return 0;
    case L_READ:
        w->sgpr[I->dst] = read_lane(w, I, sread(w, I->s1, I->lit) & 63);
        return 0;
    case L_WRITE:
        w->vgpr[I->dst * LANES + (sread(w, I->s1, I->lit) & 63)] = sread(w, I->s0, I->lit);
        return 0;
    case L_SWAP16:
        permlane_swap(w, I, 16);
        return 0;
    case L_SWAP32:
        permlane_swap(w, I, 32);
        return 0;
    case L_SWAP:
        swap(w, I);
        return 0;
    default:
        return R_BADOP;
    }
}

enum { ACC_READ, ACC_WRITE, ACC_MOVE };     // I->acc.move: a VGPR from an AGPR, an AGPR from a source, from an AGPR
int acc_op(Wave *w, Insn *I)
{
    const u64 exec = exec_mask(w);
    u32 t[LANES];
    if (I->acc.move == ACC_WRITE)
        fetch32(w, I->s0, I->lit, 'u', t);
    else
        memcpy(t, w->acc + (I->s0 & 255) * LANES, sizeof t);
    u32 *d = (I->acc.move == ACC_READ ? w->vgpr : w->acc) + I->dst * LANES;
    EACH_LANE
        if (exec >> l & 1)
            d[l] = t[l];
    return 0;
}
