"""One token: route, sort, quantise and zero the output buffer in one launch.

Replaces top-k, sort (2 launches), quantisation with scale scatter and the zeroing of the output.

Grid
  program 0       routes the token and sorts its K pairs
  programs 1 ..   one per slice of 512 columns: quantise the slice, write its scale bytes, zero the slice of the output
  then            riders: the shared expert (`shared_token.py`)
The K pairs of one token are on K experts and open K blocks in turn, so that where its scale bytes go does not depend on
the routing: no program needs another's result, and no hand-over between workgroups costs `buffer_wbl2` and
`buffer_inv` on gfx950. From two tokens on it does depend, and two launches serve (`route_sort_mid.py`).

in   logits fp32|bf16 [1, E], bias fp32|bf16 [E]; x bf16 [1, L]
out  ids, weights [1, K]; Sorted; rows uint8 and scales uint8 (`mx.py`); zeroed [1, L]. Scale bytes of padding rows are
     not written, and AITER's kernels do not let them reach a real row.
"""

import triton
import triton.language as tl

from .front import Front, prepare_slice, slice_groups
from .moe_sort import NO_EXTENSION, SortExtension
from .mx import _GROUP, GROUP, group_scales, groups_padded, load_groups, scale_offset
from .topk import best_experts, by_slot, padded_experts, padded_topk, store_best, warp_size, weights_of


@triton.jit
def _sort_pairs(
    ids, id, weight, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids,
    TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sort the pairs: each opens the block after those of lower ids.

    ids are those of all slots, in every thread; id and weight in thread t those of slot t % TOPK_PADDED.
    """
    thread = tl.arange(0, id.shape[0])
    slot = thread % TOPK_PADDED
    live = slot < TOPK
    lower = (ids[:, None] < id[None, :]) & (tl.arange(0, TOPK_PADDED)[:, None] < TOPK)
    block = tl.sum(lower.to(tl.int32), axis=0)
    tl.store(sorted_expert_ids + block, id, mask=thread < TOPK)
    for first in tl.static_range(0, BLOCK, thread.shape[0] // TOPK_PADDED):
        nth = first + thread // TOPK_PADDED
        row = block * BLOCK + nth
        tl.store(sorted_ids + row, tl.where(nth == 0, slot << 24, TOPK << 24 | 1), mask=live & (nth < BLOCK))
        tl.store(sorted_weights + row, tl.where(nth == 0, weight, 0.0), mask=live & (nth < BLOCK))
    tl.store(num_valid_ids, TOPK * BLOCK)
    tl.store(num_valid_ids + 1, 1)


@triton.jit
def _scatter_scales(
    x, scales, token, first,
    MODE: tl.constexpr, WIDTH: tl.constexpr, GROUPS_PADDED: tl.constexpr, GROUPS: tl.constexpr,
    TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The scale bytes of GROUPS groups where there is one token: in the first row of each of the first K blocks."""
    scale = group_scales(load_groups(x, 0, token, first, WIDTH, GROUPS), MODE)[None, :]
    row, group = tl.arange(0, TOPK_PADDED)[:, None] * BLOCK, first + tl.arange(0, GROUPS)[None, :]
    offset = scale_offset(row, group, GROUPS_PADDED)
    mask = (row < TOPK * BLOCK) & (group < WIDTH // _GROUP)
    tl.store(scales + offset, (scale + offset * 0).to(tl.uint8), mask=mask)


@triton.jit(do_not_specialize_on_alignment=["logits", "bias"])
def _route_sort(
    logits, bias, scaling, x,
    out_ids, out_weights, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, rows, scales, zeroed,
    RIDER: tl.constexpr, rider_args, RIDER_CONSTANTS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr, COLUMNS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr,
    BLOCK: tl.constexpr, MODE: tl.constexpr, WIDTH: tl.constexpr, GROUPS_PADDED: tl.constexpr,
    GROUPS: tl.constexpr, SLICES: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if pid == 0:
        ids, slots = best_experts(logits, 0, bias, pid, NUM_EXPERTS, COLUMNS, TOPK_PADDED, LANES)
        store_best(ids, slots, out_ids, None, None, pid, 1, COLUMNS, TOPK, TOPK_PADDED)
        ids, id = by_slot(ids, slots, TOPK_PADDED)
        thread = tl.arange(0, id.shape[0])
        weight = weights_of(logits, id, thread % TOPK_PADDED < TOPK, scaling, TOPK_PADDED)
        tl.store(out_weights + thread, weight, mask=thread < TOPK)
        _sort_pairs(
            ids, id, weight, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, TOPK, TOPK_PADDED, BLOCK
        )
    elif RIDER is None or pid <= SLICES:
        prepare_slice(x, 0, rows, None, zeroed, pid - 1, MODE, WIDTH, GROUPS)
        if scales is not None:
            first = (pid - 1) * GROUPS
            _scatter_scales(x, scales, pid * 0, first, MODE, WIDTH, GROUPS_PADDED, GROUPS, TOPK, TOPK_PADDED, BLOCK)
    else:
        RIDER(pid - 1 - SLICES, 1, rider_args, RIDER_CONSTANTS)


def route_sort(
    logits, bias, x, out: Front, *, block: int, mode: str, scaling: float = 1.0, beside: SortExtension = NO_EXTENSION
) -> None:
    """Launch for one token into the buffers of `out`. Checks nothing: `plan.py` checks and allocates."""
    k = out.ids.shape[1]
    width = x.shape[1]
    groups = slice_groups(1)
    slices = triton.cdiv(width // GROUP, groups) if out.rows is not None or out.zeroed is not None else 0
    _route_sort[(1 + slices + beside.rider_programs,)](
        logits, bias, float(scaling), x,
        out.ids, out.weights, *out.sorted, out.rows, out.scales, out.zeroed,
        beside.rider, beside.rider_args, beside.rider_constants,
        NUM_EXPERTS=logits.shape[1], COLUMNS=padded_experts(logits.shape[1]),
        TOPK=k, TOPK_PADDED=padded_topk(k), BLOCK=block, MODE=mode,
        WIDTH=width, GROUPS_PADDED=groups_padded(width), GROUPS=groups, SLICES=slices, LANES=warp_size(), num_warps=4,
    )  # fmt: skip
