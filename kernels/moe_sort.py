"""The sort: (ids, weights) of any router to AITER's expert-blocked layout. Knows nothing of K3.

in   ids int32 [M, K], the ids of a row distinct and in [0, E); weights fp32 [M, K]
out  sorted_ids int32 `slot << 24 | token`, padding `K << 24 | M`; sorted_weights fp32, padding 0; sorted_expert_ids
     int32, one per block of BLOCK rows; num_valid_ids int32 [rows in use, M]. Nothing past the rows in use is written.

Two launches. The front of a layer does not sort by these (`token_sort.py`), but whoever has ids and weights can.
  1. `_expert_masks`, a program per token: masks int32 [M, 32], bit e % 32 of word e / 32 set where the token chose
     expert e.
  2. `_sort`, a program per 8 experts. Each counts all experts of all tokens by itself, which gives the block
     its first expert starts at, then walks the tokens once to place its own experts' pairs.
No program hands anything to another and nothing is accumulated in memory: no atomics, no scratch to keep zero, no
order of workgroups that matters. The price is that every program reads all masks (64 KB at M=512).

Counting: a mask word shifted by 0..7 and cut to one bit per byte holds four counters; they are summed over tokens as
bytes, of which each sees 16 tokens at most, then as 16-bit halves. `tl.histogram` is reported miscompiled on gfx950.

`SortExtension` lets others ride, in extra programs behind the sort's own: those come first, since what follows waits
for them. Without one, neither the launch nor a byte of the output differs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from . import checks

WORDS = 32  # mask words of a token
_WORDS = tl.constexpr(WORDS)
# tokens up to, tokens visited at a time, warps; 128 at a time spill on gfx950 with fewer warps
_TILES = ((32, 32, 4), (128, 64, 8), (checks.MAX_TOKENS, 128, 16))
_EXPERTS = tl.constexpr(8)  # experts per program: one byte of a mask word


class Sorted(NamedTuple):
    """AITER's sorted layout; `sorted_expert_ids.numel()` sizes its grids, so nothing is longer than it must be."""

    sorted_ids: torch.Tensor  # int32 [rows]
    sorted_weights: torch.Tensor  # fp32 [rows]
    sorted_expert_ids: torch.Tensor  # int32 [rows / block]
    num_valid_ids: torch.Tensor  # int32 [2]


@dataclass(frozen=True)
class SortExtension:
    """Work that rides in a launch: a Triton device function rider(index, num_tokens, rider_args, RIDER_CONSTANTS),
    called with index 0 .. rider_programs-1.
    """

    rider: Callable[..., None] | None = None
    rider_args: tuple[Any, ...] = ()  # tensors
    rider_constants: tuple[Any, ...] = ()  # compiled in
    rider_programs: int = 0

    def __post_init__(self) -> None:
        if self.rider_programs < 0 or (self.rider is None) != (self.rider_programs == 0):
            raise ValueError(f"rider_programs={self.rider_programs} with rider={self.rider}; accepted: both or neither")


NO_EXTENSION = SortExtension()


def max_blocks(num_tokens: int, topk: int, num_experts: int, block: int) -> int:
    """Blocks that any routing of M*K pairs can use: E experts take one each, then every `block` more pairs one more."""
    pairs = num_tokens * topk
    return min(pairs, num_experts + max(pairs - num_experts, 0) // block)


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def _expert_masks(ids, masks, NUM_EXPERTS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr):
    token, slot = tl.program_id(0), tl.arange(0, TOPK_PADDED)
    id = tl.load(ids + token * TOPK + slot, mask=slot < TOPK, other=-1)
    word = tl.arange(0, _WORDS)
    own = ((id >= 0) & (id < NUM_EXPERTS))[None, :] & ((id >> 5)[None, :] == word[:, None])
    bits = tl.reduce(tl.where(own, 1 << (id & 31)[None, :], 0), 1, _or)
    tl.store(masks + token.to(tl.int64) * _WORDS + word, bits)


@triton.jit
def _place(masks, num_tokens, first_expert, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """Count all experts: (first block, pairs int32 [8]) of the 8 experts from `first_expert` on."""
    word, phase = tl.arange(0, _WORDS), tl.arange(0, _EXPERTS)
    counters = tl.zeros((32, _WORDS, _EXPERTS), tl.int32)  # byte j of [.., w, p] counts expert 32w + 8j + p
    for first in range(0, num_tokens, TILE):
        token = first + (tl.arange(0, TILE // 32)[:, None] * 32 + tl.arange(0, 32)[None, :])[:, :, None]
        mask = tl.load(masks + token * _WORDS + word[None, None, :], mask=token < num_tokens, other=0)
        counters += tl.sum((mask[:, :, :, None] >> phase[None, None, None, :]) & 0x01010101, axis=0)
    even = tl.sum(counters & 0x00FF00FF, axis=0)
    odd = tl.sum((counters >> 8) & 0x00FF00FF, axis=0)
    below = tl.zeros((_WORDS, _EXPERTS), tl.int32)
    own = tl.zeros((_WORDS, _EXPERTS), tl.int32)
    for j in tl.static_range(4):
        count = ((even if j % 2 == 0 else odd) >> (16 * (j // 2))) & 0xFFFF
        expert = (word * 32)[:, None] + 8 * j + phase[None, :]
        below += tl.where(expert < first_expert, tl.cdiv(count, BLOCK), 0)
        own += tl.where(expert == first_expert + phase[None, :], count, 0)
    return tl.sum(below), tl.sum(own, axis=0)


@triton.jit
def _write_padding(
    sorted_ids, sorted_weights, sorted_expert_ids, num_tokens, expert, block, blocks, pairs,
    TOPK: tl.constexpr, BLOCK: tl.constexpr, MAX_TOKENS: tl.constexpr,
):  # fmt: skip
    """The experts [8] of their blocks, and the padding rows behind the pairs of each."""
    nth = tl.arange(0, MAX_TOKENS // BLOCK)[None, :]
    tl.store(sorted_expert_ids + block[:, None] + nth, expert[:, None] + nth * 0, mask=nth < blocks[:, None])
    padding = pairs[:, None] + tl.arange(0, BLOCK)[None, :]
    row, mask = block[:, None] * BLOCK + padding, padding < (blocks * BLOCK)[:, None]
    tl.store(sorted_ids + row, (TOPK << 24) | num_tokens + row * 0, mask=mask)
    tl.store(sorted_weights + row, 0.0, mask=mask)


@triton.jit
def _write_pairs(
    ids, weights, sorted_ids, sorted_weights, num_tokens, expert, next_row,
    TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Walk the tokens in order and give each pair of the experts [8] the next row [8] of its expert."""
    slot = tl.arange(0, TOPK_PADDED)[:, None]
    for first in range(0, num_tokens, TILE):
        token = first + tl.arange(0, TILE)[None, :]
        live = (token < num_tokens) & (slot < TOPK)
        id = tl.load(ids + token * TOPK + slot, mask=live, other=-1)
        # weights travel as bits: a sum of floats would lose the sign of -0.0
        weight = tl.load(weights + token * TOPK + slot, mask=live, other=0.0).to(tl.int32, bitcast=True)
        # slots first: they are registers then, and summed without a shuffle
        match = id[:, None, :] == expert[None, :, None]
        hit = tl.max(match.to(tl.int32), axis=0)  # not more than the mask says, even of an id that a token repeats
        row = next_row[:, None] + tl.cumsum(hit, axis=1) - 1
        entry = tl.sum(tl.where(match, slot[:, None, :], 0), axis=0) << 24 | token
        tl.store(sorted_ids + row, entry, mask=hit > 0)
        bits = tl.sum(tl.where(match, weight[:, None, :], 0), axis=0)
        tl.store(sorted_weights + row, bits.to(tl.float32, bitcast=True), mask=hit > 0)
        next_row += tl.sum(hit, axis=1)


@triton.jit
def _sort_experts(
    ids, weights, masks, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, num_tokens, first_expert,
    NUM_EXPERTS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, MAX_TOKENS: tl.constexpr,
):  # fmt: skip
    """Write every sorted row and block of the 8 experts from `first_expert` on."""
    first_block, pairs = _place(masks, num_tokens, first_expert, BLOCK, TILE)
    expert = first_expert + tl.arange(0, _EXPERTS)
    blocks = tl.cdiv(pairs, BLOCK)
    block = first_block + tl.cumsum(blocks, axis=0) - blocks
    end_block = first_block + tl.sum(blocks)
    if first_expert + _EXPERTS >= NUM_EXPERTS:
        tl.store(num_valid_ids, end_block * BLOCK)
        tl.store(num_valid_ids + 1, num_tokens)
    _write_padding(
        sorted_ids, sorted_weights, sorted_expert_ids, num_tokens, expert, block, blocks, pairs, TOPK, BLOCK, MAX_TOKENS
    )
    _write_pairs(
        ids, weights, sorted_ids, sorted_weights, num_tokens, expert, block * BLOCK,
        TOPK, TOPK_PADDED, TILE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num_tokens"])
def _sort(
    ids, weights, masks, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, num_tokens,
    RIDER: tl.constexpr, rider_args, RIDER_CONSTANTS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, MAX_TOKENS: tl.constexpr,
):  # fmt: skip
    SORTERS: tl.constexpr = (NUM_EXPERTS + _EXPERTS - 1) // _EXPERTS
    pid = tl.program_id(0)
    if pid < SORTERS:
        _sort_experts(
            ids, weights, masks, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, num_tokens,
            pid * _EXPERTS, NUM_EXPERTS, TOPK, TOPK_PADDED, BLOCK, TILE, MAX_TOKENS,
        )  # fmt: skip
    elif RIDER is not None:
        RIDER(pid - SORTERS, num_tokens, rider_args, RIDER_CONSTANTS)


def empty_sorted(num_tokens: int, topk: int, num_experts: int, block: int, device: torch.device) -> Sorted:
    """Buffers for `num_tokens` tokens, sized by `max_blocks`. Of no tokens nothing is launched: no rows are in use."""
    blocks = max_blocks(num_tokens, topk, num_experts, block)
    return Sorted(
        torch.empty(blocks * block, dtype=torch.int32, device=device),
        torch.empty(blocks * block, dtype=torch.float32, device=device),
        torch.empty(blocks, dtype=torch.int32, device=device),
        (torch.empty if num_tokens else torch.zeros)(2, dtype=torch.int32, device=device),
    )


def write_masks(ids: torch.Tensor, masks: torch.Tensor, num_experts: int) -> None:
    """The first launch alone: masks int32 [M, 32] of ids [M, K]. Checks nothing."""
    m, k = ids.shape
    _expert_masks[(m,)](ids, masks, NUM_EXPERTS=num_experts, TOPK=k, TOPK_PADDED=triton.next_power_of_2(k), num_warps=1)


def sort_masked(
    ids: torch.Tensor, weights: torch.Tensor, masks: torch.Tensor, out: Sorted, num_experts: int, block: int,
    extension: SortExtension = NO_EXTENSION,
) -> None:  # fmt: skip
    """The second launch alone, for callers who hold the masks. Checks nothing."""
    m, k = ids.shape
    sorters = triton.cdiv(num_experts, _EXPERTS)
    tile, warps = next((tile, warps) for limit, tile, warps in _TILES if m <= limit)
    _sort[(sorters + extension.rider_programs,)](
        ids, weights, masks, *out, m, extension.rider, extension.rider_args, extension.rider_constants,
        NUM_EXPERTS=num_experts, TOPK=k, TOPK_PADDED=triton.next_power_of_2(k), BLOCK=block,
        TILE=tile, MAX_TOKENS=checks.MAX_TOKENS, num_warps=warps,
    )  # fmt: skip


def check_sort(ids: torch.Tensor, weights: torch.Tensor, num_experts: int, block: int) -> None:
    checks.tensor("ids", ids, (torch.int32,), (None, None))
    checks.runnable("ids", ids)
    checks.tensor("weights", weights, (torch.float32,), tuple(ids.shape), ids.device)
    checks.contiguous("ids", ids)
    checks.contiguous("weights", weights)
    checks.tokens(ids.shape[0])
    checks.experts(num_experts, ids.shape[1])
    checks.block(block)


def moe_sort(
    ids: torch.Tensor, weights: torch.Tensor, num_experts: int, block: int, extension: SortExtension = NO_EXTENSION
) -> Sorted:
    """Sort M <= 512 tokens' pairs (ids int32 [M, K], weights fp32 [M, K]) by expert, stably.

    Ids outside [0, E) are never used as an index. With such an id, or one expert twice in a token, the output is
    undefined but nothing outside of it is written: masks hold experts only, and a program never writes more rows than
    they count.
    """
    check_sort(ids, weights, num_experts, block)
    m, k = ids.shape
    out = empty_sorted(m, k, num_experts, block, ids.device)
    if m:
        masks = torch.empty((m, WORDS), dtype=torch.int32, device=ids.device)
        write_masks(ids, masks, num_experts)
        sort_masked(ids, weights, masks, out, num_experts, block, extension)
    return out
