"""a16w4 through AITER's exported stage functions, with our tiles. AITER is imported when a layer is built, not before.

Everything that the stages' own defaults get wrong for Kimi-K3 is passed: topk, the activation and its two betas, and
`waves_per_eu`, whose default of 3 a release with pull request 5118 forwards into a register clamp. Stage 1 allocates
its intermediate itself, by sorted row; stage 2 adds into `out` with bf16 atomics.
"""

from importlib import import_module

import torch

from ..kernels import mx
from ..kernels.moe_sort import Sorted
from ..shapes import SITU_BETA, SITU_LINEAR_BETA, MoEShape
from ..tables import TileTable
from . import Rows, Weights


class A16W4Experts:
    """bf16 rows, MXFP4 weights. See `ExpertRunner`."""

    mode = mx.NONE

    def __init__(self, shape: MoEShape, table: TileTable, weights: Weights) -> None:
        self.shape, self.table, self.weights = shape, table, weights
        self.description, self.max_tokens = f"tiles {table.name}", table.max_tokens
        flydsl = import_module("aiter.ops.flydsl")
        self._stage1, self._stage2 = flydsl.flydsl_moe_stage1, flydsl.flydsl_moe_stage2
        self._moe_sorting = import_module("aiter.fused_moe").moe_sorting

    def refuses(self, num_tokens: int) -> str | None:
        if num_tokens > self.max_tokens:
            return f"more than {self.max_tokens} tokens, the last row of {self.table.name}"
        return None

    def block(self, num_tokens: int) -> int:
        return self.table.row(num_tokens).block

    def batches(self) -> list[int]:
        return self.table.batches()

    def sort(self, ids: torch.Tensor, weights: torch.Tensor) -> tuple[Sorted, torch.Tensor]:
        shape = self.shape
        block = self.block(len(ids))
        *products, zeroed = self._moe_sorting(ids, weights, shape.experts, shape.latent, torch.bfloat16, block)
        sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids = products
        return Sorted(sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids), zeroed

    def run(self, rows: Rows, sorted: Sorted, out: torch.Tensor) -> torch.Tensor:
        tiles, weights, topk = self.table.row(len(out)), self.weights, self.shape.topk
        intermediate = self._stage1(
            rows.values, weights.w13, sorted.sorted_ids, sorted.sorted_expert_ids, sorted.num_valid_ids, None, topk,
            tile_m=tiles.stage1.m, tile_n=tiles.stage1.n, tile_k=tiles.stage1.k, k_wave=tiles.stage1.k_wave,
            b_nt=tiles.stage1.b_nt, xcd_swizzle=tiles.stage1.xcd_swizzle, waves_per_eu=1,
            a_dtype="bf16", b_dtype="fp4", out_dtype="bf16",
            act="situv2", situ_beta=SITU_BETA, situ_linear_beta=SITU_LINEAR_BETA, w1_scale=weights.w13_scale,
        )  # fmt: skip
        self._stage2(
            intermediate, weights.w2, sorted.sorted_ids, sorted.sorted_expert_ids, sorted.num_valid_ids, out, topk,
            tile_m=tiles.stage2.m, tile_n=tiles.stage2.n, tile_k=tiles.stage2.k,
            b_nt=tiles.stage2.b_nt, xcd_swizzle=tiles.stage2.xcd_swizzle,
            a_dtype="bf16", b_dtype="fp4", out_dtype="bf16", mode="atomic",
            w2_scale=weights.w2_scale, sorted_weights=sorted.sorted_weights,
        )  # fmt: skip
        return out
