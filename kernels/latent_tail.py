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

Loads are one-dimensional, 16 bytes a lane, and dealt so that a lane loads what it multiplies: nothing is exchanged
between lanes before the parts are added up, and all loads come before the first dot as far as registers go.

The norm's scale of a token is one factor of its row of the product, so it comes last, out = r * sum_k (y g) up + out,
with r = rsqrt(mean(y^2) + eps) of the same tiles of y that the dot reads.

Bits: the same input gives the same bits, whatever the rows around it. y * g is rounded to bf16 once (stock rounds the
normalised row before and after g), sums are fp32, the result is rounded once. With u = 2^-8, n the exact normalised
row and S = sum_k |n_k up_k|, up to the rounding of fp32:
  |out - exact| <= u (|exact| + S)        |out - stock| <= u (2 |exact| + 3 S)
NaN or inf in y make their own row NaN. Where the sum of squares overflows fp32 (|y| above 1e17) stock's norm is 0; so
is ours, or NaN.

Tried, us on an H200 (graph replay, weights in turn); PyTorch's rms_norm and addmm_ take 12.4, addmm_ alone 10.9
  4 columns a program by FMA, no dot                    5.9 at M=1
  this, but what a warp multiplies loaded by others     9.7 to 12 at M <= 16    lost: all of it goes through LDS
  one dot over the whole depth, a warp's columns        24 and more             lost: the norm's arithmetic in its loop
As it stands it has not been timed.
"""

import math

import torch
import triton
import triton.language as tl

from . import checks
from .bf16 import FACTOR, to_bf16
from .topk import warp_size

MAX_TOKENS = 128  # beyond, rereading y for every tile of columns costs more than a norm of its own
WARPS = 16
STEP = WARPS * 32  # columns: of a warp those of one matrix instruction on gfx950, of two on NVIDIA's
ROWS = 16  # tokens of a program; 32 spill on gfx950
COLUMNS = 16  # of a program; N is a multiple of it


@triton.jit
def _places(ROWS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr):
    """(row, column) int32 [ROWS * STEP] of the elements of a load: 8 columns a lane, 4 lanes a row's 32 of a warp."""
    TALL: tl.constexpr = LANES // 4  # rows that a warp loads at a time
    element = tl.arange(0, ROWS * WARPS * 32)
    lane, warp, nth = element // 8 % LANES, element // (8 * LANES) % WARPS, element // (8 * LANES * WARPS)
    if LANES == 64:  # as MFMA 16x16x32 wants an operand
        row, eight = lane % TALL, lane // TALL
    else:
        row, eight = lane // 4, lane % 4
    return nth * TALL + row, warp * 32 + eight * 8 + element % 8


@triton.jit
def _operand(loaded, ROWS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr):
    """A load -> [WARPS, ROWS, 32], for the dot. The order of the columns is the same for both of its operands."""
    TALL: tl.constexpr = LANES // 4
    if LANES == 64:
        loaded = tl.permute(tl.reshape(loaded, (ROWS // TALL, WARPS, 4, TALL, 8)), (1, 0, 3, 2, 4))
    else:
        # lane c of a row holds columns 8c + 4s + 2h + e; NVIDIA's instruction s wants those at 16s + 8h + 2c + e of it:
        # in that order nothing is exchanged between lanes
        loaded = tl.reshape(loaded, (ROWS // TALL, WARPS, TALL, 4, 2, 2, 2))
        loaded = tl.permute(loaded, (1, 0, 2, 4, 5, 3, 6))
    return tl.reshape(loaded, (WARPS, ROWS, 32)).to(FACTOR)


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
    LATENT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    STEP: tl.constexpr = WARPS * 32
    TALLS: tl.constexpr = ROWS // (LANES // 4)
    first_column, first_token = tl.program_id(0) * COLUMNS, tl.program_id(1) * ROWS
    row, column = _places(COLUMNS, WARPS, LANES)
    from_up = up + (first_column + row) * LATENT + column
    row, column = _places(ROWS, WARPS, LANES)
    live = first_token + row < num_tokens
    from_y = y + (first_token + row) * (y_stride * 8) + column
    _, column = _places(LANES // 4, WARPS, LANES)  # the same for all rows
    from_norm = norm_weight + column
    token = first_token + tl.arange(0, ROWS)[:, None]
    place = out + token * (out_stride * 8) + first_column + tl.arange(0, COLUMNS)[None, :]

    weights, rows, gains = (), (), ()
    for first in tl.static_range(0, LATENT, STEP):
        weights += (tl.load(from_up + first),)
    shared = tl.load(place, mask=token < num_tokens, other=0.0)
    for first in tl.static_range(0, LATENT, STEP):
        rows += (tl.load(from_y + first, mask=live, other=0.0),)
        gains += (tl.load(from_norm + first),)
    product = tl.zeros((WARPS, ROWS, COLUMNS), tl.float32)
    squares = tl.zeros((TALLS, WARPS, LANES), tl.float32)
    for step in tl.static_range(LATENT // STEP):
        value = tl.reshape(rows[step].to(tl.float32), (TALLS, WARPS * LANES * 8))
        squares += tl.sum(tl.reshape(value * value, (TALLS, WARPS, LANES, 8)), axis=3)
        scaled = _operand(to_bf16(value * gains[step].to(tl.float32)[None, :]), ROWS, WARPS, LANES)
        weight = _operand(weights[step], COLUMNS, WARPS, LANES)
        product = tl.dot(scaled, tl.permute(weight, (0, 2, 1)), product)
    scale = tl.rsqrt(_sum_rows(squares, ROWS, WARPS, LANES) / LATENT + eps)
    tail = tl.sum(product, axis=0) * scale[:, None] + shared.to(tl.float32)
    tl.store(place, to_bf16(tail), mask=token < num_tokens)


def _span(rows: torch.Tensor) -> range:
    """Addresses from the first element of [M, columns] to the last."""
    size = (len(rows) - 1) * rows.stride(0) + rows.shape[1]
    return range(rows.data_ptr(), rows.data_ptr() + size * rows.element_size())


def check_tail(y: torch.Tensor, norm_weight: torch.Tensor, eps: float, up: torch.Tensor, out: torch.Tensor) -> None:
    """Raises TypeError or ValueError on what the kernel does not serve."""
    bf16 = (torch.bfloat16,)
    checks.tensor("y", y, bf16, (None, None))
    checks.runnable("y", y)
    m, latent = y.shape
    if not latent or latent % STEP:
        raise ValueError(f"L={latent} columns of y; accepted: a multiple of {STEP}")
    if m > MAX_TOKENS:
        raise ValueError(f"M={m} tokens; accepted: 0 to {MAX_TOKENS}")
    checks.tensor("norm_weight", norm_weight, bf16, (latent,), y.device)
    checks.tensor("up", up, bf16, (None, latent), y.device)
    checks.contiguous("up", up)
    if not len(up) or len(up) % COLUMNS:
        raise ValueError(f"{len(up)} rows of up; accepted: a multiple of {COLUMNS}")
    checks.tensor("out", out, bf16, (m, len(up)), y.device)
    for name, value in (("y", y), ("norm_weight", norm_weight[None]), ("up", up), ("out", out)):
        checks.aligned(name, value)
    for name, value in (("y", y), ("up", up), ("out", out)):
        if m and len(_span(value)) >= 2**31:
            raise ValueError(f"{name} lies in {len(_span(value))} bytes; accepted: below 2^31")
    if m > 1 and out.stride(0) < len(up):
        raise ValueError(f"out has row stride {out.stride(0)}; accepted: {len(up)} or more")
    if m and max(_span(y).start, _span(out).start) < min(_span(y).stop, _span(out).stop):
        raise ValueError("out overlaps y, which every program reads; accepted: buffers apart")
    if isinstance(eps, bool) or not isinstance(eps, int | float):
        raise TypeError(f"eps={eps!r} is a {type(eps).__name__}; accepted: float")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps={eps!r}; accepted: finite and not below 0")


def latent_tail(y: torch.Tensor, norm_weight: torch.Tensor, eps: float, up: torch.Tensor, out: torch.Tensor) -> None:
    """out += RMSNorm(y) @ up.T for M <= 128 tokens: y bf16 [M, L], norm_weight bf16 [L], up bf16 [N, L] contiguous,
    out bf16 [M, N], both with rows at multiples of 16 bytes and any row stride.

    Raises TypeError or ValueError, before anything is launched, on what the kernel does not serve.
    """
    check_tail(y, norm_weight, eps, up, out)
    m, n = out.shape
    if m == 0:
        return
    _latent_tail[n // COLUMNS, triton.cdiv(m, ROWS)](
        y, y.stride(0) // 8, norm_weight, float(eps), up, out, out.stride(0) // 8, m,  # strides of 16 bytes each
        LATENT=y.shape[1], ROWS=ROWS, COLUMNS=COLUMNS, WARPS=WARPS, LANES=warp_size(), num_warps=WARPS,
    )  # fmt: skip
