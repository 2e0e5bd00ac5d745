"""How a warp loads what it multiplies, in a batched dot whose batch is the warps: each takes a part of the depth.

`places` says where the elements of a one-dimensional load lie, `operand` gives the loaded their shape. A lane loads 8
columns, which is 16 bytes, and 4 lanes 32 columns of a row: dealt so that they are in the lane and the register where
the matrix instruction wants them, and nothing is exchanged between lanes. Both factors of a dot must come this way: the
order of the columns within 32 is the load's, not the matrix's.
  64 lanes  MFMA 16x16x32: lane l holds columns 8 (l / 16) .. of row l % 16
  32 lanes  mma m16n8k16, two for 32 columns: lane c of a row holds columns 8c + 4s + 2h + e, and instruction s wants
            those at 16s + 8h + 2c + e of it
"""

import triton
import triton.language as tl

from .bf16 import FACTOR


@triton.jit
def places(ROWS: tl.constexpr, DEPTH: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr):
    """(row, column) int32 [ROWS * DEPTH] of the elements of a load of ROWS rows and DEPTH columns."""
    TALL: tl.constexpr = LANES // 4  # rows that a warp loads at a time
    TALLS: tl.constexpr = ROWS // TALL
    TURNS: tl.constexpr = DEPTH // (32 * WARPS)
    element = tl.arange(0, ROWS * DEPTH)
    lane, warp, nth = element // 8 % LANES, element // (8 * LANES) % WARPS, element // (8 * LANES * WARPS)
    if LANES == 64:
        row, eight = lane % TALL, lane // TALL
    else:
        row, eight = lane // 4, lane % 4
    column = (warp * TURNS + nth // TALLS) * 32 + eight * 8 + element % 8
    return nth % TALLS * TALL + row, column


@triton.jit
def issue(LANES: tl.constexpr):
    """Have the loads before it under way. NVIDIA's assembler else moves each to its use: two in flight, not all."""
    if LANES == 32:
        tl.debug_barrier()


@triton.jit
def operand(loaded, ROWS: tl.constexpr, DEPTH: tl.constexpr, WARPS: tl.constexpr, LANES: tl.constexpr):
    """What was loaded from `places` as [WARPS, ROWS, DEPTH / WARPS], for `tl.dot`."""
    TALL: tl.constexpr = LANES // 4
    TALLS: tl.constexpr = ROWS // TALL
    TURNS: tl.constexpr = DEPTH // (32 * WARPS)
    if LANES == 64:
        loaded = tl.permute(tl.reshape(loaded, (TURNS, TALLS, WARPS, 4, TALL, 8)), (2, 1, 4, 0, 3, 5))
    else:
        loaded = tl.reshape(loaded, (TURNS, TALLS, WARPS, TALL, 4, 2, 2, 2))
        loaded = tl.permute(loaded, (2, 1, 3, 0, 5, 6, 4, 7))
    return tl.reshape(loaded.to(FACTOR), (WARPS, ROWS, DEPTH // WARPS))
