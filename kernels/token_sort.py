"""The sort by token: the second of two launches, whose programs find the rows of their own tokens' pairs by themselves.

Replaces a sort by expert (as `moe_sort._sort`, in which each of 112 programs walks all tokens), the scatter of scale
bytes to sorted rows, and the last step of the router, the weights: their loads and arithmetic fit beside the counting
here, where launch 1 would wait for them.

Grid
  program p   EACH tokens: their weights; the sorted rows of their pairs: ids, weights, a copy of the token's scales to
              each; and for each expert that no earlier token chose, the expert ids of its blocks and the padding rows
              behind its pairs
  program 0   also num_valid_ids

in   logits fp32|bf16 [M, E]; ids [M, K]; masks [M, 32] (`moe_sort.py`) and the same across, columns [32, M];
     row_scales [M, L/32], plain, or None
out  weights [M, K]; Sorted, bit for bit what `moe_sort` makes of these; scales at `mx.scale_offset` of each pair's row.
     No byte more is written, so none of a padding row's scales.

Of all masks a program needs no more than
  rank    earlier tokens whose mask has the expert's bit: its place among the expert's pairs
  count   all tokens whose mask has it
  block   blocks of the experts below (`block_counts.py`)
No program waits for another's result and nothing is accumulated in memory. Pair k of a program belongs to warp
k % WARPS from its rank to its last scale byte; up to 32 tokens no warp waits for another either, but for program 0's
num_valid_ids.

Tried, of 2 to 512 tokens, us of this launch on an H200 (graph replay, MXFP8, block 32; an empty kernel takes 0.9)
  by expert, each of 112 programs walks all tokens      4.4 to 6.6, 13.4 at 256     lost to 256
  every warp counts all tokens, at 128                  6.2, with a share each 4.7  kept the share above 32
  rank from the rows of the masks, at 256               7.7, from the columns 7.3   kept the columns
  two tokens a program, at 256 / at 512                 7.7 / 13.9                  kept at 512: four are 13.5 but spill
  16 warps, at 256 / at 512                             11.2 / 15.0                 lost
  weights in launch 1                                   1.1 more there, 0.1 less here   lost
All in benchmarks/results/h200-variants.csv. Up to 16 tokens have a specialisation of their own, in which 16-row blocks
need no counts either.

Loads and stores are one-dimensional, [registers * warps * lanes], and take their shape afterwards: Triton 3.6 deals
lanes along the first axis of a scattered access that has several. Its pass for wide accesses would move lanes, too;
where addresses are consecutive it is kept off by not telling it what they are aligned to.
"""

import torch
import triton
import triton.language as tl

from . import checks
from .block_counts import ALONE, any_token, blocks_of, count_blocks
from .moe_sort import _WORDS, NO_EXTENSION, Sorted, SortExtension
from .mx import scale_offset
from .topk import padded_topk, warp_size, weights_of

# tokens up to, warps, tokens of a program
_BUCKETS = ((16, 4, 1), (32, 4, 1), (128, 4, 1), (256, 8, 1), (checks.MAX_TOKENS, 8, 2))
FIRST_TOKENS = (1, *(limit + 1 for limit, _, _ in _BUCKETS[:-1]))  # from one to the next nothing new is compiled


@triton.jit
def _count_tokens(
    columns, id, token, num_tokens,
    PAIRS: tl.constexpr, TOKENS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """int32 [PAIRS * LANES], to be summed over the lanes: `rank << 10 | count` of the pair of expert id and token."""
    lane = tl.arange(0, PAIRS * LANES) % LANES
    seen = tl.zeros_like(id)
    for first in tl.static_range(0, TOKENS, LANES):
        other = first + lane
        word = tl.load(columns + (id >> 5) * num_tokens + other, mask=other < num_tokens, other=0)
        seen += ((word >> (id & 31)) & 1) * tl.where(other < token, 1025, 1)
    return seen


@triton.jit
def _weigh(
    logits, row_stride, ids, weights, scaling, first_token, num_tokens,
    TOPK: tl.constexpr, PAIRS: tl.constexpr, EACH: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The weights of all pairs of a program, computed by every warp and written by the first.

    Returned are those of each warp's own pairs, fp32 [PAIRS / WARPS, WARPS * LANES], to be summed over the lanes: one
    lane holds the weight, the others 0.
    """
    REGISTERS: tl.constexpr = triton.cdiv(PAIRS, LANES)
    PER_WARP: tl.constexpr = PAIRS // WARPS
    SLOTS: tl.constexpr = PAIRS // EACH
    thread = tl.arange(0, REGISTERS * WARPS * LANES)
    pair = (thread // (WARPS * LANES) * LANES + thread % LANES) % PAIRS
    token, slot = first_token + pair // SLOTS, pair % SLOTS
    mask = (slot < TOPK) & (token < num_tokens)
    id = tl.load(ids + token * TOPK + slot, mask=mask, other=0)
    weight = weights_of(logits, token.to(tl.int64) * row_stride + id, mask, scaling, SLOTS)
    own = thread // LANES % WARPS == 0
    tl.store(weights + token * TOPK + slot, weight, mask=mask & own & (thread % LANES < PAIRS))
    nth = tl.arange(0, PER_WARP)[:, None]
    mine = (pair[None, :] == nth * WARPS + (thread // LANES % WARPS)[None, :]) & (thread % LANES < PAIRS)[None, :]
    weight = tl.reshape(tl.where(mine, weight[None, :], 0.0), (PER_WARP, REGISTERS, WARPS * LANES))
    return tl.sum(weight, axis=1)


@triton.jit
def _write_rows(
    sorted_ids, sorted_weights, sorted_expert_ids, num_tokens, id, token, slot, live, weight, block, rank, count,
    TOPK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each pair's row; of an expert's first pair also the expert ids of its blocks and their padding.

    All [pairs, WARPS, LANES], but weight, block, rank and count [pairs, WARPS, 1].
    """
    LANES: tl.constexpr = id.shape[2]
    SIZE: tl.constexpr = id.shape[0] * id.shape[1] * LANES
    last = (count - 1) // BLOCK  # the expert's only block that has padding
    for first in tl.static_range(0, BLOCK, LANES):
        # one store for both: the pair takes its rank's lane, which is no padding's if the pair is the first
        nth = first + tl.arange(0, LANES)[None, None, :]
        own = nth == rank % BLOCK
        padding = last * BLOCK + nth
        place = block * BLOCK + tl.where(own, rank, padding)
        mask = live & (nth < BLOCK) & (own | (rank == 0) & (padding >= count))
        place, mask = tl.reshape(place, (SIZE,)), tl.reshape(mask, (SIZE,))
        entry = tl.where(own, slot << 24 | token, TOPK << 24 | num_tokens)
        tl.store(sorted_ids + place, tl.reshape(entry, (SIZE,)), mask=mask)
        tl.store(sorted_weights + place, tl.reshape(tl.where(own, weight, 0.0), (SIZE,)), mask=mask)
    nth = tl.arange(0, LANES)[None, None, :]
    mask = tl.reshape(live & (rank == 0) & (nth <= last), (SIZE,))
    tl.store(sorted_expert_ids + tl.reshape(block + nth, (SIZE,)), tl.reshape(id, (SIZE,)), mask=mask)


@triton.jit
def _scatter_scales(scales, byte, group, row, live, GROUPS: tl.constexpr, GROUPS_PADDED: tl.constexpr):
    """A copy of each token's scale bytes to its pairs' rows; `byte` and `group` are [EACH, 1, PARTS, WARPS, LANES]."""
    EACH: tl.constexpr = byte.shape[0]
    PAIRS: tl.constexpr = live.shape[0] // EACH
    SHAPE: tl.constexpr = (EACH, PAIRS, byte.shape[2], byte.shape[3], byte.shape[4])
    SIZE: tl.constexpr = EACH * PAIRS * byte.shape[2] * byte.shape[3] * byte.shape[4]
    row = tl.reshape(tl.broadcast_to(row, live.shape), (EACH, PAIRS, 1, byte.shape[3], byte.shape[4]))
    live = tl.reshape(live, (EACH, PAIRS, 1, byte.shape[3], byte.shape[4]))
    offset = tl.broadcast_to(scale_offset(row, group, GROUPS_PADDED), SHAPE)
    mask = tl.broadcast_to(live & (group < GROUPS), SHAPE)
    byte = tl.broadcast_to(byte, SHAPE)
    tl.store(scales + tl.reshape(offset, (SIZE,)), tl.reshape(byte, (SIZE,)), mask=tl.reshape(mask, (SIZE,)))


@triton.jit
def _sort_tokens(
    first_token, logits, row_stride, scaling, ids, weights, masks, columns, row_scales,
    sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, scales, num_tokens,
    TOPK: tl.constexpr, PAIRS: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr,
    GROUPS: tl.constexpr, GROUPS_PADDED: tl.constexpr,
    TOKENS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    PER_WARP: tl.constexpr = PAIRS // WARPS
    SLOTS: tl.constexpr = PAIRS // EACH
    thread = tl.arange(0, PAIRS * LANES)
    token, slot = first_token + thread // LANES // SLOTS, thread // LANES % SLOTS
    live = (slot < TOPK) & (token < num_tokens)
    id = tl.load(ids + token * TOPK + slot, mask=live, other=0)
    if row_scales is not None:
        PARTS: tl.constexpr = triton.cdiv(triton.next_power_of_2(GROUPS), LANES)
        line = tl.arange(0, EACH * PARTS * WARPS * LANES)
        group = line // (WARPS * LANES) % PARTS * LANES + line % LANES
        owner = first_token + line // (PARTS * WARPS * LANES)
        byte = tl.load(row_scales + owner * GROUPS + group, mask=(group < GROUPS) & (owner < num_tokens))

    # experts of this lane's word that are below the pair's
    lower = tl.reshape(id - thread % LANES * 32, (PER_WARP, WARPS * LANES))
    chosen = tl.where(lower >= 32, -1, (1 << (tl.maximum(lower, 0) & 31)) - 1)
    if LANES > _WORDS:
        chosen = tl.where(tl.arange(0, WARPS * LANES)[None, :] % LANES < _WORDS, chosen, 0)
    # what loads by id comes first: the reduction of `count_blocks` has barriers that no load is moved across
    sums = tl.reshape(_count_tokens(columns, id, token, num_tokens, PAIRS, TOKENS, LANES), (PER_WARP, WARPS * LANES))
    weight = _weigh(logits, row_stride, ids, weights, scaling, first_token, num_tokens, TOPK, PAIRS, EACH, WARPS, LANES)
    if TOKENS <= BLOCK and TOKENS <= ALONE:
        blocks = (any_token(masks, num_tokens, TOKENS, WARPS, LANES),)
    else:
        blocks = count_blocks(masks, num_tokens, BLOCK, TOKENS, WARPS, LANES)
    sums += blocks_of(blocks, chosen) << 20  # three sums in one: rank < 512, count <= 512, block < 2048 (`max_blocks`)
    weight = tl.sum(tl.reshape(weight, (PER_WARP, WARPS, LANES)), axis=2, keep_dims=True)
    sums = tl.sum(tl.reshape(sums, (PER_WARP, WARPS, LANES)), axis=2, keep_dims=True)
    block, rank, count = sums >> 20, (sums >> 10) & 1023, sums & 1023
    if first_token == 0:
        total = tl.reshape(blocks_of(blocks, tl.full((1, 1), -1, tl.int32)), (WARPS * LANES // _WORDS, _WORDS))
        total = tl.sum(total, axis=1)  # all the same
        tl.store(num_valid_ids + total * 0, total * BLOCK)
        tl.store(num_valid_ids + 1, num_tokens)
    id, token = tl.reshape(id, (PER_WARP, WARPS, LANES)), tl.reshape(token, (PER_WARP, WARPS, LANES))
    slot, live = tl.reshape(slot, (PER_WARP, WARPS, LANES)), tl.reshape(live, (PER_WARP, WARPS, LANES))
    _write_rows(
        sorted_ids, sorted_weights, sorted_expert_ids, num_tokens, id, token, slot, live, weight, block, rank, count,
        TOPK, BLOCK,
    )  # fmt: skip
    if row_scales is not None:
        group = tl.reshape(group, (EACH, 1, PARTS, WARPS, LANES))
        byte = tl.reshape(byte, (EACH, 1, PARTS, WARPS, LANES))
        _scatter_scales(scales, byte, group, block * BLOCK + rank, live, GROUPS, GROUPS_PADDED)


@triton.jit(
    do_not_specialize=["num_tokens", "row_stride"],
    do_not_specialize_on_alignment=["logits", "ids", "weights", "masks", "columns", "row_scales"],
)
def _sort_by_token(
    num_tokens, row_stride, scaling, logits, ids, masks, columns, row_scales,  # what gfx950 has preloaded; others wait
    weights, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, scales,
    RIDER: tl.constexpr, rider_args, RIDER_CONSTANTS: tl.constexpr,
    TOPK: tl.constexpr, PAIRS: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr,
    GROUPS: tl.constexpr, GROUPS_PADDED: tl.constexpr,
    TOKENS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    pid, sorters = tl.program_id(0), tl.cdiv(num_tokens, EACH)
    if RIDER is not None and pid >= sorters:
        RIDER(pid - sorters, num_tokens, rider_args, RIDER_CONSTANTS)
    else:
        _sort_tokens(
            pid * EACH, logits, row_stride, scaling, ids, weights, masks, columns, row_scales,
            sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, scales, num_tokens,
            TOPK, PAIRS, EACH, BLOCK, GROUPS, GROUPS_PADDED, TOKENS, WARPS, LANES,
        )  # fmt: skip


def sort_by_token(
    logits: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, masks: torch.Tensor, columns: torch.Tensor,
    row_scales: torch.Tensor | None, out: Sorted, scales: torch.Tensor | None, block: int, scaling: float,
    extension: SortExtension = NO_EXTENSION,
) -> None:  # fmt: skip
    """Launch for 1 to 512 tokens, into `weights`, `out` and `scales`. Checks nothing."""
    m, k = ids.shape
    tokens, warps, each = next(bucket for bucket in _BUCKETS if m <= bucket[0])
    _sort_by_token[(triton.cdiv(m, each) + extension.rider_programs,)](
        m, logits.stride(0), float(scaling), logits, ids, masks, columns, row_scales, weights, *out, scales,
        extension.rider, extension.rider_args, extension.rider_constants,
        TOPK=k, PAIRS=max(padded_topk(k), warps) * each, EACH=each, BLOCK=block,
        GROUPS=0 if row_scales is None else row_scales.shape[1],
        GROUPS_PADDED=0 if scales is None else scales.shape[1],
        TOKENS=tokens, WARPS=warps, LANES=warp_size(), num_warps=warps,
    )  # fmt: skip
