"""Router: sigmoid + correction bias + top-k + renormalise.

One launch, as the one it replaces in AITER. Grid: one program per token.

in   logits fp32|bf16 [M, E], row stride any; bias fp32|bf16 [E]
out  ids int32 [M, K], weights fp32 [M, K], both in falling order of score

The order is that of one 64-bit key, score above id, so that a tie goes to the lower id and no two keys are equal:
winners are told apart by key and an id can never come out twice. NaN ranks below -inf, padding columns below NaN.
-0.0 needs no care: a sigmoid is never -0.0, so neither is sigmoid + bias.

Top-k in two steps. The columns are cut into chunks of 256, a chunk to a warp, and a bitonic network keeps the K best of
each, unsorted, without a barrier (`bitonic.py`). Then each of these candidates counts the larger ones, and the count is
its slot; for that every warp is handed the candidates of all, which is one barrier.

Tried, us with weights, one program a token, M = 1 to 128 on an H200 (an empty kernel takes 0.9; h200-variants.csv)
  chunks in warps, ranks and mask through LDS by Triton's layouts   4.9  25 barriers
  the same, each candidate in a lane of its warp                    3.5  kept: one barrier to the ids, five with weights
  ids alone, for a second launch that weighs                        3.2  kept for two tokens and more
  8 warps with chunks of 128                                        3.9  lost: 128 candidates to rank among
  `tl.topk`, int64 keys, 4 / 8 warps                                4.1 / 3.9  lost

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
from .bitonic import best_of, log2
from .exponential import exp_parts

_LOWEST = tl.constexpr(-(2**31))  # key of a padding column; NaN is one above it
_CHUNK = tl.constexpr(256)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) in fp32."""
    scale, part = exp_parts(tl.minimum(tl.maximum(-x, -88.0), 88.0))
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
    """fp32 sigmoid of the logits (NaN stays NaN) plus the correction bias."""
    x = tl.load(logits + offset, mask=mask, other=0.0).to(tl.float32)
    s = tl.where(x == x, sigmoid(x), x)
    return s + tl.load(bias + expert, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def best_experts(
    logits, row_stride, bias, token,
    NUM_EXPERTS: tl.constexpr, COLUMNS: tl.constexpr, TOPK_PADDED: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The best experts of one token: ids and slots, int32 [CHUNKS * WIDTH], a candidate to a lane.

    COLUMNS is `padded_experts` of NUM_EXPERTS, TOPK_PADDED `padded_topk` of K, LANES the warp size. Each chunk has
    WIDTH lanes: its candidates stand in the first TOPK_PADDED, and copies of them in all that follow. A candidate with
    slot < K is the token's expert of that place in the order; those beyond may be padding columns.
    """
    CHUNK: tl.constexpr = min(COLUMNS, _CHUNK)
    CHUNKS: tl.constexpr = COLUMNS // CHUNK
    BEST: tl.constexpr = min(CHUNK, TOPK_PADDED)
    WIDTH: tl.constexpr = min(CHUNK, LANES)
    REGISTERS: tl.constexpr = CHUNK // WIDTH

    expert = tl.arange(0, COLUMNS)  # by registers, then chunks, then lanes: the axes of `best_of`
    score = _load_scores(logits, bias, token.to(tl.int64) * row_stride + expert, expert, expert < NUM_EXPERTS)
    key = _rank_key(score, expert, NUM_EXPERTS, COLUMNS)
    if CHUNK > BEST:
        DIMS: tl.constexpr = log2(COLUMNS)
        key = best_of(tl.reshape(key, [2] * DIMS), DIMS, log2(CHUNK), log2(BEST), log2(REGISTERS))

    # A key's place in its chunk is register + REGISTERS * lane, and places that differ by BEST now hold the same key.
    # Each lane takes the one of its registers that makes every BEST lanes in a row hold all BEST keys.
    KEPT: tl.constexpr = min(REGISTERS, BEST)
    lane = tl.arange(0, CHUNKS * WIDTH)
    held = tl.arange(0, REGISTERS)[:, None] == (lane // (BEST // KEPT) % KEPT)[None, :]
    key = tl.sum(tl.where(held, tl.reshape(key, (REGISTERS, CHUNKS * WIDTH)), 0), axis=0)
    candidates = tl.reshape(tl.max(tl.reshape(key, (CHUNKS, WIDTH // BEST, BEST)), axis=1), (CHUNKS * BEST,))
    slots = tl.sum((candidates[:, None] > key[None, :]).to(tl.int32), axis=0)
    return COLUMNS - 1 - (key.to(tl.int32) & (COLUMNS - 1)), slots


@triton.jit
def weights_of(logits, offset, mask, scaling, SLOTS: tl.constexpr):
    """fp32 weights [n] of experts whose logits are at `offset` [n], each SLOTS places in a row those of one token.

    Slots that `mask` leaves out count 0, and the sum is a tree in which zeros past slot K change nothing, whatever
    SLOTS is. So the bits are the same in every kernel and for every M.
    """
    x = tl.load(logits + offset, mask=mask, other=0.0).to(tl.float32)
    s = tl.where(mask & (x == x), sigmoid(x), 0.0)
    total = tl.reshape(s, [s.shape[0] // SLOTS] + [2] * log2(SLOTS))
    for axis in tl.static_range(1, log2(SLOTS) + 1):
        total = tl.sum(total, axis=axis, keep_dims=True)
    total = tl.reshape(tl.broadcast_to(total, [s.shape[0] // SLOTS] + [2] * log2(SLOTS)), s.shape)
    return tl.where(total > 0.0, tl.div_rn(s, tl.where(total > 0.0, total, 1.0)) * scaling, 0.0)


@triton.jit
def by_slot(ids, slots, SLOTS: tl.constexpr):
    """Of what `best_experts` returned, the ids in order: int32 [SLOTS], all in each thread, and slot t % SLOTS in t."""
    held = slots[None, :] == tl.arange(0, SLOTS)[:, None]
    every = tl.max(tl.where(held, ids[None, :], 0), axis=1)
    own = tl.arange(0, ids.shape[0]) % SLOTS
    return every, tl.sum(tl.where(tl.arange(0, SLOTS)[:, None] == own[None, :], every[:, None], 0), axis=0)


@triton.jit
def store_best(
    ids, slots, out_ids, masks, columns, token, num_tokens,
    COLUMNS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr,
):  # fmt: skip
    """Write what `best_experts` returned: the row of ids [M, TOPK] and, unless None, the token's mask.

    That is a row of masks [M, 32] (`moe_sort.py`) and a column of columns [32, M].
    The experts of a mask word are all of one chunk, so that each warp knows its words by itself.
    """
    CHUNKS: tl.constexpr = max(COLUMNS // _CHUNK, 1)
    WIDTH: tl.constexpr = ids.shape[0] // CHUNKS
    chunk, lane = tl.arange(0, CHUNKS * WIDTH) // WIDTH, tl.arange(0, CHUNKS * WIDTH) % WIDTH
    own = (lane < TOPK_PADDED) & (slots < TOPK)
    tl.store(out_ids + token.to(tl.int64) * TOPK + slots, ids, mask=own)
    if masks is not None:
        WORDS: tl.constexpr = 32 // CHUNKS
        HALVES: tl.constexpr = WIDTH // 32
        nth = tl.arange(0, WORDS)[:, None]
        word = (nth // HALVES * CHUNKS + chunk[None, :]) * HALVES + nth % HALVES
        bits = tl.where(own[None, :] & ((ids >> 5)[None, :] == word), (1 << (ids & 31))[None, :], 0)
        bits = tl.sum(tl.reshape(bits, (WORDS, CHUNKS, WIDTH)), axis=2, keep_dims=True)
        bits = tl.reshape(tl.broadcast_to(bits, (WORDS, CHUNKS, WIDTH)), (WORDS, CHUNKS * WIDTH))
        held = nth == lane[None, :]  # the nth word goes out by the nth lane
        bits, word = tl.sum(tl.where(held, bits, 0), axis=0), tl.sum(tl.where(held, word, 0), axis=0)
        tl.store(masks + token * 32 + word, bits, mask=lane < WORDS)
        tl.store(columns + word * num_tokens + token, bits, mask=lane < WORDS)


@triton.jit(do_not_specialize=["row_stride"], do_not_specialize_on_alignment=["logits", "bias"])
def _topk(
    logits, row_stride, bias, out_ids, out_weights, scaling,
    NUM_EXPERTS: tl.constexpr, COLUMNS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    ids, slots = best_experts(logits, row_stride, bias, token, NUM_EXPERTS, COLUMNS, TOPK_PADDED, LANES)
    store_best(ids, slots, out_ids, None, None, token, 0, COLUMNS, TOPK, TOPK_PADDED)
    thread = tl.arange(0, ids.shape[0])
    slot = thread % TOPK_PADDED
    _, id = by_slot(ids, slots, TOPK_PADDED)
    weight = weights_of(logits, token.to(tl.int64) * row_stride + id, slot < TOPK, scaling, TOPK_PADDED)
    tl.store(out_weights + token.to(tl.int64) * TOPK + slot, weight, mask=thread < TOPK)


def padded_experts(num_experts: int) -> int:
    """COLUMNS of `best_experts`: a power of two, and at least 32, the lanes that a mask's words take."""
    return max(32, triton.next_power_of_2(num_experts))


def padded_topk(k: int) -> int:
    """TOPK_PADDED of `best_experts`: a power of two, and at least 2, since the network must end in a tensor."""
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
            logits, logits.stride(0), bias, ids, weights, float(scaling),
            NUM_EXPERTS=e, COLUMNS=padded_experts(e),
            TOPK=k, TOPK_PADDED=padded_topk(k),
            LANES=warp_size(), num_warps=4,
        )  # fmt: skip
    return ids, weights
