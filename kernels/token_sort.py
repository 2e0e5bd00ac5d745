"""The sort by token: the second of two launches, a program per token that finds the rows of its own pairs by itself.

Replaces `moe_sort._sort` with its scale scatter where M is small: each of its 112 programs walks all tokens.

Grid
  program t   the sorted rows of token t's K pairs: ids, weights, a copy of its scale bytes to each; and for each expert
              that no earlier token chose the experts of its blocks and the padding rows behind its pairs
  program 0   also num_valid_ids

in   ids, weights [M, K]; masks [M, 32] (`moe_sort.store_mask`); row_scales [M, L/32], plain, or None
out  Sorted and scales, bit for bit what `moe_sort` and its `_scatter_rows` write, and no byte more

Of all masks a program needs no more than
  rank    earlier tokens whose mask has the expert's bit: its place among the expert's pairs
  count   all tokens whose mask has it
  block   blocks of the experts below. With M <= BLOCK that is how many bits below it are set in the OR of all masks.
          Otherwise the masks are added up in bit planes, 32 experts a word: plane i holds bit i of each count, so that
          an expert of c pairs takes the number in the planes from log2(BLOCK) on, and one block more if a lower plane
          has its bit.
No program waits for another's result and nothing is accumulated in memory. Within a program no warp does, either: all
of them read all masks, and pair k belongs to warp k % WARPS from its rank to its last scale byte. So there is no
barrier, and hardly any LDS.

Loads and stores are one-dimensional, [registers * warps * lanes], and take their shape afterwards: Triton 3.6 deals
lanes along the first axis of a scattered access that has several. Its pass for wide accesses would move lanes, too;
where addresses are consecutive it is kept off by not telling it what they are aligned to.
"""

# ruff: noqa: RUF005  tuples grow by +, which is how Triton can grow them
# mypy: disable-error-code="assignment, misc"

import torch
import triton
import triton.language as tl

from .moe_sort import _WORDS, Sorted
from .mx import scale_offset
from .topk import log2, warp_size

# tokens up to, warps; a bucket to 256 was no faster than the sort by expert on an H200, and spilled at block 128
_BUCKETS = ((32, 4), (128, 4))
FIRST_TOKENS = (1, *(limit + 1 for limit, _ in _BUCKETS[:-1]))  # from one to the next nothing new is compiled
MAX_TOKENS = _BUCKETS[-1][0]


@triton.jit
def _population(word):
    """Bits set in each int32; LLVM knows this for what it is."""
    x = word.to(tl.uint32, bitcast=True)
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def _both(word, WARPS: tl.constexpr, LANES: tl.constexpr):
    """What the other half of a warp of 64 lanes holds, int32 [WARPS * LANES]."""
    halves = tl.reshape(word, (WARPS, 2, LANES // 2))
    return tl.reshape(halves ^ tl.xor_sum(halves, 1, True), (WARPS * LANES,))


@triton.jit
def _load_masks(masks, token, word, num_tokens):
    return tl.load(masks + token * _WORDS + word, mask=token < num_tokens, other=0)


@triton.jit
def _full_add(a, b, c):
    """Sum and carry of three bits, in each of 32 places."""
    return a ^ b ^ c, (a & b) | (c & (a | b))


@triton.jit
def _add(a, b):
    """Sum of two numbers of as many bit planes each: a plane more."""
    carry = a[0] & b[0]
    total = (a[0] ^ b[0],)
    for i in tl.static_range(1, len(a)):
        digit, carry = _full_add(a[i], b[i], carry)
        total = total + (digit,)
    return total + (carry,)


@triton.jit
def _count_experts(
    masks, num_tokens, BLOCK: tl.constexpr, TOKENS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr
):
    """(int32 [WARPS * LANES], ..): an expert's blocks are 1 if its bit is set in the first + 2^i for each (1+i)-th.

    Lane l holds the experts of mask word l % 32; all warps the same.
    """
    thread = tl.arange(0, WARPS * LANES)
    HALVES: tl.constexpr = LANES // _WORDS
    first, word = thread % LANES // _WORDS, thread % _WORDS
    counts = (tl.zeros_like(word), tl.zeros_like(word))
    for i in tl.static_range(TOKENS // HALVES // 4):
        a = _load_masks(masks, i * 4 * HALVES + first, word, num_tokens)
        b = _load_masks(masks, (i * 4 + 1) * HALVES + first, word, num_tokens)
        c = _load_masks(masks, (i * 4 + 2) * HALVES + first, word, num_tokens)
        d = _load_masks(masks, (i * 4 + 3) * HALVES + first, word, num_tokens)
        if TOKENS <= BLOCK:
            counts = (counts[0] | a | b, counts[1] | c | d)
        else:
            ones, twos = _full_add(a, b, c)
            ones, more = _full_add(counts[0], ones, d)
            twos, carry = _full_add(counts[1], twos, more)
            total = (ones, twos)
            for j in tl.static_range(2, len(counts)):
                total = total + (counts[j] ^ carry,)
                carry = counts[j] & carry
            if i & (i + 1) == 0:
                total = total + (carry,)
            counts = total
    if TOKENS <= BLOCK:
        counts = (counts[0] | counts[1],)
    if HALVES == 2:
        other = ()
        for j in tl.static_range(len(counts)):
            other = other + (_both(counts[j], WARPS, LANES),)
        if TOKENS <= BLOCK:
            counts = (counts[0] | other[0],)
        else:
            counts = _add(counts, other)
    if TOKENS > BLOCK:
        SHIFT: tl.constexpr = log2(BLOCK)
        some = counts[0]
        for j in tl.static_range(1, SHIFT):
            some = some | counts[j]
        blocks = (some,)
        for j in tl.static_range(SHIFT, len(counts)):
            blocks = blocks + (counts[j],)
        counts = blocks
    return counts


@triton.jit
def _blocks_of(counts, chosen):
    """int32 [n, WARPS * LANES]: blocks of each lane's experts whose bits are set in `chosen`, of that shape."""
    blocks = _population(counts[0][None, :] & chosen)
    for i in tl.static_range(1, len(counts)):
        blocks += _population(counts[i][None, :] & chosen) << (i - 1)
    return blocks


@triton.jit
def _count_tokens(
    ids, masks, token, num_tokens,
    TOPK: tl.constexpr, PAIRS: tl.constexpr, TOKENS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """int32 [PAIRS / WARPS, WARPS * LANES], to be summed over the lanes: of each pair `rank << 10 | count`."""
    PER_WARP: tl.constexpr = PAIRS // WARPS
    thread = tl.arange(0, WARPS * LANES)
    # the pairs of a warp are neighbouring lanes, so that a load touches few masks
    slot = thread % PER_WARP * WARPS + thread // LANES
    id = tl.load(ids + token * TOPK + slot, mask=slot < TOPK, other=0)
    first = thread % LANES // PER_WARP
    seen = tl.zeros_like(id)
    for i in tl.static_range(triton.cdiv(TOKENS * PER_WARP, LANES)):
        other = i * (LANES // PER_WARP) + first
        word = tl.load(masks + other * _WORDS + (id >> 5), mask=other < num_tokens, other=0)
        seen += ((word >> (id & 31)) & 1) * tl.where(other < token, 1025, 1)
    mine = (thread % PER_WARP)[None, :] == tl.arange(0, PER_WARP)[:, None]
    return tl.where(mine, seen[None, :], 0)


@triton.jit(
    do_not_specialize=["num_tokens"], do_not_specialize_on_alignment=["ids", "weights", "masks", "row_scales"]
)  # fmt: skip
def _sort_by_token(
    ids, weights, masks, row_scales, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, scales, num_tokens,
    TOPK: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr, GROUPS_PADDED: tl.constexpr,
    TOKENS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    PER_WARP: tl.constexpr = PAIRS // WARPS
    token = tl.program_id(0)
    thread = tl.arange(0, PAIRS * LANES)
    slot = thread // LANES
    live = slot < TOPK
    id = tl.load(ids + token * TOPK + slot, mask=live, other=0)
    weight = tl.load(weights + token * TOPK + slot, mask=live, other=0.0)
    if row_scales is not None:
        PARTS: tl.constexpr = triton.cdiv(triton.next_power_of_2(GROUPS), LANES)
        group = tl.arange(0, PARTS * WARPS * LANES)
        group = group // (WARPS * LANES) * LANES + group % LANES
        byte = tl.load(row_scales + token * GROUPS + group, mask=group < GROUPS)

    counts = _count_experts(masks, num_tokens, BLOCK, TOKENS, WARPS, LANES)
    # experts of this lane's word that are below the pair's
    lower = tl.reshape(id - thread % LANES * 32, (PER_WARP, WARPS * LANES))
    chosen = tl.where(lower >= 32, -1, (1 << (tl.maximum(lower, 0) & 31)) - 1)
    if LANES > _WORDS:
        chosen = tl.where(tl.arange(0, WARPS * LANES)[None, :] % LANES < _WORDS, chosen, 0)
    sums = _blocks_of(counts, chosen) << 20
    sums += _count_tokens(ids, masks, token, num_tokens, TOPK, PAIRS, TOKENS, WARPS, LANES)
    sums = tl.sum(tl.reshape(sums, (PER_WARP, WARPS, LANES)), axis=2, keep_dims=True)
    block, rank, count = sums >> 20, (sums >> 10) & 1023, sums & 1023
    if token == 0:
        total = tl.reshape(_blocks_of(counts, tl.full((1, 1), -1, tl.int32)), (WARPS * LANES // _WORDS, _WORDS))
        total = tl.sum(total, axis=1)  # all the same
        tl.store(num_valid_ids + total * 0, total * BLOCK)
        tl.store(num_valid_ids + 1, num_tokens)
    last = (count - 1) // BLOCK  # the expert's only block that has padding
    row = block * BLOCK + rank
    id, weight = tl.reshape(id, (PER_WARP, WARPS, LANES)), tl.reshape(weight, (PER_WARP, WARPS, LANES))
    slot, live = tl.reshape(slot, (PER_WARP, WARPS, LANES)), tl.reshape(live, (PER_WARP, WARPS, LANES))
    for first in tl.static_range(0, BLOCK, LANES):
        # one store for both: the pair takes its rank's lane, which is no padding's if the pair is the first
        nth = first + tl.arange(0, LANES)[None, None, :]
        own = nth == rank % BLOCK
        padding = last * BLOCK + nth
        place = block * BLOCK + tl.where(own, rank, padding)
        mask = live & (nth < BLOCK) & (own | (rank == 0) & (padding >= count))
        place, mask = tl.reshape(place, (PAIRS * LANES,)), tl.reshape(mask, (PAIRS * LANES,))
        entry = tl.where(own, slot << 24 | token, TOPK << 24 | num_tokens)
        tl.store(sorted_ids + place, tl.reshape(entry, (PAIRS * LANES,)), mask=mask)
        tl.store(sorted_weights + place, tl.reshape(tl.where(own, weight, 0.0), (PAIRS * LANES,)), mask=mask)
    nth = tl.arange(0, LANES)[None, None, :]
    mask = tl.reshape(live & (rank == 0) & (nth <= last), (PAIRS * LANES,))
    tl.store(sorted_expert_ids + tl.reshape(block + nth, (PAIRS * LANES,)), tl.reshape(id, (PAIRS * LANES,)), mask=mask)

    if row_scales is not None:
        COPIES: tl.constexpr = PER_WARP * PARTS * WARPS * LANES
        group = tl.reshape(group, (1, PARTS, WARPS, LANES))
        offset = scale_offset(row[:, None, :, :], group, GROUPS_PADDED)
        mask = live[:, None, :, :] & (group < GROUPS)
        byte = tl.reshape(byte, (1, PARTS, WARPS, LANES))
        byte = tl.broadcast_to(byte, (PER_WARP, PARTS, WARPS, LANES))
        tl.store(scales + tl.reshape(offset, (COPIES,)), tl.reshape(byte, (COPIES,)), mask=tl.reshape(mask, (COPIES,)))


def serves(num_tokens: int) -> bool:
    """Whether there is a specialisation for a batch of this size."""
    return 1 <= num_tokens <= MAX_TOKENS


def sort_by_token(
    ids: torch.Tensor, weights: torch.Tensor, masks: torch.Tensor, row_scales: torch.Tensor | None,
    out: Sorted, scales: torch.Tensor | None, block: int,
) -> None:  # fmt: skip
    """Launch for a batch that `serves`. Checks nothing."""
    m, k = ids.shape
    tokens, warps = next((limit, warps) for limit, warps in _BUCKETS if m <= limit)
    _sort_by_token[(m,)](
        ids, weights, masks, row_scales, *out, scales, m,
        TOPK=k, PAIRS=max(triton.next_power_of_2(k), warps), BLOCK=block,
        GROUPS=0 if row_scales is None else row_scales.shape[1],
        GROUPS_PADDED=0 if scales is None else scales.shape[1],
        TOKENS=tokens, WARPS=warps, LANES=warp_size(), num_warps=warps,
    )  # fmt: skip
