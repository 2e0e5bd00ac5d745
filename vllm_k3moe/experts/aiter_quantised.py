"""a8w4 and a4w4 through the stages that AITER's own configuration picks for a batch size.

Which kernels those are is AITER's business (FlyDSL's, its second layout, Opus's); what they have in common is the call:
our quantised rows and sorted ids in, an intermediate already quantised between the stages. A batch size whose stage 1
would leave a bf16 intermediate, which AITER then quantises by a kernel of its own, is refused: vLLM's path has it.
"""

import os
from importlib import import_module
from typing import Any

import torch

from ..kernels import mx
from ..kernels.checks import MAX_TOKENS
from ..kernels.moe_sort import Sorted
from ..shapes import SITU_BETA, SITU_LINEAR_BETA, MoEShape
from . import Rows, Weights

# Served up to the fused front's MAX_TOKENS; above it AITER quantises and sorts, as vLLM calls it
BUCKETS = tuple(1 << i for i in range(10))  # AITER rounds a token count up to a power of two


def _bucket(num_tokens: int) -> int:
    return 1 << (num_tokens - 1).bit_length()


class QuantisedExperts:
    """MXFP8 or MXFP4 rows, MXFP4 weights. See `ExpertRunner`."""

    max_tokens = MAX_TOKENS

    def __init__(self, shape: MoEShape, mode: str, weights: Weights) -> None:
        self.shape, self.mode, self.weights = shape, mode, weights
        self.description = "AITER's own tiles"
        fused_moe, aiter = import_module("aiter.fused_moe"), import_module("aiter")
        gate_mode = import_module("aiter.ops.flydsl.moe_common").GateMode
        fp8 = mode == mx.MXFP8
        self._rows_dtype = torch.float8_e4m3fn if fp8 else torch.float4_e2m1fn_x2
        self._opus = fused_moe._opus_a8w4_stage1_wrapper
        options = (torch.bfloat16, self._rows_dtype, torch.float4_e2m1fn_x2, aiter.QuantType.per_1x32)
        layout = (gate_mode.INTERLEAVE if fp8 else gate_mode.SEPARATED).value
        sizes = (shape.latent, shape.inter, shape.experts, shape.topk)

        def pick(tokens: int) -> Any:
            # use_g1u1, activation, no weights in stage 1, no padding, shuffled weights
            how = (True, aiter.ActivationType.Situv2, False, 0, 0, True, layout)
            flags = {"is_ep": False, "has_stage2_bias": False, "opus_weights_shuffled": True}
            return fused_moe.get_2stage_cfgs(fused_moe.get_padded_M(tokens), *sizes, *options, *how, **flags)

        self._stages = {tokens: pick(tokens) for tokens in BUCKETS}

    def _reasons(self, stages: Any) -> list[str]:
        """Why we cannot call what AITER picked. An attribute that a release lacks is not asked for anything."""
        fused = "fp8" if self.mode == mx.MXFP8 else "fp4"
        rules = {
            "a single stage": getattr(stages, "run_1stage", False),
            "extra sort products": getattr(stages, "output_aux", False) or getattr(stages, "flat", False),
            "no quantised rows": not getattr(stages, "prequant", True),
            "split-K stage 1": stages.ksplit > 1,
            "a bf16 intermediate": not stages.skip_inter_quant and stages.fuse_quant != fused,
            f"block_m {stages.block_m}": stages.block_m not in (16, 32, 64, 128),
        }
        return [rule for rule, broken in rules.items() if broken]

    def refuses(self, num_tokens: int) -> str | None:
        if os.environ.get("AITER_FLYDSL_STAGE2_FP8", "0") == "1":
            return "AITER_FLYDSL_STAGE2_FP8=1 changes stage 2's arguments; unset it"
        if num_tokens > MAX_TOKENS:
            return f"more than {MAX_TOKENS} tokens in mode {self.mode}"
        reasons = self._reasons(self._stages[_bucket(num_tokens)])
        return f"AITER's pick for {_bucket(num_tokens)} tokens has {', '.join(reasons)}" if reasons else None

    def block(self, num_tokens: int) -> int:
        block: int = self._stages[_bucket(num_tokens)].block_m
        return block

    def batches(self) -> list[int]:
        smallest = [bucket // 2 + 1 for bucket in BUCKETS]
        return [tokens for tokens in smallest if not self.refuses(tokens)]

    def sort(self, ids: torch.Tensor, weights: torch.Tensor) -> tuple[Sorted, torch.Tensor]:
        raise ValueError(f"{len(ids)} tokens; mode {self.mode} serves up to {MAX_TOKENS}, which the fused front sorts")

    def run(self, rows: Rows, sorted: Sorted, out: torch.Tensor) -> torch.Tensor:
        m, topk, weights = len(out), self.shape.topk, self.weights
        stages = self._stages[_bucket(m)]
        assert rows.scales is not None
        extra = {}
        if stages.skip_inter_quant:
            opus = getattr(stages.stage1, "func", stages.stage1) is self._opus
            extra = {"output_sorted": True} if opus else {"v2_output_layout": True}
        intermediate, scales = stages.stage1(
            rows.values.view(self._rows_dtype), weights.w13, weights.w2,
            sorted.sorted_ids, sorted.sorted_expert_ids, sorted.num_valid_ids, None, topk,
            block_m=stages.block_m, a1_scale=rows.scales.view(torch.float8_e8m0fnu), w1_scale=weights.w13_scale,
            sorted_weights=None, bias1=None, topk_ids=None, swiglu_limit=None,
            situ_beta=SITU_BETA, situ_linear_beta=SITU_LINEAR_BETA, **extra,
        )  # fmt: skip
        if not stages.skip_inter_quant:
            if self.mode == mx.MXFP4:  # sized for fp8; its first half holds the packed values
                packed = intermediate.view(-1).view(torch.uint8)[: m * topk * self.shape.inter // 2]
                intermediate = packed.view(self._rows_dtype)
            intermediate = intermediate.view(m, topk, -1)
        stages.stage2(
            intermediate, weights.w13, weights.w2,
            sorted.sorted_ids, sorted.sorted_expert_ids, sorted.num_valid_ids, out, topk,
            w2_scale=weights.w2_scale, a2_scale=scales, block_m=stages.block_m, sorted_weights=sorted.sorted_weights,
        )  # fmt: skip
        return out
