"""The runner that vLLM builds for Kimi-K3's latent-MoE layers in place of its own. Imported on gfx950 only.

`_forward_impl` decides once per call, before vLLM would launch the shared expert: with any reason against it the call
is `super()`'s from start to end; with none, the shared expert runs where vLLM would run it (on its side stream, or
before) and the routed experts are K3FusedMoEMethod's. The result is what the stock runner returns: the pair (shared,
routed), or the routed part alone where a layer has no shared expert.

What depends on the weights (they are loaded after construction, and vLLM has no hook here) is prepared by the first
eager call, which is vLLM's profile run: AITER is looked up, everything is compiled, the canary is run.
"""

from typing import Any

import torch
from vllm.config import get_current_vllm_config_or_none
from vllm.distributed import get_tensor_model_parallel_rank, get_tp_group, tensor_model_parallel_all_reduce
from vllm.model_executor.layers.fused_moe.runner.shared_experts import SharedExpertsOrder
from vllm.models.kimi_k3.amd.latent_moe_runner import ROCmLatentMoERunner

from . import gates, report
from .canary import disagreement
from .counters import CALLS
from .envs import Settings, read
from .experts import Weights
from .experts.build import build_experts
from .method import K3FusedMoEMethod
from .tail import LatentTail
from .warmup import compiling_into, warm_up

NOT_PREPARED = "first call of the layer was inside a graph capture"


class InactiveError(RuntimeError):
    """K3MOE=strict, and the fused path cannot be used. Says every reason."""


class K3LatentMoERunner(ROCmLatentMoERunner):
    """vLLM's runner, with the routed experts fused where nothing speaks against it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._k3_settings: Settings = read()
        self._k3_method: K3FusedMoEMethod | None = None
        self._k3_pointers: tuple[int, ...] = ()
        self._k3_fuses_tail = False
        vllm_config = get_current_vllm_config_or_none()  # set while a model is built, not when it runs
        self._k3_canary = self._k3_settings.canary and report.weights_are_real(vllm_config)
        self._k3_reasons = report.static_reasons(self, vllm_config)
        self._k3_say(self._k3_reasons)

    def _k3_say(self, reasons: list[str]) -> None:
        """Log, once per process group, that the fused path is off; K3MOE=strict raises instead."""
        if reasons and self._k3_settings.strict:
            raise InactiveError(report.inactive(reasons) + ". K3MOE=auto runs vLLM's own path instead")
        if reasons:
            report.logger.info_once(report.inactive(reasons), scope="global")

    def _k3_weights(self) -> Weights:
        layer = self.routed_experts
        return Weights(layer.w13_weight, layer.w2_weight, layer.w13_weight_scale, layer.w2_weight_scale)

    def _k3_select_experts(self, x: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, ids = self.router.select_experts(
            hidden_states=x, router_logits=logits, topk_indices_dtype=self._quant_method.topk_indices_dtype
        )
        return weights, ids.to(torch.int32)

    def _k3_prepare(self) -> None:
        """Build, compile and test the fused path on this layer's weights; reasons, if any, are for good."""
        weights, settings = self._k3_weights(), self._k3_settings
        shape, _ = gates.shape_of(self.moe_config)
        assert shape is not None
        mode = report.situ_mode()
        reasons: list[str] = []
        try:
            experts, reasons = build_experts(shape, gates.MODES[mode], weights)
            if experts is not None:
                bias = self.routed_experts.e_score_correction_bias
                method = K3FusedMoEMethod(shape, bias, experts, self._k3_select_experts)
                with compiling_into(settings.cache):
                    warm_up(method, shape, weights.w13.device, report.progress, self._k3_wants_tail)
                if self._k3_canary:
                    found = disagreement(experts, weights, shape, shape.experts - 1)
                    reasons = [] if found is None else [found]
                if not reasons:
                    self._k3_fuses_tail = self._k3_wants_tail and not self._k3_tail_reasons()
                    self._k3_method, self._k3_pointers = method, _pointers(weights)
                    report.logger.info_once(report.active(mode, method), scope="global")
        except Exception as error:  # serving goes on by vLLM's path; strict raises below
            report.logger.debug("k3moe: preparing %s failed", self.layer_name, exc_info=True)
            reasons = [f"preparing failed: {type(error).__name__}: {error}"]
        if settings.strict:
            reasons = self._k3_agree(reasons)
        self._k3_reasons = reasons
        self._k3_say(reasons)

    @property
    def _k3_wants_tail(self) -> bool:
        return self._tail_shardable and "tail" in self._k3_settings.fuse

    def _k3_tail_reasons(self) -> list[str]:
        """Why the tail stays vLLM's for good, which is logged; the rest of the layer may be fused all the same."""
        reasons = gates.failed(gates.TAIL, self)
        if reasons:
            report.logger.info_once("k3moe: vLLM's latent tail: %s", "; ".join(reasons), scope="global")
        return reasons

    def _k3_tail(self) -> LatentTail:
        """The tail with the weights as vLLM's modules hold them now."""
        transform, size = self.routed_output_transform, self._up_proj_shard_size
        first, up = get_tensor_model_parallel_rank() * size, transform.up_proj.weight.data
        if not self._up_proj_preshard:
            up = up.narrow(0, first, size)
        return LatentTail(transform.norm.weight.data, transform.norm.variance_epsilon, up, first)

    def _k3_agree(self, reasons: list[str]) -> list[str]:
        """Under K3MOE=strict all ranks raise or none: one that raised alone would leave the others in a collective."""
        group = get_tp_group()
        if group.world_size == 1:
            return reasons
        bad = torch.tensor([bool(reasons)], dtype=torch.int32)
        torch.distributed.all_reduce(bad, group=group.cpu_group)
        return reasons or (["another rank of this layer has a reason"] if bad.item() else [])

    def _k3_call_reasons(self, x: torch.Tensor, logits: torch.Tensor) -> list[str]:
        """Why this call takes vLLM's path."""
        if self._k3_reasons:
            return self._k3_reasons
        if self._k3_method is None:
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                return [NOT_PREPARED]
            self._k3_prepare()
            if self._k3_method is None:
                return self._k3_reasons
        reasons = gates.failed(gates.CALL, self)
        if _pointers(self._k3_weights()) != self._k3_pointers:
            reasons.append("weights moved since they were checked")
        return reasons + self._k3_method.reasons(x, logits)

    def _k3_routed(self, x: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """The routed experts [M, L]. A fault in ours is logged and final: from here on vLLM's answer."""
        assert self._k3_method is not None
        try:
            routed = self._k3_method(x, logits)
        except Exception as error:
            if self._k3_settings.strict:
                raise
            self._k3_reasons = [f"failed in serving: {type(error).__name__}: {error}"]
            report.logger.warning("%s: %s", self.layer_name, report.inactive(self._k3_reasons), exc_info=True)
            CALLS.fallback.update(self._k3_reasons)
            weights, ids = self._k3_select_experts(x, logits)
            routed = self.routed_experts.forward_modular(
                x=x, topk_weights=weights, topk_ids=ids, shared_experts=None, shared_experts_input=None
            )
        else:
            CALLS.fused += 1
        return routed

    def _forward_impl(
        self,
        hidden_states: torch.Tensor,
        router_logits: torch.Tensor,
        shared_experts_input: torch.Tensor | None,
        input_ids: torch.Tensor | None = None,
    ) -> Any:
        """hidden_states bf16 [M, L], router_logits fp32 [M, E] -> (shared [M, H], routed [M, L]) partial sums."""
        reasons = self._k3_call_reasons(hidden_states, router_logits)
        if reasons:
            CALLS.fallback.update(reasons)
            return super()._forward_impl(hidden_states, router_logits, shared_experts_input, input_ids)
        if self._shared_experts is None:
            return self._k3_routed(hidden_states, router_logits)
        overlapping = self._shared_experts.maybe_forward_async(shared_experts_input)
        self._maybe_apply_shared_experts(shared_experts_input, SharedExpertsOrder.NO_OVERLAP)
        routed = self._k3_routed(hidden_states, router_logits)
        if overlapping:
            self._shared_experts.wait()
        return self._shared_experts.output, routed

    def _shard_up_proj_tail(
        self, fused_output: torch.Tensor, shared_output: torch.Tensor, trunc_size: int | None
    ) -> torch.Tensor:
        """Partial sums fused_output bf16 [M, L] and shared_output bf16 [M, H] -> the layer's output [M, H]."""
        if not self._k3_fuses_tail or self._k3_reasons:
            return super()._shard_up_proj_tail(fused_output, shared_output, trunc_size)
        tail = self._k3_tail()
        reasons = tail.reasons(fused_output, shared_output)
        if reasons:
            CALLS.tail_fallback.update(reasons)
            return super()._shard_up_proj_tail(fused_output, shared_output, trunc_size)
        latent = tensor_model_parallel_all_reduce(fused_output)
        try:
            tail(latent, shared_output)
        except Exception as error:  # before anything was launched; vLLM's own two steps, from here on too
            if self._k3_settings.strict:
                raise
            self._k3_fuses_tail, reason = False, f"tail: failed in serving: {type(error).__name__}: {error}"
            report.logger.warning("%s: k3moe: %s", self.layer_name, reason, exc_info=True)
            CALLS.tail_fallback.update([reason])
            tail.shard(shared_output).addmm_(self.routed_output_transform.norm(latent), tail.up.t())
        else:
            CALLS.tail_fused += 1
        return self._maybe_reduce_final_output(shared_output, trunc_size, output_is_reduced=False)


def _pointers(weights: Weights) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in weights)
