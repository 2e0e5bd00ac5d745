"""Before its first use, a layer's expert GEMMs are run once on one expert and compared with that expert dequantised.

What it catches is what otherwise answers with fluent garbage: gate and up in the other layout, betas of another
release, a stage that reads other bytes than we think. Wrong layouts give a relative error of 0.79 and more, sound ones
below the limits here (ROCm/aiter e4048607a5, a16w4 on emulated gfx950: 0.0057; MXFP8 and MXFP4 also quantise the
intermediate, whose noise is what the limits allow).
"""

import torch

from .experts import ExpertRunner, Rows, Weights
from .experts.layout import scale_rows, weight_rows
from .kernels import mx
from .kernels.moe_sort import Sorted
from .reference.block import quantised
from .reference.experts import gated_mlp
from .reference.mx import dequantise_mxfp4, quantise_mxfp4, quantise_mxfp8, scatter_scales
from .shapes import SITU_BETA, SITU_LINEAR_BETA, MoEShape

LIMITS = {mx.NONE: 0.02, mx.MXFP8: 0.1, mx.MXFP4: 0.3}  # relative L2


def plain_expert(
    weights: Weights, expert: int, shape: MoEShape, interleaved: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """One expert out of AITER's layout: w13 fp32 [2I, L], the gate's rows first, and w2 fp32 [L, I]."""

    def dequantise(values: torch.Tensor, scales: torch.Tensor, rows: int, columns: int, gui: bool) -> torch.Tensor:
        width = scales.numel() // (shape.experts * rows)  # groups, padded
        own = scales.view(torch.uint8).reshape(-1)[expert * rows * width : (expert + 1) * rows * width].cpu()
        groups = scale_rows(own, rows, gui)[:, : columns // 32].contiguous()
        return dequantise_mxfp4(weight_rows(values[expert].view(torch.uint8).cpu(), gui), groups)

    w13 = dequantise(weights.w13, weights.w13_scale, 2 * shape.inter, shape.latent, interleaved)
    return w13, dequantise(weights.w2, weights.w2_scale, shape.latent, shape.inter, False)


def _one_pair(expert: int, shape: MoEShape, block: int, device: torch.device) -> Sorted:
    """Token 0's slot 0 on `expert` with weight 1, alone in one block."""
    ids = torch.full((block,), shape.topk << 24 | 1, dtype=torch.int32)
    ids[0] = 0
    weights = torch.zeros(block)
    weights[0] = 1.0
    return Sorted(
        ids.to(device),
        weights.to(device),
        torch.tensor([expert], dtype=torch.int32, device=device),
        torch.tensor([block, 1], dtype=torch.int32, device=device),
    )


def _rows(x: torch.Tensor, mode: str, sorted_ids: torch.Tensor, device: torch.device) -> Rows:
    """x bf16 [1, L] as stage 1 wants it in `mode`, by the oracle's quantisation."""
    if mode == mx.NONE:
        return Rows(x.to(device), None)
    values, scales = (quantise_mxfp8 if mode == mx.MXFP8 else quantise_mxfp4)(x)
    padded, groups = -(-len(sorted_ids) // 32) * 32, mx.groups_padded(x.shape[1])
    data, _ = scatter_scales(scales, sorted_ids.cpu(), 1, padded, groups)
    return Rows(values.to(device), data.reshape(padded, groups).to(device))


def disagreement(experts: ExpertRunner, weights: Weights, shape: MoEShape, expert: int) -> str | None:
    """Why the stages must not be trusted with these weights, or None. Copies to the host: never in a capture."""
    device, mode = weights.w13.device, experts.mode
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(1, shape.latent, generator=rng).to(torch.bfloat16)
    sorted = _one_pair(expert, shape, experts.block(1), device)
    out = torch.zeros(1, shape.latent, dtype=torch.bfloat16, device=device)
    got = experts.run(_rows(x, mode, sorted.sorted_ids, device), sorted, out).float().cpu()
    w13, w2 = plain_expert(weights, expert, shape, interleaved=mode == mx.MXFP8)
    want = gated_mlp(quantised(x, mode), w13, w2, SITU_BETA, SITU_LINEAR_BETA)
    if not want.any():
        return f"canary: expert {expert} has no weights to compare with (all zero)"
    error = float((got - want).norm() / want.norm())
    if error <= LIMITS[mode]:  # a NaN is not
        return None
    return (
        f"canary: expert {expert} differs from its dequantised weights by {error:.3g} relative L2, "
        f"limit {LIMITS[mode]}; the weights' layout and AITER's stages do not agree"
    )
