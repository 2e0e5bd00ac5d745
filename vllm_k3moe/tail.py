"""The tail of a layer whose hidden size the ranks share: what vLLM's runner does between its two all-reduces.

    latent [M, L], reduced -> RMSNorm -> this rank's rows of Wup -> added into this rank's columns of the shared partial

Stock takes two launches for it, an RMSNorm and a GEMM that adds; ours is one (kernels/latent_tail.py).
"""

from dataclasses import dataclass
from typing import Any

import torch

from .kernels import latent_tail as kernel


@dataclass(frozen=True)
class LatentTail:
    """One rank's weights of the tail, as vLLM's modules hold them."""

    norm_weight: torch.Tensor  # bf16 [L]
    eps: float
    up: torch.Tensor  # bf16 [H / ranks, L]
    first_column: int  # of the shared partial

    def shard(self, shared: torch.Tensor) -> torch.Tensor:
        """The columns [M, H / ranks] of `shared` [M, H] that this rank adds into."""
        return shared.narrow(-1, self.first_column, len(self.up))

    def reasons(self, latent: torch.Tensor, shared: torch.Tensor) -> list[str]:
        """Why this batch takes vLLM's tail; [] if it need not. What the kernel would raise on is found here."""
        if len(latent) > kernel.MAX_TOKENS:
            return [f"tail: more than {kernel.MAX_TOKENS} tokens"]
        try:
            kernel.check_tail(latent, self.norm_weight, self.eps, self.up, self.shard(shared))
        except (TypeError, ValueError) as error:
            return [f"tail: {error}"]
        return []

    def __call__(self, latent: torch.Tensor, shared: torch.Tensor) -> None:
        """Add the tail of latent bf16 [M, L] into shared bf16 [M, H]."""
        kernel.latent_tail(latent, self.norm_weight, self.eps, self.up, self.shard(shared))


def of_layer(transform: Any, rank: int, size: int) -> LatentTail:
    """The tail of a rank with `size` columns, its weights as vLLM's modules hold them now."""
    first, up = rank * size, transform.up_proj.weight.data
    if len(up) != size:  # every rank holds all rows: until vLLM 0.31, and where they are not sharded
        up = up.narrow(0, first, size)
    return LatentTail(transform.norm.weight.data, transform.norm.variance_epsilon, up, first)


def warm_up(latent: int, device: torch.device) -> None:
    """Compile the kernel for rows of `latent` columns: one specialisation serves any M and any rows of Wup."""

    def zeros(*size: int) -> torch.Tensor:
        return torch.zeros(*size, dtype=torch.bfloat16, device=device)

    up = zeros(kernel.COLUMNS, latent)
    kernel.latent_tail(zeros(1, latent), zeros(latent), 1.0, up, zeros(1, len(up)))
