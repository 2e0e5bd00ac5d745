"""Router: sigmoid + correction bias + top-k + renormalise.

One launch, as the one it replaces in AITER. Grid: one program per token.

in   logits fp32|bf16 [M, E], row stride any; bias fp32|bf16 [E]
out  ids int32 [M, K], weights fp32 [M, K], both in falling order of score

The order is that of one 64-bit key, score above id, so that a tie goes to the lower id and no two keys are equal:
winners are told apart by key and an id can never come out twice. NaN ranks below -inf, padding columns below NaN.
-0.0 needs no care: a sigmoid is never -0.0, so neither is sigmoid + bias.

Top-k in two steps: the columns are cut into chunks of 256 and a bitonic network keeps the K best of each, unsorted;
then each of these candidates counts the larger ones, and the count is its slot. A chunk lives in one warp (`_best_of`),
so the first step meets no barrier.

The sigmoid uses additions, multiplications, FMAs and one IEEE division only, no exp instruction: those differ in
their last bits between devices, and an order that ends in ties must not. It is within 1 ulp, so that a weight, which
adds up the errors of a numerator, a sum and a quotient, stays within 4 (`test_weights_of_adversarial_rows`). A sigmoid
below the smallest normal fp32 (logit < -87.33) counts as 0.
"""

import functools

import torch
import triton
import triton.language as tl

from . import checks

_LOWEST = tl.constexpr(-(2**31))  # key of a padding column; NaN is one above it
_CHUNK = tl.constexpr(256)


@triton.constexpr_function
def log2(n):
    """Of a power of two, at compile time."""
    return n.bit_length() - 1


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) in fp32. exp by Cody-Waite reduction and a polynomial fitted for |r| <= ln(2)/2."""
    t = tl.minimum(tl.maximum(-x, -88.0), 88.0)
    n = tl.fma(t, 1.4426950408889634, 128.5).to(tl.int32) - 128  # nearest integer; the shift makes the cast a floor
    r = tl.fma(n.to(tl.float32), -0.693359375, t)
    r = tl.fma(n.to(tl.float32), 2.1219444e-4, r)
    p = tl.fma(r, 0.00138145394, 0.00836874545)
    p = tl.fma(p, r, 0.041668389)
    p = tl.fma(p, r, 0.166665211)
    p = tl.fma(p, r, 0.49999994)
    scale = ((n + 127) << 23).to(tl.float32, bitcast=True)
    part = tl.fma(r * r, p, r) * scale  # exp(-x) = scale + part, |part| < scale / 2
    # 1 + exp(-x) as high + low, then one Newton step from the rounded quotient
    one = 1.0 + scale
    high = one + part
    low = tl.where(scale <= 1.0, (1.0 - one) + scale, (scale - one) + 1.0) + ((one - high) + part)
    s = tl.div_rn(1.0, high)
    s = tl.fma(tl.fma(-s, high, 1.0) - s * low, s, s)
    return tl.where(x < -87.33654, 0.0, s)


@triton.jit
def _rank_key(score, expert, NUM_EXPERTS: tl.constexpr, COLUMNS: tl.constexpr):
    """int64: the score's bits as an ordered integer above the reversed expert id."""
    bits = score.to(tl.int32, bitcast=True)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    order = tl.where(score != score, _LOWEST + 1, order)
    order = tl.where(expert < NUM_EXPERTS, order, _LOWEST)
    return (order.to(tl.int64) << 32) | (COLUMNS - 1 - expert).to(tl.int64)


@triton.jit
def _load_scores(logits, bias, offset, expert, mask):
    """fp32 sigmoid of the logits (NaN stays NaN), and the same with the correction bias added."""
    x = tl.load(logits + offset, mask=mask, other=0.0).to(tl.float32)
    s = tl.where(x == x, sigmoid(x), x)
    return s, s + tl.load(bias + expert, mask=mask, other=0.0).to(tl.float32)


@triton.constexpr_function
def _axis(bit, dims, register_bits):
    """Axis of a hypercube [registers.., chunks.., lanes..] that holds bit `bit` of a key's place in its chunk."""
    return register_bits - 1 - bit if bit < register_bits else dims - 1 - (bit - register_bits)


@triton.jit
def _upper(AXIS: tl.constexpr, DIMS: tl.constexpr):
    """0 and 1 along AXIS, to broadcast over a hypercube."""
    return tl.reshape(tl.arange(0, 2), [1] * AXIS + [2] + [1] * (DIMS - 1 - AXIS))


@triton.jit
def _exchange(key, descending, AXIS: tl.constexpr, DIMS: tl.constexpr):
    """Of each two keys along AXIS the larger goes up (the upper place), or down where `descending` is 1."""
    # the xor of both, xor one's own, is the other: Triton turns it into one shuffle or register move
    partner = key ^ tl.xor_sum(key, AXIS, True)
    return tl.where((key > partner) != (descending ^ _upper(AXIS, DIMS)).to(tl.int1), partner, key)


@triton.jit
def _merge(key, descending, STAGE: tl.constexpr, DIMS: tl.constexpr, REGISTER_BITS: tl.constexpr):
    """Bitonic runs of 2^STAGE keys to sorted ones: compare and exchange along bits STAGE-1 .. 0 of their places."""
    for i in tl.static_range(STAGE):
        key = _exchange(key, descending, _axis(STAGE - 1 - i, DIMS, REGISTER_BITS), DIMS)
    return key


@triton.jit
def _merge_in_turn(key, STAGE: tl.constexpr, DIMS: tl.constexpr, REGISTER_BITS: tl.constexpr):
    """`_merge`, every other run of 2^STAGE downwards."""
    return _merge(key, _upper(_axis(STAGE, DIMS, REGISTER_BITS), DIMS), STAGE, DIMS, REGISTER_BITS)


@triton.constexpr_function
def _registers_left(register_bits, topk_bits, gone):
    """Register bits once `gone` bits above the lowest `topk_bits` are reduced: registers' go first."""
    return max(min(register_bits, topk_bits), register_bits - gone)


@triton.jit
def _best_of(key, DIMS: tl.constexpr, BITS: tl.constexpr, TOPK_BITS: tl.constexpr, REGISTER_BITS: tl.constexpr):
    """The 2^TOPK_BITS largest keys of each chunk of 2^BITS, in a hypercube [2] * DIMS of (registers, chunks, lanes).

    Triton deals lanes to the last axes of a tensor, then warps, then registers: in this order of axes a chunk is the
    registers and lanes of one warp, and no exchange crosses warps. (`tl.topk` has the chunk's bits in one run, so
    that half of them fall on warps.) Runs of 2^TOPK_BITS keys are sorted, in turn up and down; the larger of two such
    neighbours, place by place, are the best of both and a bitonic run again, with one bit of the place gone.
    """
    for stage in tl.static_range(1, TOPK_BITS + 1):
        key = _merge_in_turn(key, stage, DIMS, REGISTER_BITS)
    for gone in tl.static_range(BITS - TOPK_BITS):
        key = tl.max(key, axis=_axis(TOPK_BITS, DIMS - gone, _registers_left(REGISTER_BITS, TOPK_BITS, gone)))
        if gone + 1 < BITS - TOPK_BITS:  # the last runs may stay bitonic: who asks for slots counts
            key = _merge_in_turn(key, TOPK_BITS, DIMS - gone - 1, _registers_left(REGISTER_BITS, TOPK_BITS, gone + 1))
    return key


@triton.jit
def route_tokens(
    logits, row_stride, bias, first_token, num_tokens, scaling,
    TOKENS: tl.constexpr, NUM_EXPERTS: tl.constexpr, COLUMNS: tl.constexpr,
    TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Route TOKENS tokens from `first_token` on in one program.

    COLUMNS and TOPK_PADDED are NUM_EXPERTS and TOPK rounded up to a power of two; LANES is the warp size. Returns
    ids int32, weights fp32 and slots int32, all [TOKENS * candidates]: the K candidates with slot < TOPK are the
    token's experts, in that order. The others have weight 0, and so has every candidate of tokens from num_tokens on.
    """
    CHUNK: tl.constexpr = min(COLUMNS, _CHUNK)
    CHUNKS: tl.constexpr = COLUMNS // CHUNK
    BEST: tl.constexpr = min(CHUNK, TOPK_PADDED)
    WIDTH: tl.constexpr = min(CHUNK, LANES)
    REGISTERS: tl.constexpr = CHUNK // WIDTH

    # rows of this tile fall on warps first, then on registers, and its columns are lanes
    line, lane = tl.arange(0, REGISTERS * TOKENS * CHUNKS)[:, None], tl.arange(0, WIDTH)[None, :]
    register, part = line // (TOKENS * CHUNKS), line % (TOKENS * CHUNKS)
    expert = (register * CHUNKS + part % CHUNKS) * WIDTH + lane
    token = first_token + part // CHUNKS
    row = token.to(tl.int64) * row_stride
    mask = (token < num_tokens) & (expert < NUM_EXPERTS)
    _, score = _load_scores(logits, bias, row + expert, expert, mask)
    key = _rank_key(score, expert, NUM_EXPERTS, COLUMNS)
    if CHUNK > BEST:
        CHUNK_BITS: tl.constexpr = log2(CHUNK)
        DIMS: tl.constexpr = log2(TOKENS * COLUMNS)
        key = _best_of(tl.reshape(key, [2] * DIMS), DIMS, CHUNK_BITS, log2(BEST), log2(REGISTERS))
    KEPT: tl.constexpr = min(REGISTERS, BEST)  # registers that the candidates are left in
    key = tl.permute(tl.reshape(key, (KEPT, TOKENS, CHUNKS * BEST // KEPT)), (1, 0, 2))
    key = tl.reshape(key, (TOKENS, CHUNKS * BEST))

    # From here on one-dimensional: a scattered access has no axis to deal lanes along but its own, and Triton 3.6
    # would take the first, of one token.
    CANDIDATES: tl.constexpr = CHUNKS * BEST
    slots = tl.reshape(tl.sum((key[:, None, :] > key[:, :, None]).to(tl.int32), axis=2), (TOKENS * CANDIDATES,))
    ids = COLUMNS - 1 - (tl.reshape(key, (TOKENS * CANDIDATES,)).to(tl.int32) & (COLUMNS - 1))
    token = first_token + tl.arange(0, TOKENS * CANDIDATES) // CANDIDATES
    mask = (token < num_tokens) & (slots < TOPK)
    s, _ = _load_scores(logits, bias, token.to(tl.int64) * row_stride + ids, ids, mask)
    s = tl.where(mask & (s == s), s, 0.0)
    total = tl.sum(tl.reshape(s, (TOKENS, CANDIDATES)), axis=1)[:, None]
    total = tl.reshape(tl.broadcast_to(total, (TOKENS, CANDIDATES)), (TOKENS * CANDIDATES,))
    weights = tl.where(total > 0.0, tl.div_rn(s, tl.where(total > 0.0, total, 1.0)) * scaling, 0.0)
    return ids, weights, slots


@triton.jit
def store_routes(
    ids, weights, slots, out_ids, out_weights, first_token, num_tokens, TOKENS: tl.constexpr, TOPK: tl.constexpr
):  # fmt: skip
    """Write what `route_tokens` returned to [M, TOPK] buffers."""
    token = first_token + tl.arange(0, slots.shape[0]) // (slots.shape[0] // TOKENS)
    mask = (token < num_tokens) & (slots < TOPK)
    offset = token.to(tl.int64) * TOPK + slots
    tl.store(out_ids + offset, ids, mask=mask)
    tl.store(out_weights + offset, weights, mask=mask)


@triton.jit(do_not_specialize=["row_stride", "num_tokens"], do_not_specialize_on_alignment=["logits", "bias"])
def _topk(
    logits, row_stride, bias, out_ids, out_weights, num_tokens, scaling,
    NUM_EXPERTS: tl.constexpr, COLUMNS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    ids, weights, slots = route_tokens(
        logits, row_stride, bias, token, num_tokens, scaling, 1, NUM_EXPERTS, COLUMNS, TOPK, TOPK_PADDED, LANES
    )
    store_routes(ids, weights, slots, out_ids, out_weights, token, num_tokens, 1, TOPK)


def padded_topk(k: int) -> int:
    """TOPK_PADDED of `route_tokens`: a power of two, and at least 2, since the network must end in a tensor."""
    return max(2, triton.next_power_of_2(k))


@functools.cache
def warp_size() -> int:
    """Lanes of a warp of the device that kernels run on; the interpreter has none and takes gfx950's."""
    if triton.knobs.runtime.interpret:
        return 64
    return triton.runtime.driver.active.get_current_target().warp_size


def check_router(
    logits: torch.Tensor, bias: torch.Tensor, k: int, scaling: float, num_experts: int | None = None
) -> None:
    """The demands of every kernel here that routes; raises ValueError or TypeError. E is the logits' own if None."""
    checks.tensor("logits", logits, (torch.float32, torch.bfloat16), (None, num_experts))
    checks.runnable("logits", logits)
    checks.experts(logits.shape[1], k)
    checks.scaling(scaling)
    checks.tensor("bias", bias, (torch.float32, torch.bfloat16), (logits.shape[1],), logits.device)


def topk(logits: torch.Tensor, bias: torch.Tensor, k: int, scaling: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Route tokens: (ids int32 [M, k], weights fp32 [M, k]) of logits [M, E] and correction bias [E]; any M."""
    check_router(logits, bias, k, scaling)
    m, e = logits.shape
    ids = torch.empty((m, k), dtype=torch.int32, device=logits.device)
    weights = torch.empty((m, k), dtype=torch.float32, device=logits.device)
    if m:
        _topk[(m,)](
            logits, logits.stride(0), bias, ids, weights, m, float(scaling),
            NUM_EXPERTS=e, COLUMNS=triton.next_power_of_2(e),
            TOPK=k, TOPK_PADDED=padded_topk(k),
            LANES=warp_size(), num_warps=4,
        )  # fmt: skip
    return ids, weights
