"""M up to 512: route, quantise and zero the output buffer in one launch, sort in a second.

Grid of launch 1
  programs 0 .. M-1   route one token each; write its ids and, along and across, the mask of its experts
  programs M ..       one slice of one token: quantise it, plain scales beside the rows; zero the output
  then                riders: SiTU of the shared expert (`situ.py`)
Launch 2 is the sort by token (`token_sort.py`): weights, sorted rows, and each sorted row's scale bytes; behind its
programs ride those of the shared expert's down GEMM (`shared_expert.py`). It needs all of SiTU: the boundary between
the two launches serves both.

The launch boundary is the only hand-over. Masks and plain scales are stored whole every time, never added to, so there
is no counter to zero: a second launch that never comes leaves nothing behind that the next call could trip over.

in, out: as route_sort.py.
"""

import triton
import triton.language as tl

from .front import Front, prepare_slice, slice_groups
from .moe_sort import NO_EXTENSION, SortExtension
from .mx import GROUP
from .token_sort import sort_by_token
from .topk import best_experts, padded_experts, padded_topk, store_best, warp_size


@triton.jit(
    do_not_specialize=["num_tokens", "logits_stride", "x_stride"], do_not_specialize_on_alignment=["logits", "bias"]
)
def _route_quantise(
    logits, logits_stride, bias, x, x_stride, num_tokens, out_ids, masks, columns, rows, row_scales, zeroed,
    RIDER: tl.constexpr, rider_args, RIDER_CONSTANTS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr, COLUMNS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr,
    MODE: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr, SLICES: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if pid < num_tokens:
        ids, slots = best_experts(logits, logits_stride, bias, pid, NUM_EXPERTS, COLUMNS, TOPK_PADDED, LANES)
        store_best(ids, slots, out_ids, masks, columns, pid, num_tokens, COLUMNS, TOPK, TOPK_PADDED)
    elif RIDER is None or pid < num_tokens * (1 + SLICES):
        prepare_slice(x, x_stride * 8, rows, row_scales, zeroed, pid - num_tokens, MODE, WIDTH, GROUPS)
    else:
        RIDER(pid - num_tokens * (1 + SLICES), num_tokens, rider_args, RIDER_CONSTANTS)


def route_and_quantise(logits, bias, x, out: Front, mode: str, beside: SortExtension = NO_EXTENSION) -> None:
    """The first launch, for 1 to 512 tokens into the buffers of `out`. Checks nothing."""
    m, k = out.ids.shape
    e, width = logits.shape[1], x.shape[1]
    groups = slice_groups(m)
    slices = triton.cdiv(width // GROUP, groups) if out.rows is not None or out.zeroed is not None else 0
    _route_quantise[(m + m * slices + beside.rider_programs,)](
        logits, logits.stride(0), bias, x, x.stride(0) // 8, m,  # x's in 16 bytes
        out.ids, out.masks, out.columns, out.rows, out.row_scales, out.zeroed,
        beside.rider, beside.rider_args, beside.rider_constants,
        NUM_EXPERTS=e, COLUMNS=padded_experts(e), TOPK=k, TOPK_PADDED=padded_topk(k),
        MODE=mode, WIDTH=width, GROUPS=groups, SLICES=slices, LANES=warp_size(), num_warps=4,
    )  # fmt: skip


def route_sort_mid(
    logits, bias, x, out: Front, *, block: int, mode: str, scaling: float = 1.0,
    beside_route: SortExtension = NO_EXTENSION, beside_sort: SortExtension = NO_EXTENSION,
) -> None:  # fmt: skip
    """Both launches, for 1 to 512 tokens into the buffers of `out`. Checks nothing: `plan.py` checks and allocates."""
    route_and_quantise(logits, bias, x, out, mode, beside_route)
    sort_by_token(
        logits, out.ids, out.weights, out.masks, out.columns, out.row_scales, out.sorted, out.scales, block, scaling,
        beside_sort,
    )  # fmt: skip
