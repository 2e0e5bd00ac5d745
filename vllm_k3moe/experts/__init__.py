"""Who multiplies: the two expert GEMMs behind one protocol, so that a runner other than AITER's can take its place."""

from typing import NamedTuple, Protocol

import torch

from ..kernels.moe_sort import Sorted


class Weights(NamedTuple):
    """One rank's routed experts of a layer, as vLLM leaves them after loading: AITER's shuffled layouts."""

    w13: torch.Tensor  # fp4 pairs [E, 2I, L/2], gate rows before up rows or alternating by 16: see layout.py
    w2: torch.Tensor  # fp4 pairs [E, L, I/2]
    w13_scale: torch.Tensor  # e8m0 [E*2I, L/32]
    w2_scale: torch.Tensor  # e8m0 [E*L, I/32 rounded up to 8]


class Rows(NamedTuple):
    """What stage 1 multiplies, one row per token."""

    values: torch.Tensor  # bf16 [M, L]; or uint8 [M, L] (e4m3fn), uint8 [M, L/2] (e2m1 pairs)
    scales: torch.Tensor | None  # e8m0 uint8 by sorted row, as `kernels.mx.scale_offset` lays them; None for bf16


class ExpertRunner(Protocol):
    """Stage 1 and stage 2 of one layer."""

    mode: str  # what quantises its rows: one of `kernels.mx.MODES`
    description: str  # for the log: whose tiles
    max_tokens: int  # larger batches it refuses

    def refuses(self, num_tokens: int) -> str | None:
        """Why a batch of this size is not for it, or None."""

    def block(self, num_tokens: int) -> int:
        """Rows of a sorted block that it takes at this size."""

    def batches(self) -> list[int]:
        """Token counts that between them use every tile pair and every block it may pick: what a warm-up runs."""

    def sort(self, ids: torch.Tensor, weights: torch.Tensor) -> tuple[Sorted, torch.Tensor]:
        """Sort ids int32 [M, K], weights fp32 [M, K] beyond the fused front's M; also a zeroed bf16 [M, L]."""

    def run(self, rows: Rows, sorted: Sorted, out: torch.Tensor) -> torch.Tensor:
        """Both stages. Adds each token's weighted experts into out, zeroed bf16 [M, L], and returns it."""
