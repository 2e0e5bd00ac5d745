"""Which launches the front of a layer takes at M tokens, and the buffers it takes them with.

A caller says mode and block once and gets the sorted products of every batch back:

    plan = RoutePlan(K3_TP8, mode="mxfp8", block=32)
    front = plan(x, logits, bias)        # front.sorted, front.rows, front.scales, front.zeroed
"""

from dataclasses import dataclass

import torch

from .kernels import checks, mx, token_sort
from .kernels import route_sort as one_launch
from .kernels.moe_sort import FIRST_TOKENS, WORDS, empty_sorted
from .kernels.route_sort import Front
from .kernels.route_sort_mid import route_sort_mid
from .kernels.topk import check_router
from .shapes import ROUTED_SCALING, MoEShape

# Up to here one launch is faster than two, on an H200: benchmarks/results/h200-one-or-two.csv. Where the line lies on
# an MI355X nobody has measured.
ONE_LAUNCH_TOKENS = {mx.NONE: 2, mx.MXFP8: 1, mx.MXFP4: 1}
# Of two launches, up to here the second sorts by token (`token_sort.py`), from there on by expert. By block; chosen by
# an H200 (benchmarks/results/h200-front.csv): at 256 tokens neither sort is faster there.
TOKEN_SORT_TOKENS = {16: 128, 32: 128, 64: 128, 128: 128}


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
        mx.check_width(self.shape.latent)
        checks.block(self.block)
        checks.experts(self.shape.experts, self.shape.topk)
        checks.scaling(self.scaling)

    def launches(self, num_tokens: int) -> tuple[str, ...]:
        """Names of the kernels that `num_tokens` tokens take, in order."""
        checks.tokens(num_tokens)
        if num_tokens == 0:
            return ()
        if self.in_one(num_tokens):
            return ("route_sort",)
        return ("route_quantise", "sort_by_token" if self.by_token(num_tokens) else "sort")

    def in_one(self, num_tokens: int) -> bool:
        """Whether `num_tokens` tokens take one launch rather than two."""
        return num_tokens <= ONE_LAUNCH_TOKENS[self.mode] and one_launch.serves(num_tokens, self.shape.topk)

    def by_token(self, num_tokens: int) -> bool:
        """Whether the second of two launches sorts `num_tokens` tokens by token rather than by expert."""
        return num_tokens <= TOKEN_SORT_TOKENS[self.block] and token_sort.serves(num_tokens)

    def batches(self) -> tuple[int, ...]:
        """Token counts that between them launch every specialisation, each as small as can be: what a warm-up runs."""
        one = tuple(1 << i for i in range(ONE_LAUNCH_TOKENS[self.mode].bit_length()))
        two, by_expert = ONE_LAUNCH_TOKENS[self.mode] + 1, TOKEN_SORT_TOKENS[self.block] + 1
        by_token = [max(first, two) for first in token_sort.FIRST_TOKENS if self.by_token(first)]
        return (*one, *by_token, *sorted({max(first, by_expert, two) for first in FIRST_TOKENS}))

    def __call__(self, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> Front:
        """Run on x bf16 [M, L], logits fp32|bf16 [M, E] and bias fp32|bf16 [E]; M up to 512.

        Raises ValueError or TypeError, before anything is launched, on what the kernels do not serve.
        """
        m = self.check(x, logits, bias)
        front = self.allocate(m, x.device)
        if m:
            self.launch(x, logits, bias, front)
        return front

    def launch(self, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor, front: Front) -> None:
        """The launches alone, for 1 <= M <= 512 checked tokens, into buffers of `allocate`."""
        m = len(x)
        if self.in_one(m):
            one_launch.route_sort(logits, bias, x, front, block=self.block, mode=self.mode, scaling=self.scaling)
        else:
            route_sort_mid(
                logits, bias, x, front,
                block=self.block, mode=self.mode, by_token=self.by_token(m), scaling=self.scaling,
            )  # fmt: skip

    def check(self, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> int:
        """M, once all arguments are what the kernels serve."""
        shape = self.shape
        check_router(logits, bias, shape.topk, self.scaling, shape.experts)
        m = logits.shape[0]
        mx.check_rows(x)
        checks.tensor("x", x, (torch.bfloat16,), (m, shape.latent), logits.device)
        checks.aligned("x", x)
        checks.tokens(m)
        return m

    def allocate(self, num_tokens: int, device: torch.device) -> Front:
        """Uninitialised buffers, sized for the worst routing of `num_tokens` tokens."""
        checks.tokens(num_tokens)
        shape, quantised = self.shape, self.mode != mx.NONE
        rows_sorted = empty_sorted(num_tokens, shape.topk, shape.experts, self.block, device)

        def empty(size: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        scale_rows = -(-rows_sorted.sorted_ids.numel() // 32) * 32
        return Front(
            ids=empty((num_tokens, shape.topk), torch.int32),
            weights=empty((num_tokens, shape.topk), torch.float32),
            sorted=rows_sorted,
            masks=empty((num_tokens, WORDS), torch.int32),
            row_scales=empty((num_tokens, shape.latent // mx.GROUP), torch.uint8) if quantised else None,
            rows=empty((num_tokens, mx.row_bytes(shape.latent, self.mode)), torch.uint8) if quantised else None,
            scales=empty((scale_rows, mx.groups_padded(shape.latent)), torch.uint8) if quantised else None,
            zeroed=empty((num_tokens, shape.latent), torch.bfloat16) if self.zero else None,
        )
