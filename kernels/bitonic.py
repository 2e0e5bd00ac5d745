"""A bitonic network in which no exchange crosses warps: the largest keys of each chunk of a tensor.

Keys stand in a hypercube, a tensor of shape [2] * DIMS. Its axes are the bits of the register, then of the chunk, then
of the lane, the highest bit of each first; a key's place in its chunk is its register + its lane * registers.
"""

import triton
import triton.language as tl


@triton.constexpr_function
def log2(n):
    """Of a power of two, at compile time."""
    return n.bit_length() - 1


@triton.constexpr_function
def _axis(bit, dims, register_bits):
    """Axis of the hypercube that holds bit `bit` of a key's place in its chunk."""
    return register_bits - 1 - bit if bit < register_bits else dims - 1 - (bit - register_bits)


@triton.jit
def _upper(AXIS: tl.constexpr, DIMS: tl.constexpr):
    """0 and 1 along AXIS, to broadcast over the hypercube."""
    return tl.reshape(tl.arange(0, 2), [1] * AXIS + [2] + [1] * (DIMS - 1 - AXIS))


@triton.jit
def _partner(key, AXIS: tl.constexpr):
    """The other of each two along AXIS: the sum of both less one's own, which becomes a shuffle or a register move."""
    return tl.sum(key, axis=AXIS, keep_dims=True) - key


@triton.jit
def _exchange(key, descending, AXIS: tl.constexpr, DIMS: tl.constexpr, IN_REGISTERS: tl.constexpr):
    """Of each two keys along AXIS, which are never equal, the larger goes to 1, or to 0 where `descending` is 1."""
    partner = _partner(key, AXIS)
    upper = _upper(AXIS, DIMS)
    if IN_REGISTERS:  # written so, both of a thread's keys come from one comparison
        swap = tl.where(upper == 1, partner > key, key > partner) != (descending == 1)
    else:
        swap = (key > partner) != ((descending ^ upper) == 1)
    return tl.where(swap, partner, key)


@triton.jit
def _merge(key, descending, STAGE: tl.constexpr, DIMS: tl.constexpr, REGISTER_BITS: tl.constexpr):
    """Bitonic runs of 2^STAGE keys to sorted ones: compare and exchange along bits STAGE-1 .. 0 of their places."""
    for i in tl.static_range(STAGE):
        key = _exchange(key, descending, _axis(STAGE - 1 - i, DIMS, REGISTER_BITS), DIMS, STAGE - 1 - i < REGISTER_BITS)
    return key


@triton.jit
def best_of(key, DIMS: tl.constexpr, BITS: tl.constexpr, TOPK_BITS: tl.constexpr, REGISTER_BITS: tl.constexpr):
    """The 2^TOPK_BITS largest keys of each chunk of 2^BITS, at every place that is the same modulo 2^TOPK_BITS.

    Triton deals lanes to the last axes of a tensor, then warps, then registers: in this order of axes a chunk is the
    registers and lanes of one warp, and no exchange crosses warps. (`tl.topk` has the chunk's bits in one run, so
    that some of them fall on warps.) Runs of 2^TOPK_BITS keys are sorted, in turn up and down; the larger of two such
    neighbours, place by place, are the best of both and a bitonic run again. Both neighbours keep it, so that the
    tensor keeps its shape and its lanes.
    """
    for stage in tl.static_range(1, TOPK_BITS + 1):
        key = _merge(key, _upper(_axis(stage, DIMS, REGISTER_BITS), DIMS), stage, DIMS, REGISTER_BITS)
    for bit in tl.static_range(TOPK_BITS, BITS):
        key = tl.maximum(key, _partner(key, _axis(bit, DIMS, REGISTER_BITS)))
        if bit + 1 < BITS:  # the last runs may stay bitonic: who asks for slots counts
            descending = _upper(_axis(bit + 1, DIMS, REGISTER_BITS), DIMS)
            key = _merge(key, descending, TOPK_BITS, DIMS, REGISTER_BITS)
    return key
