"""Small M: route, sort, quantise and zero the output buffer in one launch.

Replaces top-k, sort (2 launches), quantisation with scale scatter and the zeroing of the output.

Grid
  program 0        routes all TOKENS (1, 2, 4 or 8) tokens, sorts their at most 128 pairs by counting, and scatters
                   the scale bytes, for which it computes the group maxima of the rows a second time
  programs 1 ..    one per token and slice of 512 columns: quantise the slice, zero the same slice of the output
Only program 0 depends on the routing and no program needs another's result: no hand-over between workgroups, so
nothing of `buffer_wbl2` and `buffer_inv` on gfx950. Reading M rows twice (57 KB at M=8) is what that costs. A single
token's pairs are on K experts and open K blocks in turn, so that where its scale bytes go does not depend on the
routing either: the slices' programs write them.

in   logits fp32|bf16 [M, E], bias fp32|bf16 [E]; x bf16 [M, L]; row strides any
out  ids, weights [M, K]; Sorted; rows uint8 and scales uint8 (`mx.py`); zeroed [M, L]. Scale bytes of padding rows are
     not written, and AITER's kernels do not let them reach a real row.

Sorting: a pair's rank among the pairs of its expert is the count of earlier such pairs; its expert's block is the count
of experts below that have a first pair. With at most 8 tokens no expert fills more than one block.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .moe_sort import Sorted
from .mx import _GROUP, GROUP, group_scales, groups_padded, load_groups, quantise_slice, scale_offset
from .topk import padded_topk, route_tokens, store_routes, warp_size

MAX_TOKENS = 8
MAX_PAIRS = 128  # with both sizes rounded up to powers of two; 256 against each other spill on gfx950
SLICE_GROUPS = 16  # groups per quantising program: 512 columns; L = 3584 is 7 of them


@triton.jit
def _by_slot(value, slots, TOKENS: tl.constexpr, TOPK_PADDED: tl.constexpr):
    """int32 [TOKENS * candidates] to [TOKENS, TOPK_PADDED]: each slot takes the one candidate that holds it."""
    CANDIDATES: tl.constexpr = value.shape[0] // TOKENS
    value, slots = tl.reshape(value, (TOKENS, CANDIDATES)), tl.reshape(slots, (TOKENS, CANDIDATES))
    held = slots[:, :, None] == tl.arange(0, TOPK_PADDED)[None, None, :]
    return tl.sum(tl.where(held, value[:, :, None], 0), axis=1)


@triton.jit
def _sort_pairs(
    ids, weights, num_tokens, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids,
    TOKENS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sort pairs [TOKENS, TOPK_PADDED]; returns in that shape each pair's sorted row and whether it is one at all."""
    PAIRS: tl.constexpr = TOKENS * TOPK_PADDED
    token, slot = tl.arange(0, TOKENS)[:, None], tl.arange(0, TOPK_PADDED)[None, :]
    live = (token < num_tokens) & (slot < TOPK)
    expert = tl.reshape(tl.where(live, ids, -1), (PAIRS,))
    pair = tl.arange(0, PAIRS)
    same = (expert[None, :] == expert[:, None]).to(tl.int32)
    rank = tl.sum(tl.where(pair[None, :] < pair[:, None], same, 0), axis=1)
    count = tl.sum(same, axis=1)
    opens = (expert >= 0) & (rank == 0)
    below = opens[None, :] & (expert[None, :] < expert[:, None])
    block = tl.sum(below.to(tl.int32), axis=1)
    row = block * BLOCK + rank

    entry = tl.reshape((slot << 24) | token, (PAIRS,))
    tl.store(sorted_ids + row, entry, mask=expert >= 0)
    tl.store(sorted_weights + row, tl.reshape(weights, (PAIRS,)), mask=expert >= 0)
    tl.store(sorted_expert_ids + block, expert, mask=opens)
    nth = tl.arange(0, BLOCK)[None, :]
    padding = block[:, None] * BLOCK + nth
    padded = opens[:, None] & (nth >= count[:, None])
    tl.store(sorted_ids + padding, (TOPK << 24) | num_tokens + nth * 0 + block[:, None] * 0, mask=padded)
    tl.store(sorted_weights + padding, 0.0, mask=padded)
    tl.store(num_valid_ids, tl.sum(opens.to(tl.int32)) * BLOCK)
    tl.store(num_valid_ids + 1, num_tokens)
    return tl.reshape(row, (TOKENS, TOPK_PADDED)), live


@triton.jit
def _scatter_scales(
    x, row_stride, scales, row, live, num_tokens,
    MODE: tl.constexpr, WIDTH: tl.constexpr, GROUPS_PADDED: tl.constexpr, TOKENS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Compute every token's scales again and write them to each of its sorted rows, GROUPS groups at a time."""
    for first in range(0, WIDTH // _GROUP, GROUPS):
        pair = tl.arange(0, TOKENS * GROUPS)
        token, group = pair // GROUPS, first + pair % GROUPS
        column = group[:, None] * _GROUP + tl.arange(0, _GROUP)[None, :]
        inside = (token < num_tokens) & (group < WIDTH // _GROUP)
        value = tl.load(x + token[:, None].to(tl.int64) * row_stride + column, mask=inside[:, None], other=0.0)
        scale = tl.reshape(group_scales(value.to(tl.float32), MODE), (TOKENS, 1, GROUPS))
        group = (first + tl.arange(0, GROUPS))[None, None, :]
        offset = scale_offset(row[:, :, None], group, GROUPS_PADDED)
        tl.store(scales + offset, (scale + offset * 0).to(tl.uint8), mask=live[:, :, None] & (group < WIDTH // _GROUP))


@triton.jit
def _scales_of_one(
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


@triton.jit
def prepare_slice(
    x, row_stride, rows, row_scales, zeroed, index,
    MODE: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """What does not depend on routing, for slice `index` of all tokens' slices: quantise it, zero it in the output."""
    SLICES: tl.constexpr = (WIDTH // _GROUP + GROUPS - 1) // GROUPS
    token, first = index // SLICES, index % SLICES * GROUPS
    if zeroed is not None:
        column = first * _GROUP + tl.arange(0, GROUPS * _GROUP)
        zero = tl.zeros((GROUPS * _GROUP,), zeroed.dtype.element_ty)
        tl.store(zeroed + token.to(tl.int64) * WIDTH + column, zero, mask=column < WIDTH)
    if rows is not None:
        quantise_slice(x, row_stride, rows, row_scales, token, first, MODE, WIDTH, GROUPS)


@triton.jit(
    do_not_specialize=["num_tokens", "logits_stride"], do_not_specialize_on_alignment=["logits", "bias"]
)  # fmt: skip
def _route_sort(
    logits, logits_stride, bias, scaling, x, x_stride, num_tokens,
    out_ids, out_weights, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, rows, scales, zeroed,
    NUM_EXPERTS: tl.constexpr, COLUMNS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr,
    BLOCK: tl.constexpr, MODE: tl.constexpr, WIDTH: tl.constexpr, GROUPS_PADDED: tl.constexpr,
    TOKENS: tl.constexpr, GROUPS: tl.constexpr, SCATTER_GROUPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if pid == 0:
        ids, weights, slots = route_tokens(
            logits, logits_stride, bias, 0, num_tokens, scaling,
            TOKENS, NUM_EXPERTS, COLUMNS, TOPK, TOPK_PADDED, LANES,
        )  # fmt: skip
        store_routes(ids, weights, slots, out_ids, out_weights, 0, num_tokens, TOKENS, TOPK)
        row, live = _sort_pairs(
            _by_slot(ids, slots, TOKENS, TOPK_PADDED),
            _by_slot(weights.to(tl.int32, bitcast=True), slots, TOKENS, TOPK_PADDED).to(tl.float32, bitcast=True),
            num_tokens,
            sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, TOKENS, TOPK, TOPK_PADDED, BLOCK,
        )  # fmt: skip
        if scales is not None and TOKENS > 1:
            _scatter_scales(
                x, x_stride, scales, row, live, num_tokens, MODE, WIDTH, GROUPS_PADDED, TOKENS, SCATTER_GROUPS
            )
    else:
        prepare_slice(x, x_stride, rows, None, zeroed, pid - 1, MODE, WIDTH, GROUPS)
        if scales is not None and TOKENS == 1:
            first = (pid - 1) * GROUPS
            _scales_of_one(x, scales, pid * 0, first, MODE, WIDTH, GROUPS_PADDED, GROUPS, TOPK, TOPK_PADDED, BLOCK)


class Front(NamedTuple):
    """What the expert GEMMs take. `rows` and `scales` are None in mode none, where stage 1 reads x itself."""

    ids: torch.Tensor  # int32 [M, K]
    weights: torch.Tensor  # fp32 [M, K]
    sorted: Sorted
    masks: torch.Tensor  # int32 [M, 32] and
    row_scales: torch.Tensor | None  # uint8 [M, L/32]: what the first of two launches hands the second
    rows: torch.Tensor | None  # uint8 [M, L] (e4m3fn) or [M, L/2] (e2m1 pairs)
    scales: torch.Tensor | None  # e8m0 uint8 [ceil32(sorted rows), ceil8(L/32)], bytes at `mx.scale_offset`
    zeroed: torch.Tensor | None  # [M, L], what stage 2 accumulates into


def serves(num_tokens: int, k: int) -> bool:
    """Whether one launch takes a batch of this size."""
    return 1 <= num_tokens <= MAX_TOKENS and triton.next_power_of_2(num_tokens) * padded_topk(k) <= MAX_PAIRS


def row_stride(x: torch.Tensor) -> int:
    """Of one row torch may call the stride anything, and each divisibility of it would compile a kernel of its own."""
    return x.stride(0) if len(x) > 1 else x.shape[1]


def route_sort(logits, bias, x, out: Front, *, block: int, mode: str, scaling: float = 1.0) -> None:
    """Launch into the buffers of `out`, for a batch that `serves`. Checks nothing: `plan.py` checks and allocates."""
    m, k = out.ids.shape
    tokens = triton.next_power_of_2(m)
    width = x.shape[1]
    slices = triton.cdiv(width // GROUP, SLICE_GROUPS) if out.rows is not None or out.zeroed is not None else 0
    _route_sort[(1 + m * slices,)](
        logits, logits.stride(0), bias, float(scaling), x, row_stride(x), m,
        out.ids, out.weights, *out.sorted, out.rows, out.scales, out.zeroed,
        NUM_EXPERTS=logits.shape[1], COLUMNS=triton.next_power_of_2(logits.shape[1]),
        TOPK=k, TOPK_PADDED=padded_topk(k), BLOCK=block, MODE=mode,
        WIDTH=width, GROUPS_PADDED=groups_padded(width),
        TOKENS=tokens, GROUPS=SLICE_GROUPS, SCATTER_GROUPS=min(128, 256 // tokens), LANES=warp_size(),
        num_warps=min(4 * tokens, 16),
    )  # fmt: skip
