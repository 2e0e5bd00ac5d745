"""Which launches the front of a layer takes at M tokens, and the buffers it takes them with.

A caller says mode and block once and gets the sorted products of every batch back:

    plan = RoutePlan(K3_TP8, mode="mxfp8", block=32)
    front = plan(x, logits, bias)        # front.sorted, front.rows, front.scales, front.zeroed

With a `K3SortPlan` the launches take the shared expert along where that is faster.
"""

from dataclasses import dataclass

import torch

from .kernels import checks, mx, token_sort
from .kernels.front import Front
from .kernels.moe_sort import WORDS, empty_sorted
from .kernels.route_sort import route_sort
from .kernels.route_sort_mid import route_sort_mid
from .kernels.situ import MAX_TOKENS as MAX_RIDING
from .kernels.topk import check_router
from .shapes import ROUTED_SCALING, MoEShape
from .sort_plan import NO_RIDERS, K3SortPlan, Riders


def takes_shared(num_tokens: int) -> bool:
    """Whether the shared expert of so many tokens rides in the front's launches, or runs in its own behind stage 2.

    On an H200 riding takes 0.64 to 0.80 of the time at every M (benchmarks/results/h200-layer-glue.csv).
    """
    return 1 <= num_tokens <= MAX_RIDING


def shared_launches(num_tokens: int) -> tuple[str, ...]:
    """Names of the kernels that the shared expert of 1 to 128 tokens takes by itself, from gate_up on."""
    return ("shared_token",) if num_tokens == 1 else ("situ", "shared_down")


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

    def launches(self, num_tokens: int, with_shared: bool = False) -> tuple[str, ...]:
        """Names of the kernels that `num_tokens` tokens take, in order; with a shared expert, its own among them."""
        checks.tokens(num_tokens)
        if num_tokens == 0:
            return ()
        front = ("route_sort",) if num_tokens == 1 else ("route_quantise", "sort_by_token")
        if not with_shared:
            return front
        shared = shared_launches(num_tokens)
        if not takes_shared(num_tokens):
            return (*front, *shared)
        return tuple(f"{own} | {rider}" for own, rider in zip(front, shared, strict=True))

    def batches(self) -> tuple[int, ...]:
        """Token counts that between them launch every specialisation, each as small as can be: what a warm-up runs."""
        return (1, 2, *token_sort.FIRST_TOKENS[1:])

    def __call__(
        self, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor, shared: K3SortPlan | None = None
    ) -> Front:
        """Run on x bf16 [M, L], logits fp32|bf16 [M, E] and bias fp32|bf16 [E]; M up to 512. `shared` of the same M
        tokens is taken where `takes_shared`.

        Raises ValueError or TypeError, before anything is launched, on what the kernels do not serve.
        """
        m = self.check(x, logits, bias)
        front = self.allocate(m, x.device)
        if m:
            self.launch(x, logits, bias, front, shared)
        return front

    def launch(
        self, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor, front: Front, shared: K3SortPlan | None = None
    ) -> None:
        """The launches alone, for 1 <= M <= 512 checked tokens, into buffers of `allocate`."""
        if shared is not None and takes_shared(len(x)):
            with shared.take(len(x)) as riders:
                self._launch(x, logits, bias, front, riders)
        else:
            self._launch(x, logits, bias, front, NO_RIDERS)

    def _launch(self, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor, front: Front, riders: Riders) -> None:
        if len(x) == 1:
            route_sort(
                logits, bias, x, front, block=self.block, mode=self.mode, scaling=self.scaling,
                beside=riders.beside_sort,
            )  # fmt: skip
        else:
            route_sort_mid(
                logits, bias, x, front, block=self.block, mode=self.mode, scaling=self.scaling,
                beside_route=riders.beside_route, beside_sort=riders.beside_sort,
            )  # fmt: skip

    def check(self, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> int:
        """M, once all arguments are what the kernels serve."""
        shape = self.shape
        check_router(logits, bias, shape.topk, self.scaling, shape.experts)
        checks.near("logits", logits)
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
            columns=empty((WORDS, num_tokens), torch.int32),
            row_scales=empty((num_tokens, shape.latent // mx.GROUP), torch.uint8) if quantised else None,
            rows=empty((num_tokens, mx.row_bytes(shape.latent, self.mode)), torch.uint8) if quantised else None,
            scales=empty((scale_rows, mx.groups_padded(shape.latent)), torch.uint8) if quantised else None,
            zeroed=empty((num_tokens, shape.latent), torch.bfloat16) if self.zero else None,
        )
