"""The routed experts of one rank: SiTU between two matrix products, summed over a token's experts.

Products are taken in fp32, the sum over a token's experts in fp64. The weights of one expert at a time come from a
function `expert_weights(e) -> (w13 [2I, L], w2 [L, I])`, the rows of w13 gate first, then up, so that 896 of them
never need to be in memory dequantised.
"""

from collections.abc import Callable
from typing import Protocol

import torch

from ..shapes import SITU_BETA, SITU_LINEAR_BETA

ExpertWeights = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


class SortedLike(Protocol):
    """What `sorting.Sorted` and a device's products have in common."""

    @property
    def sorted_ids(self) -> torch.Tensor: ...
    @property
    def sorted_weights(self) -> torch.Tensor: ...
    @property
    def sorted_expert_ids(self) -> torch.Tensor: ...
    @property
    def num_valid_ids(self) -> torch.Tensor: ...


def dense_experts(w13: torch.Tensor, w2: torch.Tensor) -> ExpertWeights:
    """`expert_weights` of w13 [E, 2I, L] and w2 [E, L, I]."""
    return lambda e: (w13[e], w2[e])


def situ(
    gate: torch.Tensor, up: torch.Tensor, beta: float = SITU_BETA, linear_beta: float | None = SITU_LINEAR_BETA
) -> torch.Tensor:
    """beta*tanh(g/beta) * sigmoid(g) * lambda*tanh(u/lambda), elementwise; without lambda (linear_beta), u itself."""
    linear = up if linear_beta is None else linear_beta * torch.tanh(up / linear_beta)
    return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * linear


def gated_mlp(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, beta: float, linear_beta: float | None
) -> torch.Tensor:
    """x [M, D], gate_up [2I, D] with the gate's rows first, down [D', I] -> fp32 [M, D']."""
    gate, up = (x.float() @ gate_up.float().T).chunk(2, dim=1)
    return situ(gate, up, beta, linear_beta) @ down.float().T


def experts(
    z: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    expert_weights: ExpertWeights,
    beta: float = SITU_BETA,
    linear_beta: float | None = SITU_LINEAR_BETA,
) -> torch.Tensor:
    """y = sum_k w_k * (situ(z @ W13[e_k].T) @ W2[e_k].T), a tensor-parallel partial sum.

    z [M, L]: bf16 rows or dequantised ones; ids int32 [M, K]; weights fp32 [M, K]. Returns y fp32 [M, L].
    """
    y = torch.zeros(z.shape, dtype=torch.float64)
    for e in ids.unique().tolist():
        token, slot = (ids == e).nonzero(as_tuple=True)
        out = gated_mlp(z[token], *expert_weights(e), beta, linear_beta)
        y.index_add_(0, token, weights[token, slot, None].double() * out.double())
    return y.float()


def experts_from_sorted(
    rows: torch.Tensor,
    sorted: SortedLike,
    num_tokens: int,
    k: int,
    expert_weights: ExpertWeights,
    beta: float = SITU_BETA,
    linear_beta: float | None = SITU_LINEAR_BETA,
) -> torch.Tensor:
    """The same y [M, L], computed as AITER's GEMMs do: block by block of the sorted products.

    rows [M, L]: the dequantised rows, one per token. `sorted.sorted_ids` is `block` times as long as
    `sorted.sorted_expert_ids`; both may be longer than the valid region, which alone is read. Padding rows are
    skipped. ValueError if some (token, slot) pair is not there exactly once.
    """
    y = torch.zeros(rows.shape, dtype=torch.float64)
    seen = torch.zeros(num_tokens, k, dtype=torch.int32)
    block = len(sorted.sorted_ids) // max(len(sorted.sorted_expert_ids), 1)
    for start in range(0, int(sorted.num_valid_ids[0]), max(block, 1)):
        ids, weights = (t[start : start + block] for t in (sorted.sorted_ids, sorted.sorted_weights))
        token, slot = ids & 0xFFFFFF, ids >> 24
        real = token < num_tokens
        token, slot, weights = token[real].long(), slot[real].long(), weights[real]
        seen.index_put_((token, slot), torch.ones_like(token, dtype=torch.int32), accumulate=True)
        e = int(sorted.sorted_expert_ids[start // block])
        out = gated_mlp(rows[token], *expert_weights(e), beta, linear_beta)
        y.index_add_(0, token, weights[:, None].double() * out.double())
    if (seen != 1).any():
        bad = (seen != 1).nonzero()[0].tolist()
        raise ValueError(f"token {bad[0]} slot {bad[1]} is in the sorted rows {int(seen[tuple(bad)])} times, not once")
    return y.float()
