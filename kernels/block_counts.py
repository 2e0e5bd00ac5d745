"""How many blocks each expert takes, from the tokens' masks: counts in bit planes, 32 experts a word.

Plane i holds bit i of each count. An expert takes as many blocks as the planes from log2(BLOCK) on say, and one more if
a lower plane has its bit.

Up to ALONE tokens every warp reads all masks, so that no warp waits for another, and where they fit one block the OR of
the masks is the count of blocks. Of more tokens each warp adds up its share, and one reduction through LDS adds up the
warps' planes.
"""

# ruff: noqa: RUF005  tuples grow by +, which is how Triton can grow them
# mypy: disable-error-code="assignment, misc"

import triton
import triton.language as tl

from .bitonic import log2
from .moe_sort import _WORDS

ALONE = tl.constexpr(32)  # tokens


@triton.jit
def _population(word):
    """Bits set in each int32; LLVM makes one instruction of it."""
    x = word.to(tl.uint32, bitcast=True)
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def _other_half(word, WARPS: tl.constexpr, LANES: tl.constexpr):
    """What the other half of a warp of 64 lanes holds, int32 [WARPS * LANES]."""
    halves = tl.reshape(word, (WARPS, 2, LANES // 2))
    return tl.reshape(tl.sum(halves, axis=1, keep_dims=True) - halves, (WARPS * LANES,))


@triton.jit
def _load_masks(masks, token, word, num_tokens):
    return tl.load(masks + token * _WORDS + word, mask=token < num_tokens, other=0)


@triton.jit
def _full_add(a, b, c):
    """Sum and carry of three bits, in each of 32 places."""
    return a ^ b ^ c, (a & b) | (c & (a | b))


@triton.jit
def _add(a, b):
    """Sum of two numbers of as many bit planes each, which must not need one more."""
    total, carry = (a[0] ^ b[0],), a[0] & b[0]
    for i in tl.static_range(1, len(a)):
        digit, carry = _full_add(a[i], b[i], carry)
        total = total + (digit,)
    return total


@triton.jit
def _add_planes(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9):
    """`_add` for tl.reduce, whose functions take no *args in Triton 3.6: ten planes count to 512 and more."""
    return _add((a0, a1, a2, a3, a4, a5, a6, a7, a8, a9), (b0, b1, b2, b3, b4, b5, b6, b7, b8, b9))


@triton.jit
def _sum_over_warps(planes, WARPS: tl.constexpr, LANES: tl.constexpr):
    """Ten planes int32 [WARPS * LANES], the sum of all warps' in each."""
    warps = ()
    for i in tl.static_range(10):
        plane = planes[i] if i < len(planes) else tl.zeros_like(planes[0])
        warps = warps + (tl.reshape(plane, (WARPS, LANES)),)
    warps = tl.reduce(warps, 0, _add_planes, keep_dims=True)
    planes = ()
    for i in tl.static_range(10):
        planes = planes + (tl.reshape(tl.broadcast_to(warps[i], (WARPS, LANES)), (WARPS * LANES,)),)
    return planes


@triton.jit
def any_token(masks, num_tokens, TOKENS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr):
    """int32 [WARPS * LANES], the OR of all masks: word l % 32 in lane l, all warps the same."""
    thread = tl.arange(0, WARPS * LANES)
    HALVES: tl.constexpr = LANES // _WORDS
    first, word = thread % LANES // _WORDS, thread % _WORDS
    even, odd = tl.zeros_like(word), tl.zeros_like(word)
    for i in tl.static_range(TOKENS // HALVES // 2):
        even |= _load_masks(masks, i * 2 * HALVES + first, word, num_tokens)
        odd |= _load_masks(masks, (i * 2 + 1) * HALVES + first, word, num_tokens)
    some = even | odd
    if HALVES == 2:
        some |= _other_half(some, WARPS, LANES)
    return some


@triton.jit
def count_blocks(
    masks, num_tokens, BLOCK: tl.constexpr, TOKENS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr
):
    """int32 [WARPS * LANES] each: bit e of counts[0] is worth one block to expert e, of counts[i] 2^(i-1) more.

    Lane l holds the experts of mask word l % 32; all warps the same. M is TOKENS at most.
    """
    thread = tl.arange(0, WARPS * LANES)
    HALVES: tl.constexpr = LANES // _WORDS
    SHARES: tl.constexpr = WARPS if TOKENS > ALONE else 1
    SHARE: tl.constexpr = TOKENS // SHARES
    first, word = thread // LANES % SHARES * SHARE + thread % LANES // _WORDS, thread % _WORDS
    zero = tl.zeros_like(word)
    planes = (zero, zero)
    # four masks a time: two full adders bring them into the planes of ones and twos, and one carry goes up from there
    for i in tl.static_range(SHARE // HALVES // 4):
        a = _load_masks(masks, first + i * 4 * HALVES, word, num_tokens)
        b = _load_masks(masks, first + (i * 4 + 1) * HALVES, word, num_tokens)
        c = _load_masks(masks, first + (i * 4 + 2) * HALVES, word, num_tokens)
        d = _load_masks(masks, first + (i * 4 + 3) * HALVES, word, num_tokens)
        ones, twos = _full_add(a, b, c)
        ones, more = _full_add(planes[0], ones, d)
        twos, carry = _full_add(planes[1], twos, more)
        total = (ones, twos)
        for j in tl.static_range(2, len(planes)):
            total = total + (planes[j] ^ carry,)
            carry = planes[j] & carry
        if i & (i + 1) == 0:  # 4, 8, 16, .. masks counted: the first count that needs another plane
            total = total + (carry,)
        planes = total
    if HALVES == 2:
        other = ()
        for i in tl.static_range(len(planes)):
            other = other + (_other_half(planes[i], WARPS, LANES),)
        planes = _add(planes + (zero,), other + (zero,))
    if SHARES > 1:
        planes = _sum_over_warps(planes, WARPS, LANES)
    SHIFT: tl.constexpr = log2(BLOCK)
    blocks = (planes[0],)
    for i in tl.static_range(1, SHIFT):
        blocks = (blocks[0] | planes[i],)
    for i in tl.static_range(SHIFT, log2(TOKENS) + 1):
        blocks = blocks + (planes[i],)
    return blocks


@triton.jit
def blocks_of(counts, chosen):
    """int32 [n, WARPS * LANES]: the blocks of each lane's experts whose bits are set in `chosen`, of that shape.

    `counts` is what `count_blocks` returns, or `any_token` where no expert has two.
    """
    blocks = _population(counts[0][None, :] & chosen)
    for i in tl.static_range(1, len(counts)):
        blocks += _population(counts[i][None, :] & chosen) << (i - 1)
    return blocks
