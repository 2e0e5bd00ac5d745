"""The latent tail: RMSNorm, this rank's rows of the up-projection, and the sum with the shared partial, in one launch.

Replaces an RMSNorm, a GEMM and (where the GEMM has no epilogue for it) an addition.

in   y bf16 [M, L], the routed experts' output summed over ranks; norm_weight g bf16 [L]; eps; up bf16 [N, L], the rows
     of Wup that this rank computes
out  bf16 [M, N], these columns of the shared partial [M, H], added to in place

Grid
  program (p, q)   COLUMNS columns of ROWS tokens. Programs on the same rows of `up` are a multiple of 8 apart at
                   Kimi-K3's sizes, so on gfx950 they share an XCD's L2.

Warp w of a program owns every WARPS-th slice of 32 columns of y and `up`, and the whole tile of the product for
them: a batched dot, whose batch is the warps. The parts are added up through LDS at the end, once. No program waits for
another, nothing is accumulated in memory.

A lane loads what it multiplies (`operand.py`): nothing is exchanged between lanes before the parts are added up. The
loads of the first AHEAD steps, which are all where registers go that far, are under way before the first product.

The norm's scale of a token is one factor of its row of the product, so it comes last, out = r * sum_k (y g) up + out,
with r = rsqrt(mean(y^2) + eps) of the same tiles of y that the dot reads.

Bits: the same input gives the same bits, whatever the rows around it. y * g is rounded to bf16 once (stock rounds the
normalised row before and after g), sums are fp32, the result is rounded once. With u = 2^-8, n the exact normalised
row and S = sum_k |n_k up_k|, up to the rounding of fp32:
  |out - exact| <= u (|exact| + S)        |out - stock| <= u (2 |exact| + 3 S)
NaN or inf in y make their own row NaN. Where the sum of squares overflows fp32 (|y| above 1e17) stock's norm is 0; so
is ours, or NaN.

us on an H200 at M = 1 / 8 / 16 / 32 / 64 / 128 (graph replay, weights in turn; the first two lines are of
benchmarks/results/h200-layer-glue.csv, the others of h200-variants.csv)
  PyTorch's rms_norm and addmm_                         14.1 / 14.0 / 13.9 / 14.0 / 14.2 / 14.7
  this                                                   6.3 /  7.1 /  7.9 /  8.8 / 11.6 / 21.1   served to 64
  loads not held before their use                        9.3 /    - / 11.4 / 12.6 /    - /    -   lost
  16 warps                                               7.7 /  8.8 /  9.4 / 15.6 / 21.3 / 40.3   lost
  squares by a product of y with itself                  7.2 /  8.0 /  8.9 / 15.2 /    - /    -   lost
  g into the weight instead                              6.5 /  7.2 /  8.1 / 13.4 /    - /    -   no gain
  weights by shared memory, three stages and more ahead 12.6 /    - / 14.2 / 23.4 / 24   / 24     lost
  one product for all warps, staged                     24.9 /    - / 21.5 / 19.1 / 18.7 / 18.9   lost to 64
The target is 4.5 at M <= 32, 6 at 128. Every program reads whole rows of y: at 32 tokens y for 56 tiles of columns and
the weights for two of tokens are 26 MB from the L2, where the weights alone are 6.4. Only a hand-over of sums between
programs, for fewer columns of y each, or a cluster that shares its loads, would save that.
"""

import math

import torch
import triton
import triton.language as tl

from . import checks
from .bf16 import to_bf16
from .operand import issue, operand, places
from .topk import warp_size

MAX_TOKENS = 128
STEP = 512  # L is a multiple of it
COLUMNS = 16  # N is a multiple of it

# by lanes of a warp: tokens up to; tokens and columns of a program, warps, steps that it loads ahead
_TILES = {
    64: ((128, 16, 16, 16, 7),),  # 32 tokens spill
    32: ((16, 16, 8, 8, 14), (32, 16, 16, 8, 8), (128, 32, 16, 8, 4)),
}
FIRST_TOKENS = (1, 17, 33)  # from one to the next nothing new is compiled


@triton.jit
def _sum_rows(by_lane, ROWS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr):
    """[ROWS] of [ROWS / TALL, WARPS, LANES], where a lane holds its part of a row."""
    TALL: tl.constexpr = LANES // 4
    if LANES == 64:
        rows = tl.sum(tl.reshape(by_lane, (ROWS // TALL, WARPS, 4, TALL)), axis=2)
    else:
        rows = tl.sum(tl.reshape(by_lane, (ROWS // TALL, WARPS, TALL, 4)), axis=3)
    return tl.reshape(tl.sum(rows, axis=1), (ROWS,))


@triton.jit(do_not_specialize=["num_tokens", "y_stride", "out_stride"])
def _latent_tail(
    y, y_stride, norm_weight, eps, up, out, out_stride, num_tokens,
    LATENT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AHEAD: tl.constexpr,
    WARPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    STEP: tl.constexpr = WARPS * 32
    STEPS: tl.constexpr = LATENT // STEP
    TALLS: tl.constexpr = ROWS // (LANES // 4)
    first_column, first_token = tl.program_id(0) * COLUMNS, tl.program_id(1) * ROWS
    row, column = places(COLUMNS, STEP, WARPS, LANES)
    from_up = up + (first_column + row) * LATENT + column
    row, column = places(ROWS, STEP, WARPS, LANES)
    live = first_token + row < num_tokens
    from_y = y + (first_token + row) * (y_stride * 8) + column
    _, column = places(LANES // 4, STEP, WARPS, LANES)  # the same for all rows
    from_norm = norm_weight + column
    token = first_token + tl.arange(0, ROWS)[:, None]
    place = out + token * (out_stride * 8) + first_column + tl.arange(0, COLUMNS)[None, :]

    weights, rows = (), ()
    for step in tl.static_range(min(AHEAD, STEPS)):
        weights += (tl.load(from_up + step * STEP),)
    shared = tl.load(place, mask=token < num_tokens, other=0.0)
    for step in tl.static_range(min(AHEAD, STEPS)):
        rows += (tl.load(from_y + step * STEP, mask=live, other=0.0),)
    issue(LANES)
    product = tl.zeros((WARPS, ROWS, COLUMNS), tl.float32)
    squares = tl.zeros((TALLS, WARPS, LANES), tl.float32)
    for step in tl.static_range(STEPS):
        if step + AHEAD < STEPS:
            weights += (tl.load(from_up + (step + AHEAD) * STEP),)
            rows += (tl.load(from_y + (step + AHEAD) * STEP, mask=live, other=0.0),)
            issue(LANES)
        gain = tl.load(from_norm + step * STEP).to(tl.float32)[None, :]
        value = tl.reshape(rows[step].to(tl.float32), (TALLS, WARPS * LANES * 8))
        squares += tl.sum(tl.reshape(value * value, (TALLS, WARPS, LANES, 8)), axis=3)
        scaled = operand(to_bf16(value * gain), ROWS, STEP, WARPS, LANES)
        weight = operand(weights[step], COLUMNS, STEP, WARPS, LANES)
        product = tl.dot(scaled, tl.permute(weight, (0, 2, 1)), product)
    scale = tl.rsqrt(_sum_rows(squares, ROWS, WARPS, LANES) / LATENT + eps)
    tail = tl.sum(product, axis=0) * scale[:, None] + shared.to(tl.float32)
    tl.store(place, to_bf16(tail), mask=token < num_tokens)


def _span(rows: torch.Tensor) -> range:
    """Addresses from the first element of [M, columns] to the last."""
    size = (len(rows) - 1) * rows.stride(0) + rows.shape[1]
    return range(rows.data_ptr(), rows.data_ptr() + size * rows.element_size())


def check_weights(norm_weight: torch.Tensor, eps: float, up: torch.Tensor) -> None:
    """Of what does not change between calls."""
    bf16 = (torch.bfloat16,)
    checks.tensor("up", up, bf16, (None, None))
    columns, latent = up.shape
    if not latent or latent % STEP:
        raise ValueError(f"L={latent} columns of up; accepted: a multiple of {STEP}")
    checks.contiguous("up", up)
    if not columns or columns % COLUMNS:
        raise ValueError(f"{columns} rows of up; accepted: a multiple of {COLUMNS}")
    checks.tensor("norm_weight", norm_weight, bf16, (latent,), up.device)
    checks.aligned("up", up)
    checks.aligned("norm_weight", norm_weight[None])
    if isinstance(eps, bool) or not isinstance(eps, int | float):
        raise TypeError(f"eps={eps!r} is a {type(eps).__name__}; accepted: float")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps={eps!r}; accepted: finite and not below 0")


def check_tail(y: torch.Tensor, norm_weight: torch.Tensor, eps: float, up: torch.Tensor, out: torch.Tensor) -> None:
    """Raises TypeError or ValueError on what the kernel does not serve."""
    check_weights(norm_weight, eps, up)
    columns, latent = up.shape
    checks.tensor("y", y, (torch.bfloat16,), (None, latent), up.device)
    checks.runnable("y", y)
    m = len(y)
    if m > MAX_TOKENS:
        raise ValueError(f"M={m} tokens; accepted: 0 to {MAX_TOKENS}")
    checks.tensor("out", out, (torch.bfloat16,), (m, columns), y.device)
    for name, value in (("y", y), ("out", out)):
        checks.aligned(name, value)
    if m > 1 and out.stride(0) < columns:
        raise ValueError(f"out has row stride {out.stride(0)}; accepted: {columns} or more")
    own = _span(out)
    for name, value in (("y", y), ("norm_weight", norm_weight[None]), ("up", up)):
        read = _span(value)
        if m and max(read.start, own.start) < min(read.stop, own.stop):
            raise ValueError(f"out overlaps {name}, which every program reads; accepted: buffers apart")


def launch_tail(y: torch.Tensor, norm_weight: torch.Tensor, eps: float, up: torch.Tensor, out: torch.Tensor) -> None:
    """Launch for 1 <= M <= 128 tokens. Checks nothing."""
    m, n = out.shape
    rows, columns, warps, ahead = next(tile[1:] for tile in _TILES[warp_size()] if m <= tile[0])
    _latent_tail[n // columns, triton.cdiv(m, rows)](
        y, y.stride(0) // 8, norm_weight, float(eps), up, out, out.stride(0) // 8, m,  # strides of 16 bytes each
        LATENT=y.shape[1], ROWS=rows, COLUMNS=columns, AHEAD=ahead, WARPS=warps, LANES=warp_size(), num_warps=warps,
    )  # fmt: skip


def latent_tail(y: torch.Tensor, norm_weight: torch.Tensor, eps: float, up: torch.Tensor, out: torch.Tensor) -> None:
    """out += RMSNorm(y) @ up.T for M <= 128 tokens: y bf16 [M, L], norm_weight bf16 [L], up bf16 [N, L] contiguous,
    out bf16 [M, N], both with rows at multiples of 16 bytes and any row stride.

    Raises TypeError or ValueError, before anything is launched, on what the kernel does not serve.
    """
    check_tail(y, norm_weight, eps, up, out)
    if len(y):
        launch_tail(y, norm_weight, eps, up, out)
