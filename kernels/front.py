"""What the launches of the front share: the buffers, and the part of the work that does not depend on routing."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .moe_sort import Sorted
from .mx import _GROUP, quantise_slice


def slice_groups(num_tokens: int) -> int:
    """Groups of 32 columns that one quantising program takes: of few tokens few, so that the work is in many hands."""
    return 16 if num_tokens <= 32 else 128


class Front(NamedTuple):
    """What a front writes. `rows` and both scales are None in mode none, where stage 1 reads x itself."""

    ids: torch.Tensor  # int32 [M, K]
    weights: torch.Tensor  # fp32 [M, K]
    sorted: Sorted
    # what the first of two launches hands the second
    masks: torch.Tensor  # int32 [M, 32]: `moe_sort.py`
    columns: torch.Tensor  # int32 [32, M]: masks, transposed
    row_scales: torch.Tensor | None  # e8m0 uint8 [M, L/32]
    # what the GEMMs take beside `sorted`
    rows: torch.Tensor | None  # uint8 [M, L] (e4m3fn) or [M, L/2] (e2m1 pairs)
    scales: torch.Tensor | None  # e8m0 uint8 [ceil32(sorted rows), ceil8(L/32)], bytes at `mx.scale_offset`
    zeroed: torch.Tensor | None  # [M, L], what stage 2 accumulates into


@triton.jit
def prepare_slice(
    x, row_stride, rows, row_scales, zeroed, index,
    MODE: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """What does not depend on routing, for slice `index` of all tokens' slices: quantise it, zero it in the output."""
    SLICES: tl.constexpr = (WIDTH // _GROUP + GROUPS - 1) // GROUPS
    token, first = index // SLICES, index % SLICES * GROUPS
    if zeroed is not None:
        column = first * _GROUP + tl.arange(0, GROUPS * _GROUP)
        zero = tl.zeros((GROUPS * _GROUP,), zeroed.dtype.element_ty)
        tl.store(zeroed + token.to(tl.int64) * WIDTH + column, zero, mask=column < WIDTH)
    if rows is not None:
        quantise_slice(x, row_stride, rows, row_scales, token, first, MODE, WIDTH, GROUPS)
