"""The down GEMM of the shared expert, M <= 128 tokens; behind SiTU (`situ.py`) the shared expert from gate_up on.

Of one token that is one launch (`shared_token.py`).

Replaces the GEMM of vLLM's `down_proj`. A device function of a program index, so that it can ride beside the sort.

in   hidden bf16 [M, S]; weight bf16 [H, S], a linear layer's [out, in]
out  out bf16 [M, H] = hidden weight^T, a tensor-parallel partial sum: accumulated in fp32, rounded once

Grid: program p, FEATURES rows of the weight and a group of TOKENS tokens; the groups one after the other.
Same input, same bits: a sum has one order, nothing is accumulated in memory, no program waits for another.

Each program computes a tile of out^T = weight hidden^T: the many features, not the few tokens, fill the rows of the
matrix instruction.
  64 lanes  the depth S is cut among the warps: a lane loads a weight once, in 16 bytes, into the register where MFMA
            16x16x32 wants it (`operand.py`), hidden too. Only the warps' sums meet in LDS, at the end. Up to 16 tokens
            all loads are issued before the first product waits. Above 32 Triton takes MFMA 32x32x16, which rearranges
            the operands between lanes; there the last bits of a row may be others than up to 32 tokens.
  32 lanes  tiles of 64 rows by shared memory, copied up to seven stages ahead in at most 96 KiB, so that two programs
            fit a multiprocessor of an H200 and those of the sort beside them find room.

us on an H200 at M = 1 / 8 / 16 / 32 / 64 / 128 (graph replay, 24 weights in turn; h200-variants.csv); an empty kernel
takes 0.9, reading the weight alone 4.6; behind the bar riding beside the sort; the first line is of h200-layer-glue.csv
  this                                   5.0 / 5.2 / 5.2 / 5.4 / 6.0 / 7.2  | 5.3 / 5.7 / 6.0 / 6.8 / 7.3 / 11.0
  stages of 128 columns, 5/5/5/4/3/3     4.9 / 5.0 / 5.1 / 5.5 / 6.7 / 7.5  | 5.5 / 5.6 / 5.8 / 6.4 / 7.4 / 10.7   even
  the same, 5 above 16, 4 at 128           - /   - /   - / 5.3 / 6.0 / 8.3  |   - /   - /   - / 7.7 / 9.2 / 12.3   lost
  stages of 256 columns, 3               4.9 / 5.3 / 5.5 / 5.9 / 6.6 / -    | 5.1 / 5.7 / 5.8 / 8.1 / 9.3 / -      lost
  32 rows a program, 5 or 4                - / 5.7 / 5.6 / 6.2 / 7.5 / 12   |   - / 5.8 / 5.9 / 6.5 / 9.1 / 14     lost
  128 rows a program, 3                    - / 6.2 / 6.3 /   - / 7.8 / 7.2  |   - / 6.5 / 6.8 /   - / 8.4 / 11.3   lost
  128 programs of 56 rows                4.9 / 5.1 / 5.2 / 5.4 / 6.0 / -    | 5.4 / 5.9 / 6.1 / 6.7 / 7.3 / -      even
  8 warps                                5.3 /   - / 5.3 / 5.5 / 6.3 / 6.5     lost, and the sort has 4
  weights by registers, as 64 lanes do   6.6 /   - / 7.2 / 9.5 / 14  / 22      lost there; not measured on gfx950
  torch.mm                               5.1 /   - / 5.5 / 5.5 / 5.9 / 5.8
SiTU computed again in every program, one launch for both: 11 / - / 11 / 17, where two take 6.2 / - / 6.7 / 6.8.
"""

# ruff: noqa: RUF005  tuples grow by +, which is how Triton can grow them

import torch
import triton
import triton.language as tl

from . import checks
from .bf16 import FACTOR, to_bf16
from .moe_sort import SortExtension
from .operand import operand, places
from .shared_token import launch_token
from .situ import MAX_TOKENS, WARPS, check_inter, check_situ, check_tokens, launch_situ
from .topk import warp_size

# by lanes of a warp: tokens up to; weight rows and tokens of a GEMM program, stages
_TILES = {
    64: ((16, 16, 16, 2), (32, 16, 32, 2), (64, 32, 64, 2), (128, 32, 128, 2)),
    32: ((16, 64, 16, 8), (32, 64, 32, 8), (64, 64, 64, 6), (128, 64, 64, 5)),
}
FIRST_TOKENS = (1, 2, 17, 33, 65)  # from one to the next nothing new is compiled
_STAGE = tl.constexpr(64)  # columns of a weight row in a stage
_DEPTH = tl.constexpr(256)  # columns of a weight row that one product takes
_AHEAD = tl.constexpr(3)  # of such pieces, all loaded before the first product


@triton.jit
def _load(
    matrix, first_row, num_rows, first_column,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """[WARPS, ROWS, _DEPTH / WARPS]: rows and _DEPTH columns of `matrix` [num_rows, COLUMNS], 0 outside of it."""
    row, column = places(ROWS, _DEPTH, WARPS, LANES)
    row, column = first_row + row, first_column + column
    mask = row < num_rows
    if COLUMNS // (_AHEAD * _DEPTH) * (_AHEAD * _DEPTH) != COLUMNS:
        mask = mask & (column < COLUMNS)
    return operand(tl.load(matrix + row * COLUMNS + column, mask=mask, other=0.0), ROWS, _DEPTH, WARPS, LANES)


@triton.jit
def _multiply_direct(
    weight, hidden, first_feature, first_token, num_tokens,
    HIDDEN: tl.constexpr, INTER: tl.constexpr, FEATURES: tl.constexpr, TOKENS: tl.constexpr,
    WARPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """weight x hidden^T of a tile, fp32 [FEATURES, TOKENS]: the depth cut among the warps, factors by no LDS."""
    AHEAD: tl.constexpr = min(_AHEAD, (INTER + _DEPTH - 1) // _DEPTH)
    sums = tl.zeros((WARPS, FEATURES, TOKENS), tl.float32)
    for first in range(0, INTER, AHEAD * _DEPTH):
        a, b = (), ()
        for i in tl.static_range(AHEAD):
            column = first + i * _DEPTH
            a = a + (_load(weight, first_feature, HIDDEN, column, INTER, FEATURES, WARPS, LANES),)
            b = b + (_load(hidden, first_token, num_tokens, column, INTER, TOKENS, WARPS, LANES),)
        for i in tl.static_range(AHEAD):
            sums = tl.dot(a[i], tl.permute(b[i], (0, 2, 1)), sums)
    return tl.sum(sums, axis=0)


@triton.jit
def _multiply_staged(
    weight, hidden, first_feature, first_token, num_tokens,
    HIDDEN: tl.constexpr, INTER: tl.constexpr, FEATURES: tl.constexpr, TOKENS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The same by shared memory, copied ahead of the products by STAGES - 1."""
    feature, token = first_feature + tl.arange(0, FEATURES)[:, None], first_token + tl.arange(0, TOKENS)[:, None]
    sums = tl.zeros((FEATURES, TOKENS), tl.float32)
    for first in tl.range(0, INTER, _STAGE, num_stages=STAGES):
        column = first + tl.arange(0, _STAGE)[None, :]
        mask, live = feature < HIDDEN, token < num_tokens
        if INTER // _STAGE * _STAGE != INTER:
            mask, live = mask & (column < INTER), live & (column < INTER)
        a = tl.load(weight + feature * INTER + column, mask=mask, other=0.0).to(FACTOR)
        b = tl.load(hidden + token * INTER + column, mask=live, other=0.0).to(FACTOR)
        sums = tl.dot(a, tl.trans(b), sums)
    return sums


@triton.jit
def down_program(
    index, hidden, weight, out, num_tokens,
    HIDDEN: tl.constexpr, INTER: tl.constexpr, FEATURES: tl.constexpr, TOKENS: tl.constexpr, STAGES: tl.constexpr,
    WARPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Tile `index` of out: FEATURES columns of TOKENS tokens. WARPS must be the launch's own number."""
    TILES: tl.constexpr = (HIDDEN + FEATURES - 1) // FEATURES
    first_feature, first_token = index % TILES * FEATURES, index // TILES * TOKENS
    if LANES == 64:
        value = _multiply_direct(
            weight, hidden, first_feature, first_token, num_tokens, HIDDEN, INTER, FEATURES, TOKENS, WARPS, LANES
        )
    else:
        value = _multiply_staged(
            weight, hidden, first_feature, first_token, num_tokens, HIDDEN, INTER, FEATURES, TOKENS, STAGES
        )
    feature, token = first_feature + tl.arange(0, FEATURES)[:, None], first_token + tl.arange(0, TOKENS)[None, :]
    tl.store(out + token * HIDDEN + feature, to_bf16(value), mask=(feature < HIDDEN) & (token < num_tokens))


@triton.jit
def ride_down(index, num_tokens, args, CONSTANTS: tl.constexpr):
    """`down_program` as the rider of a `SortExtension`."""
    hidden, weight, out = args
    down_program(
        index, hidden, weight, out, num_tokens,
        CONSTANTS[0], CONSTANTS[1], CONSTANTS[2], CONSTANTS[3], CONSTANTS[4], CONSTANTS[5], CONSTANTS[6],
    )  # fmt: skip


@triton.jit(do_not_specialize=["num_tokens"])
def _shared_down(hidden, weight, out, num_tokens, CONSTANTS: tl.constexpr):
    ride_down(tl.program_id(0), num_tokens, (hidden, weight, out), CONSTANTS)


def down_extension(hidden: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> SortExtension:
    """The GEMM for 1 <= M <= 128 tokens into out [M, H], to ride in a launch of WARPS warps. Checks nothing."""
    m, width = out.shape
    features, tokens, stages = next(row[1:] for row in _TILES[warp_size()] if m <= row[0])
    constants = (width, hidden.shape[1], features, tokens, stages, WARPS, warp_size())
    programs = triton.cdiv(width, features) * triton.cdiv(m, tokens)
    return SortExtension(ride_down, (hidden, weight, out), constants, programs)


def check_down(hidden: torch.Tensor, weight: torch.Tensor) -> None:
    """The demands of every kernel here that multiplies by the down weight; raises ValueError or TypeError."""
    checks.tensor("hidden", hidden, (torch.bfloat16,), (None, None))
    checks.runnable("hidden", hidden)
    check_tokens(hidden.shape[0])
    checks.contiguous("hidden", hidden)
    checks.aligned("hidden", hidden)
    checks.tensor("weight", weight, (torch.bfloat16,), (None, hidden.shape[1]), hidden.device)
    check_weight(weight)


def check_weight(weight: torch.Tensor) -> None:
    """Of the weight [H, S] alone."""
    checks.tensor("weight", weight, (torch.bfloat16,), (None, None))
    checks.contiguous("weight", weight)
    checks.aligned("weight", weight)
    check_inter(weight.shape[1])
    if not 0 < weight.numel() < 2**30 or len(weight) * MAX_TOKENS >= 2**30:
        raise ValueError(f"weight has shape {list(weight.shape)}; accepted: 1 to 2^30 - 1 elements, in 2^23 - 1 rows")


def launch_down(hidden: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """The same as a launch of its own."""
    of = down_extension(hidden, weight, out)
    _shared_down[(of.rider_programs,)](*of.rider_args, len(out), of.rider_constants, num_warps=WARPS)


def down(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """out bf16 [M, H] = hidden [M, S] @ weight [H, S]^T, both bf16; M <= 128."""
    check_down(hidden, weight)
    out = torch.empty((len(hidden), len(weight)), dtype=hidden.dtype, device=hidden.device)
    if len(hidden):
        launch_down(hidden, weight, out)
    return out


def launch_shared(
    gate_up: torch.Tensor, hidden: torch.Tensor, weight: torch.Tensor, out: torch.Tensor,
    beta: float, linear_beta: float | None,
) -> None:  # fmt: skip
    """From gate_up on, for 1 <= M <= 128 tokens: one token in one launch, more in two, by hidden [M, S]."""
    if len(out) == 1:
        launch_token(gate_up, weight, out, beta, linear_beta)
    else:
        launch_situ(gate_up, hidden, beta, linear_beta)
        launch_down(hidden, weight, out)


def shared_expert(gate_up: torch.Tensor, weight: torch.Tensor, beta: float, linear_beta: float | None) -> torch.Tensor:
    """out bf16 [M, H] of gate_up bf16 [M, 2S] and the down weight bf16 [H, S]; M <= 128."""
    check_situ(gate_up, beta, linear_beta)
    m, columns = gate_up.shape
    hidden = torch.empty((m, columns // 2), dtype=gate_up.dtype, device=gate_up.device)
    check_down(hidden, weight)
    out = torch.empty((m, len(weight)), dtype=gate_up.dtype, device=gate_up.device)
    if m:
        launch_shared(gate_up, hidden, weight, out, beta, linear_beta)
    return out
