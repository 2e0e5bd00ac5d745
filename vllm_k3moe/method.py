"""The routed experts of one latent-MoE layer, in three or four launches where M is small. One forward, top to bottom:

    x bf16 [M, L], logits fp32 [M, E]
      M up to 512      RoutePlan: route, sort, quantise, zero `out`          1 or 2 launches (plan.py),
                       which take the shared expert along                   (sort_plan.py)
      above            vLLM's select_experts, then AITER's moe_sorting with our block
    stage 1            gate and up GEMM with SiTU, by sorted row            (experts/aiter.py)
    stage 2            down GEMM, added into `out` by token
    out bf16 [M, L], this rank's partial sum

Nothing here synchronises or reads a tensor's value, and the buffers are fresh each call: inside a graph capture they
come from the graph's own pool, so a replay writes where the capture did.
"""

from collections.abc import Callable

import torch

from .experts import ExpertRunner, Rows
from .kernels.checks import MAX_TOKENS, refusal
from .plan import RoutePlan
from .shapes import MoEShape
from .sort_plan import K3SortPlan

# (x, logits) -> weights fp32 [M, K], ids int32 [M, K]: vLLM's router, for batches beyond the fused front
SelectExperts = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


class K3FusedMoEMethod:
    """route, sort, stage 1, stage 2 of one layer; vLLM's own method object keeps the weights and their loading."""

    def __init__(
        self, shape: MoEShape, bias: torch.Tensor, experts: ExpertRunner, select_experts: SelectExperts
    ) -> None:
        self.shape, self.bias, self.experts, self.select_experts = shape, bias, experts, select_experts
        blocks = {experts.block(m) for m in experts.batches() if m <= MAX_TOKENS}
        self.plans = {block: RoutePlan(shape, experts.mode, block) for block in blocks}

    def refuses(self, num_tokens: int) -> str | None:
        """Why a batch of this size takes vLLM's path, or None."""
        return "0 tokens" if num_tokens == 0 else self.experts.refuses(num_tokens)

    def reasons(self, x: torch.Tensor, logits: torch.Tensor) -> list[str]:
        """Why a batch of a size that is not refused takes vLLM's path; [] if it need not: what the kernels raise on."""
        if len(x) > MAX_TOKENS:
            return []
        reasons = refusal("arguments", self.plans[self.experts.block(len(x))].check, x, logits, self.bias)
        if not reasons and logits.dtype == torch.bfloat16:  # the kernels take it, but no warm-up compiled them for it
            return ["arguments: logits has dtype bfloat16; served: float32"]
        return reasons

    def __call__(self, x: torch.Tensor, logits: torch.Tensor, shared: K3SortPlan | None = None) -> torch.Tensor:
        """x bf16 [M, L] and logits fp32 [M, E] of a batch against which there are no reasons -> a fresh bf16 [M, L].

        The shared expert of the same tokens may be taken along.
        """
        m = len(x)
        if m <= MAX_TOKENS:
            plan = self.plans[self.experts.block(m)]
            front = plan.allocate(m, x.device)
            plan.launch(x, logits, self.bias, front, shared)
            assert front.zeroed is not None
            rows = Rows(x if front.rows is None else front.rows, front.scales)
            return self.experts.run(rows, front.sorted, front.zeroed)
        weights, ids = self.select_experts(x, logits)
        sorted, out = self.experts.sort(ids, weights)
        return self.experts.run(Rows(x, None), sorted, out)
