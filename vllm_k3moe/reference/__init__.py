"""The specification as plain NumPy and PyTorch on CPU: what every kernel here must compute.

It shares no code with the kernels and imports neither them nor Triton. Start reading at `block.py`.

| file | what it specifies |
|---|---|
| routing.py | sigmoid + bias + top-k + renormalise, and the comparator for a device's routing |
| sorting.py | AITER's expert-blocked order of (token, slot) pairs |
| mx.py | MXFP8 / MXFP4 rows, their scale bytes, and where AITER wants each scale byte |
| experts.py | SiTU and the routed experts, from ids or from sorted products |
| block.py | the whole latent-MoE layer of one rank |
"""

from .block import LatentMoEWeights, latent_moe, latent_partials, latent_tail, shared_expert, shared_hidden
from .experts import dense_experts, experts, experts_from_sorted, situ
from .mx import dequantise_mxfp4, dequantise_mxfp8, quantise_mxfp4, quantise_mxfp8, scale_offset, scatter_scales
from .routing import route, routing_faults
from .sorting import Sorted, max_blocks, sort

__all__ = [
    "LatentMoEWeights",
    "Sorted",
    "dense_experts",
    "dequantise_mxfp4",
    "dequantise_mxfp8",
    "experts",
    "experts_from_sorted",
    "latent_moe",
    "latent_partials",
    "latent_tail",
    "max_blocks",
    "quantise_mxfp4",
    "quantise_mxfp8",
    "route",
    "routing_faults",
    "scale_offset",
    "scatter_scales",
    "shared_expert",
    "shared_hidden",
    "situ",
    "sort",
]
