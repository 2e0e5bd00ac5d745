"""Which launches the front of a layer takes at M tokens, and the buffers it takes them with.

A caller says mode and block once and gets the sorted products of every batch back:

    plan = RoutePlan(K3_TP8, mode="mxfp8", block=32)
    front = plan(x, logits, bias)        # front.sorted, front.rows, front.scales, front.zeroed
"""

from dataclasses import dataclass

import torch

from .kernels import checks, mx
from .kernels.moe_sort import empty_sorted
from .kernels.route_sort import Front, route_sort
from .kernels.route_sort_mid import route_sort_mid
from .kernels.topk import check_router
from .shapes import ROUTED_SCALING, MoEShape

MAX_TOKENS = checks.MAX_TOKENS
# Up to here one launch is faster than two. Measured on an H200 (2026-12-01, triton 3.6, graph replay, us of one / two
# launches): none 4.9/9.5 at M=1, 7.3/9.7 at M=2, 14.6/9.7 at M=4; mxfp8 6.8/10.2 at M=1, 12.7/10.4 at M=2.
ONE_LAUNCH_TOKENS = {mx.NONE: 2, mx.MXFP8: 1, mx.MXFP4: 1}


@dataclass(frozen=True)
class RoutePlan:
    """Route, sort, quantise (mode "none", "mxfp8" or "mxfp4") and, where stage 2 accumulates, zero its output."""

    shape: MoEShape
    mode: str
    block: int  # rows of a sorted block: the M tile of the expert GEMMs
    zero: bool = True
    scaling: float = ROUTED_SCALING

    def __post_init__(self) -> None:
        mx.check_mode(self.mode)
        checks.block(self.block)
        checks.experts(self.shape.experts, self.shape.topk)

    def launches(self, num_tokens: int) -> tuple[str, ...]:
        """Names of the kernels that `num_tokens` tokens take, in order."""
        checks.tokens(num_tokens)
        if num_tokens == 0:
            return ()
        return ("route_sort",) if num_tokens <= ONE_LAUNCH_TOKENS[self.mode] else ("route_quantise", "sort")

    def __call__(self, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> Front:
        """Run on x bf16 [M, L], logits fp32|bf16 [M, E] and bias fp32|bf16 [E]; M up to 512.

        Raises ValueError or TypeError, before anything is launched, on what the kernels do not serve.
        """
        m = self.check(x, logits, bias)
        front = self.allocate(m, x.device)
        if m == 0:
            front.sorted.num_valid_ids.zero_()
        else:
            self.launch(x, logits, bias, front)
        return front

    def launch(self, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor, front: Front) -> None:
        """The launches alone, for 1 <= M <= 512 checked tokens, into buffers of `allocate`."""
        launch = route_sort if len(x) <= ONE_LAUNCH_TOKENS[self.mode] else route_sort_mid
        launch(logits, bias, x, front, block=self.block, mode=self.mode, scaling=self.scaling)

    def check(self, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> int:
        """M, once all arguments are what the kernels serve."""
        shape = self.shape
        check_router(logits, bias, shape.topk)
        m = logits.shape[0]
        checks.tensor("logits", logits, (torch.float32, torch.bfloat16), (None, shape.experts))
        mx.check_rows(x)
        checks.tensor("x", x, (torch.bfloat16,), (m, shape.latent), logits.device)
        checks.tokens(m)
        return m

    def allocate(self, num_tokens: int, device: torch.device) -> Front:
        """Uninitialised buffers, sized for the worst routing of `num_tokens` tokens."""
        shape, quantised = self.shape, self.mode != mx.NONE
        rows_sorted = empty_sorted(num_tokens, shape.topk, shape.experts, self.block, device)

        def empty(size: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        scale_rows = -(-rows_sorted.sorted_ids.numel() // 32) * 32
        return Front(
            ids=empty((num_tokens, shape.topk), torch.int32),
            weights=empty((num_tokens, shape.topk), torch.float32),
            sorted=rows_sorted,
            rows=empty((num_tokens, mx.row_bytes(shape.latent, self.mode)), torch.uint8) if quantised else None,
            scales=empty((scale_rows, mx.groups_padded(shape.latent)), torch.uint8) if quantised else None,
            zeroed=empty((num_tokens, shape.latent), torch.bfloat16) if self.zero else None,
        )
