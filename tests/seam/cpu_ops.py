"""CPU implementations of the compiled operations that vLLM's K3 layer calls on ROCm. Import before vLLM's layers.

vLLM registers its custom operations for the GPU's dispatch key only, and its compiled `_C` library is not in a build
without kernels.
"""

import inspect
from types import SimpleNamespace
from typing import Any

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


def fused_moe(*arguments: Any, **named: Any) -> torch.Tensor:
    """What vLLM's own path calls for the routed experts, in a16w4, by the stand-in's stages."""
    from aiter import stages
    from vllm import _aiter_ops

    given = inspect.signature(_aiter_ops._rocm_aiter_fused_moe_impl).bind(*arguments, **named).arguments
    x, w1, w2, ids, weights = (given[name] for name in ("hidden_states", "w1", "w2", "topk_ids", "topk_weight"))
    *products, out = stages.moe_sorting(ids, weights, w1.shape[0], x.shape[1], torch.bfloat16, 32)
    sorted_ids, sorted_weights, *where = products
    between = stages.flydsl_moe_stage1(
        x, w1, sorted_ids, *where, topk=ids.shape[1], tile_m=32, act="situv2", situ_beta=given["beta"],
        situ_linear_beta=given["linear_beta"], w1_scale=given["w1_scale"],
    )  # fmt: skip
    return stages.flydsl_moe_stage2(
        between, w2, sorted_ids, *where, out, ids.shape[1], tile_m=32, w2_scale=given["w2_scale"],
        sorted_weights=sorted_weights,
    )  # fmt: skip


def install() -> None:
    """Define what is missing; the GPU that torch is asked about is an MI355X."""
    for schema, function in SCHEMAS.items():
        _C.define(schema)
        if function is not None:
            _C.impl(schema.split("(")[0], function, "CPU")
    torch.cuda.get_device_properties = lambda *a, **k: MI355X  # type: ignore[assignment]
    torch.cuda.current_device = lambda: 0
    torch.accelerator.empty_cache = lambda: None


def install_vllm_ops() -> None:
    """The same for vLLM's own custom operations, once its modules have registered them."""
    from vllm.model_executor.layers.fused_moe.router import gate_linear  # noqa: F401  registers
    from vllm.model_executor.layers.fused_moe.runner import moe_runner

    _VLLM.impl("moe_forward_shared", moe_runner._moe_forward_shared, "CPU")
    _VLLM.impl("rocm_aiter_biased_grouped_topk", biased_grouped_topk, "CPU")
    _VLLM.impl("fp32_router_gemm_dispatch", router_gemm, "CPU")
    _VLLM.impl("rocm_aiter_fused_moe", fused_moe, "CPU")


def install_gloo() -> None:
    """Let groups of several ranks reduce by torch.distributed: vLLM's communicator on ROCm wants RCCL."""
    from vllm.platforms import current_platform

    base = "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
    type(current_platform).get_device_communicator_cls = classmethod(lambda cls: base)
    _VLLM.impl("all_reduce", _all_reduce, "CPU")


def _all_reduce(tensor: torch.Tensor, group_name: str) -> torch.Tensor:
    from vllm.distributed import parallel_state

    return parallel_state.all_reduce(tensor, group_name)
