"""The shared expert of one token from gate_up on, in one launch: SiTU, and the down projection without a dot.

Replaces an activation and a GEMM. A device function of a program index, so that it can ride beside the front of one
token, which has no launch boundary for SiTU to end at.

in   gate_up bf16 [1, 2S], the gate's columns first; weight bf16 [H, S], a linear layer's [out, in]
out  out bf16 [1, H] = hidden weight^T, hidden = SiTU(gate_up) rounded to bf16: a tensor-parallel partial sum,
     accumulated in fp32, rounded once

Grid: program p, ROWS rows of the weight. Each computes all of SiTU, S elements for its 4 warps, while its weight is on
the way; for more tokens that costs more than a launch (`shared_expert.py`). A row belongs to a warp from its first byte
to its sum. Same input, same bits; others than of a batch of two, whose products add up in another order.

us beside the front of one token on an H200 (benchmarks/results/h200-layer-glue.csv and h200-variants.csv)
  this, one launch                           6.4, 6.7  with 16, 32 or 64 rows, the fastest; which is not on record
  SiTU, then the front and the GEMM          7.5       lost
  the router and SiTU, the sort and the GEMM 8.6       lost
"""

import torch
import triton
import triton.language as tl

from .bf16 import to_bf16
from .moe_sort import SortExtension
from .operand import issue
from .situ import WARPS, situ
from .topk import warp_size

ROWS = 32  # of the weight, of a program
_PIECE = tl.constexpr(256)  # columns of a weight row in a load
_AHEAD = tl.constexpr(3)  # loads before the first product


@triton.jit
def token_program(
    index, gate_up, weight, out,
    HIDDEN: tl.constexpr, INTER: tl.constexpr, BETA: tl.constexpr, LINEAR_BETA: tl.constexpr, ROWS: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """Rows `index * ROWS ..` of the weight: as many elements of out."""
    AHEAD: tl.constexpr = min(_AHEAD, (INTER + _PIECE - 1) // _PIECE)
    row = index * ROWS + tl.arange(0, ROWS)
    sums = tl.zeros((ROWS, _PIECE), tl.float32)
    for first in range(0, INTER, AHEAD * _PIECE):
        weights = ()
        for i in tl.static_range(AHEAD):
            column = first + i * _PIECE + tl.arange(0, _PIECE)
            mask = (row < HIDDEN)[:, None] & (column < INTER)[None, :]
            weights += (tl.load(weight + row[:, None] * INTER + column[None, :], mask=mask, other=0.0),)
        issue(LANES)
        for i in tl.static_range(AHEAD):
            column = first + i * _PIECE + tl.arange(0, _PIECE)
            g = tl.load(gate_up + column, mask=column < INTER, other=0.0).to(tl.float32)
            u = tl.load(gate_up + INTER + column, mask=column < INTER, other=0.0).to(tl.float32)
            hidden = to_bf16(situ(g, u, BETA, LINEAR_BETA)).to(tl.float32)
            sums += weights[i].to(tl.float32) * hidden[None, :]
    tl.store(out + row, to_bf16(tl.sum(sums, axis=1)), mask=row < HIDDEN)


@triton.jit
def ride_token(index, num_tokens, args, CONSTANTS: tl.constexpr):
    """`token_program` as the rider of a `SortExtension`."""
    gate_up, weight, out = args
    token_program(
        index, gate_up, weight, out,
        CONSTANTS[0], CONSTANTS[1], CONSTANTS[2], CONSTANTS[3], CONSTANTS[4], CONSTANTS[5],
    )  # fmt: skip


@triton.jit
def _shared_token(gate_up, weight, out, CONSTANTS: tl.constexpr):
    ride_token(tl.program_id(0), 1, (gate_up, weight, out), CONSTANTS)


def token_extension(
    gate_up: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, beta: float, linear_beta: float | None
) -> SortExtension:
    """SiTU and down of one token into out [1, H], to ride in a launch of WARPS warps. Checks nothing."""
    hidden, inter = weight.shape
    betas = (float(beta), None if linear_beta is None else float(linear_beta))
    constants = (hidden, inter, *betas, ROWS, warp_size())
    return SortExtension(ride_token, (gate_up, weight, out), constants, triton.cdiv(hidden, ROWS))


def launch_token(
    gate_up: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, beta: float, linear_beta: float | None
) -> None:
    """The same as a launch of its own."""
    of = token_extension(gate_up, weight, out, beta, linear_beta)
    _shared_token[(of.rider_programs,)](*of.rider_args, of.rider_constants, num_warps=WARPS)
