"""CPU implementations of the compiled operations that vLLM's K3 layer calls on ROCm. Import before vLLM's layers.

vLLM registers its custom operations for the GPU's dispatch key only, and its compiled `_C` library is not in a build
without kernels.
"""

from types import SimpleNamespace

import torch
import torch.nn.functional as F  # noqa: N812

from vllm_k3moe.reference.routing import route

_C = torch.library.Library("_C", "FRAGMENT")
_VLLM = torch.library.Library("vllm", "FRAGMENT")
MI355X = SimpleNamespace(
    multi_processor_count=256, gcnArchName="gfx950:sramecc+:xnack-", total_memory=288 << 30,
    name="AMD Instinct MI355X", major=9, minor=5, warp_size=64,
)  # fmt: skip


def situ_and_mul(out: torch.Tensor, x: torch.Tensor, beta: float, linear_beta: float) -> None:
    gate, up = x.float().chunk(2, -1)
    gate = beta * torch.tanh(gate / beta) * torch.sigmoid(gate)
    out.copy_(gate * (linear_beta * torch.tanh(up / linear_beta)))


def rms_norm(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    out.copy_(F.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps))


SCHEMAS = {
    "situ_and_mul(Tensor! out, Tensor input, float beta, float linear_beta) -> ()": situ_and_mul,
    "rms_norm(Tensor! out, Tensor input, Tensor weight, float eps) -> ()": rms_norm,
    "silu_and_mul(Tensor! out, Tensor input) -> ()": None,
    "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor weight, float eps) -> ()": None,
}


def biased_grouped_topk(
    logits: torch.Tensor, bias: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, *rest: object, **named: object
) -> None:
    """vLLM's router on ROCm is AITER's; here it is the oracle."""
    for out, want in zip((ids, weights), route(logits, bias.detach(), ids.shape[1]), strict=True):
        out.copy_(want)


def router_gemm(x: torch.Tensor, weight: torch.Tensor, *rest: object) -> torch.Tensor:
    return x.float() @ weight.float().T


def install() -> None:
    """Define what is missing; the GPU that torch is asked about is an MI355X."""
    for schema, function in SCHEMAS.items():
        _C.define(schema)
        if function is not None:
            _C.impl(schema.split("(")[0], function, "CPU")
    torch.cuda.get_device_properties = lambda *a, **k: MI355X  # type: ignore[assignment]
    torch.cuda.current_device = lambda: 0


def install_vllm_ops() -> None:
    """The same for vLLM's own custom operations, once its modules have registered them."""
    from vllm.model_executor.layers.fused_moe.router import gate_linear  # noqa: F401  registers
    from vllm.model_executor.layers.fused_moe.runner import moe_runner

    _VLLM.impl("moe_forward_shared", moe_runner._moe_forward_shared, "CPU")
    _VLLM.impl("rocm_aiter_biased_grouped_topk", biased_grouped_topk, "CPU")
    _VLLM.impl("fp32_router_gemm_dispatch", router_gemm, "CPU")
