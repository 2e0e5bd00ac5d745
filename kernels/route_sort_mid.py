"""M up to 512: route, sort, quantise and zero the output buffer in two launches.

Grid of launch 1
  programs 0 .. M-1   route one token each; write its ids, weights and the mask of its experts
  programs M ..       one slice of 512 columns of one token: quantise it, plain scales beside the rows; zero the output
Launch 2 sorts, and scatters each sorted row's scale bytes from the plain ones: of few tokens a program per token
(`token_sort.py`), of more a program per 8 experts (`moe_sort._sort` with a SortExtension). `plan.py` knows which.

The launch boundary is the only hand-over. Masks and plain scales are stored whole every time, never added to, so there
is no counter to zero: a second launch that never comes leaves nothing behind that the next call could trip over.

in, out: as route_sort.py.
"""

import triton
import triton.language as tl

from .moe_sort import SortExtension, sort_masked, store_mask
from .mx import GROUP, groups_padded, scale_offset
from .route_sort import SLICE_GROUPS, Front, prepare_slice, row_stride
from .token_sort import sort_by_token
from .topk import padded_topk, route_tokens, store_routes, warp_size


@triton.jit(do_not_specialize=["num_tokens", "logits_stride"], do_not_specialize_on_alignment=["logits", "bias"])
def _route_quantise(
    logits, logits_stride, bias, scaling, x, x_stride, num_tokens, out_ids, out_weights, masks, rows, row_scales,
    zeroed,
    NUM_EXPERTS: tl.constexpr, COLUMNS: tl.constexpr, TOPK: tl.constexpr, TOPK_PADDED: tl.constexpr,
    MODE: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if pid < num_tokens:
        ids, weights, slots = route_tokens(
            logits, logits_stride, bias, pid, num_tokens, scaling,
            1, NUM_EXPERTS, COLUMNS, TOPK, TOPK_PADDED, LANES,
        )  # fmt: skip
        store_routes(ids, weights, slots, out_ids, out_weights, pid, num_tokens, 1, TOPK)
        store_mask(masks, pid, ids, slots < TOPK, NUM_EXPERTS)
    else:
        prepare_slice(x, x_stride, rows, row_scales, zeroed, pid - num_tokens, MODE, WIDTH, GROUPS)


@triton.jit
def _scatter_rows(first_row, token, live, args):
    """SortExtension.rows: copy the plain scales of 32 sorted rows' tokens to where AITER reads them."""
    row_scales, scales = args[0], args[1]
    GROUPS: tl.constexpr = args[2]
    GROUPS_PADDED: tl.constexpr = args[3]
    row, group = first_row + tl.arange(0, 32)[:, None], tl.arange(0, triton.next_power_of_2(GROUPS))[None, :]
    mask = live[:, None] & (group < GROUPS)
    byte = tl.load(row_scales + token[:, None] * GROUPS + group, mask=mask)
    tl.store(scales + scale_offset(row, group, GROUPS_PADDED), byte, mask=mask)


def route_sort_mid(
    logits, bias, x, out: Front, *, block: int, mode: str, by_token: bool, scaling: float = 1.0
) -> None:  # fmt: skip
    """Launch for 1 to 512 tokens into the buffers of `out`; `by_token` where `token_sort.serves` them.

    Checks nothing: `plan.py` checks and allocates.
    """
    m, k = out.ids.shape
    e, width = logits.shape[1], x.shape[1]
    groups = width // GROUP
    quantised = out.rows is not None
    slices = triton.cdiv(groups, SLICE_GROUPS) if quantised or out.zeroed is not None else 0
    _route_quantise[(m + m * slices,)](
        logits, logits.stride(0), bias, float(scaling), x, row_stride(x), m,
        out.ids, out.weights, out.masks, out.rows, out.row_scales, out.zeroed,
        NUM_EXPERTS=e, COLUMNS=triton.next_power_of_2(e), TOPK=k, TOPK_PADDED=padded_topk(k),
        MODE=mode, WIDTH=width, GROUPS=SLICE_GROUPS, LANES=warp_size(), num_warps=4,
    )  # fmt: skip
    if by_token:
        sort_by_token(out.ids, out.weights, out.masks, out.row_scales, out.sorted, out.scales, block)
        return
    constant = tl.constexpr
    extension = SortExtension(
        rows=_scatter_rows if quantised else None,
        row_args=(out.row_scales, out.scales, constant(groups), constant(groups_padded(width))) if quantised else (),
    )
    sort_masked(out.ids, out.weights, out.masks, out.sorted, e, block, extension)
