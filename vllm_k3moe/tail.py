"""The tail of a layer whose hidden size the ranks share: what vLLM's runner does between its two all-reduces.

    latent [M, L], reduced -> RMSNorm -> this rank's rows of Wup -> added into this rank's columns of the shared partial

Stock takes two launches for it, an RMSNorm and a GEMM that adds; ours is one (kernels/latent_tail.py).
"""

from dataclasses import dataclass
from typing import Any

import torch

from .kernels import latent_tail as kernel
from .kernels.checks import refusal

MAX_TOKENS = 64  # above, two launches are faster: 14.7 us at 128 on an H200, ours 21 (`k3moe bench layer-glue`)
TOO_MANY = f"tail: more than {MAX_TOKENS} tokens"


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

    def faults(self) -> list[str]:
        """What of these weights the kernel does not serve."""
        return refusal("latent tail", kernel.check_weights, self.norm_weight, self.eps, self.up)

    def reasons(self, latent: torch.Tensor, shared: torch.Tensor) -> list[str]:
        """Why this batch takes vLLM's tail; [] if it need not. What the kernel would raise on is found here."""
        if len(latent) > MAX_TOKENS:
            return [TOO_MANY]
        return refusal("tail", kernel.check_tail, latent, self.norm_weight, self.eps, self.up, self.shard(shared))

    def launch(self, latent: torch.Tensor, shared: torch.Tensor) -> None:
        """Add the tail of latent bf16 [M, L] into shared bf16 [M, H], which `reasons` was asked about."""
        kernel.launch_tail(latent, self.norm_weight, self.eps, self.up, self.shard(shared))


def of_layer(transform: Any, rank: int, size: int) -> LatentTail:
    """The tail of a rank with `size` columns, its weights as vLLM's modules hold them now."""
    first, up = rank * size, transform.up_proj.weight.data
    if len(up) != size:  # every rank holds all rows: until vLLM 0.31, and where they are not sharded
        up = up.narrow(0, first, size)
    return LatentTail(transform.norm.weight.data, transform.norm.variance_epsilon, up, first)


def warm_up(latent: int, device: torch.device) -> None:
    """Compile the kernel for rows of `latent` columns, any M and any number of rows of Wup."""

    def zeros(*size: int) -> torch.Tensor:
        return torch.zeros(*size, dtype=torch.bfloat16, device=device)

    up, norm = zeros(kernel.COLUMNS, latent), zeros(latent)
    for m in kernel.FIRST_TOKENS:
        kernel.latent_tail(zeros(m, latent), norm, 1.0, up, zeros(m, len(up)))
