"""The latent-MoE layer of Kimi-K3 on one rank, in five steps.

  1. logits = x Wg^T in fp32; z = x Wdown^T in bf16
  2. route the logits
  3. routed experts on z, in the latent space           -> y [M, L], a partial sum over ranks
  4. shared expert on x                                 -> [M, H], a partial sum over ranks
  5. y, all-reduced -> RMSNorm -> Wup^T, added to the shared part, all-reduced

With tensor parallelism the experts and the shared expert hold a slice of their intermediate size, so `latent_partials`
of the ranks add up; Wup is split by rows, each rank adding its columns into its shard of the shared part.
"""

from dataclasses import dataclass

import torch

from ..shapes import NORM_EPS, ROUTED_SCALING, SITU_BETA, SITU_LINEAR_BETA
from .experts import ExpertWeights, experts, gated_mlp, situ
from .mx import dequantise_mxfp4, dequantise_mxfp8, quantise_mxfp4, quantise_mxfp8
from .routing import route


@dataclass(frozen=True)
class LatentMoEWeights:
    """One rank's weights, any float type: the plain [out, in] of a linear layer, not AITER's shuffled layouts."""

    gate: torch.Tensor  # [E, H]
    bias: torch.Tensor  # [E], e_score_correction_bias
    latent_down: torch.Tensor  # [L, H]
    expert_weights: ExpertWeights  # e -> w13 [2I, L], w2 [L, I]
    shared_gate_up: torch.Tensor  # [2S, H]
    shared_down: torch.Tensor  # [H, S]
    norm: torch.Tensor  # [L]
    latent_up: torch.Tensor  # [H, L]


def quantised(z: torch.Tensor, mode: str) -> torch.Tensor:
    """The rows [M, L] that stage 1 sees: z itself (mode "none", a16w4), or z through MXFP8 (a8w4) or MXFP4 (a4w4)."""
    if mode == "none":
        return z
    if mode == "mxfp8":
        return dequantise_mxfp8(*quantise_mxfp8(z))
    if mode == "mxfp4":
        return dequantise_mxfp4(*quantise_mxfp4(z))
    raise ValueError(f"mode={mode!r}; accepted: none, mxfp8, mxfp4")


def shared_expert(
    x: torch.Tensor,
    wgu: torch.Tensor,
    wd: torch.Tensor,
    beta: float = SITU_BETA,
    linear_beta: float | None = SITU_LINEAR_BETA,
) -> torch.Tensor:
    """situ(x @ Wgu.T) @ Wd.T: x [M, H], wgu [2S, H] with the gate's rows first, wd [H, S] -> fp32 [M, H]."""
    return gated_mlp(x, wgu, wd, beta, linear_beta)


def shared_hidden(
    gate_up: torch.Tensor, beta: float = SITU_BETA, linear_beta: float | None = SITU_LINEAR_BETA
) -> torch.Tensor:
    """What a layer's kernels hand from gate/up to down: SiTU of gate_up bf16 [M, 2S], exact, rounded to bf16 [M, S]."""
    gate, up = gate_up.double().chunk(2, dim=1)
    return situ(gate, up, beta, linear_beta).to(torch.bfloat16)


def latent_tail(
    y: torch.Tensor, shared: torch.Tensor, norm_weight: torch.Tensor, wup: torch.Tensor, eps: float
) -> torch.Tensor:
    """RMSNorm(y) @ Wup.T + shared: y [M, L] summed over ranks, norm_weight [L], wup [H', L], shared [M, H'].

    H' is H, or a rank's shard of it. Returns fp32 [M, H'].
    """
    wide = y.double()
    norm = wide * torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + eps) * norm_weight.double()
    return norm.float() @ wup.float().T + shared.float()


def latent_partials(
    x: torch.Tensor,
    weights: LatentMoEWeights,
    k: int,
    scaling: float = ROUTED_SCALING,
    mode: str = "none",
    beta: float = SITU_BETA,
    linear_beta: float | None = SITU_LINEAR_BETA,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Steps 1 to 4: x bf16 [M, H] -> this rank's y fp32 [M, L] and shared fp32 [M, H].

    `mode` quantises stage 1's rows as docs/contracts.md says; the intermediate between the two stages stays fp32.
    """
    logits = x.float() @ weights.gate.float().T
    z = (x.float() @ weights.latent_down.float().T).to(torch.bfloat16)
    ids, w = route(logits, weights.bias, k, scaling)
    y = experts(quantised(z, mode), ids, w, weights.expert_weights, beta, linear_beta)
    return y, shared_expert(x, weights.shared_gate_up, weights.shared_down, beta, linear_beta)


def latent_moe(
    x: torch.Tensor,
    weights: LatentMoEWeights,
    k: int,
    scaling: float = ROUTED_SCALING,
    mode: str = "none",
    beta: float = SITU_BETA,
    linear_beta: float | None = SITU_LINEAR_BETA,
    eps: float = NORM_EPS,
) -> torch.Tensor:
    """Steps 1 to 5 where one rank is all there is: x bf16 [M, H] -> fp32 [M, H]."""
    y, shared = latent_partials(x, weights, k, scaling, mode, beta, linear_beta)
    return latent_tail(y, shared, weights.norm, weights.latent_up, eps)
