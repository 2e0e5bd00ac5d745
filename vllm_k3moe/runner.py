"""The runner that vLLM builds for Kimi-K3's latent-MoE layers in place of its own. Imported on gfx950 only.

`_forward_impl` decides once per call, before vLLM would launch the shared expert: with any reason against it the call
is `super()`'s from start to end. With none the routed experts are K3FusedMoEMethod's, and up to 128 tokens the shared
expert behind its gate_up rides in their launches; beyond, it runs where vLLM would run it (on its side stream, or
before). The result is what the stock runner returns. `_shard_up_proj_tail` is decided per call, too.

What depends on the weights (loaded after construction, without a hook) is prepared by the first eager call, which is
vLLM's profile run: AITER is looked up, everything is compiled, the canary is run.
"""

from typing import Any

import torch
from vllm.config import get_current_vllm_config_or_none
from vllm.distributed import get_tensor_model_parallel_rank, tensor_model_parallel_all_reduce
from vllm.model_executor.layers.fused_moe.runner.shared_experts import SharedExpertsOrder
from vllm.models.kimi_k3.amd.latent_moe_runner import ROCmLatentMoERunner

from . import gates, report
from .canary import disagreement
from .counters import CALLS
from .envs import Settings, fuses_front, read
from .experts import Weights
from .experts.build import build_experts
from .kernels.situ import MAX_TOKENS as MAX_SHARED
from .method import K3FusedMoEMethod
from .parts import fusible
from .ranks import agree
from .shapes import SITU_BETA, SITU_LINEAR_BETA
from .sort_plan import K3SortPlan, offer
from .tail import TOO_MANY, LatentTail, of_layer
from .warmup import compiling_into, warm_up

NOT_PREPARED = "first call of the layer was inside a graph capture"
NOT_ASKED_FOR = "K3MOE_FUSE names neither route,sort nor, for this batch, shared"


class InactiveError(RuntimeError):
    """K3MOE=strict, and the fused path cannot be used. Says every reason."""


class K3LatentMoERunner(ROCmLatentMoERunner):
    """vLLM's runner, with the routed experts fused where nothing speaks against it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._k3_settings: Settings = read()
        self._k3_method: K3FusedMoEMethod | None = None
        self._k3_pointers: tuple[int, ...] = ()
        self._k3_parts: frozenset[str] = frozenset()  # of K3MOE_FUSE: those that this layer fuses
        vllm_config = get_current_vllm_config_or_none()  # set while a model is built, not when it runs
        self._k3_canary = self._k3_settings.canary and report.weights_are_real(vllm_config)
        try:
            self._k3_reasons = report.static_reasons(self, vllm_config)
        except Exception as error:
            self._k3_reasons = [f"gates failed: {type(error).__name__}: {error}"]
        self._k3_say(self._k3_reasons, "global")

    def _k3_say(self, reasons: list[str], scope: str) -> None:
        """Log, by the first rank ("global") or by each, that the fused path is off; K3MOE=strict raises instead."""
        if reasons and self._k3_settings.strict:
            raise InactiveError(report.inactive(reasons) + ". K3MOE=auto runs vLLM's own path instead")
        if reasons:
            report.logger.info_once(report.inactive(reasons), scope=scope)

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
        settings = self._k3_settings
        reasons: list[str] = []
        try:
            weights, mode = self._k3_weights(), report.situ_mode()
            shape, _ = gates.shape_of(self.moe_config)
            assert shape is not None
            experts, reasons = build_experts(shape, gates.MODES[mode], weights)
            if experts is not None:
                bias = self.routed_experts.e_score_correction_bias
                method = K3FusedMoEMethod(shape, bias, experts, self._k3_select_experts)
                parts, others = fusible(self, settings.fuse)
                for other in others:
                    report.logger.info_once("k3moe: %s", other, scope="process")
                with compiling_into(settings.cache):
                    warm_up(method, weights.w13.device, report.progress, parts)
                if self._k3_canary:
                    found = disagreement(experts, weights, shape, shape.experts - 1)
                    reasons = [] if found is None else [f"{found} in {self.layer_name}"]
                if not reasons:
                    self._k3_method, self._k3_pointers, self._k3_parts = method, _pointers(weights), parts
                    report.logger.info_once(report.active(mode, method, parts), scope="global")
        except Exception as error:  # serving goes on by vLLM's path; strict raises below
            report.logger.debug("k3moe: preparing %s failed", self.layer_name, exc_info=True)
            reasons = [f"preparing failed: {type(error).__name__}: {error}"]
        if settings.strict:
            reasons = agree(reasons)
        self._k3_reasons = reasons
        self._k3_say(reasons, "process")  # what one rank finds the first rank does not know

    def _k3_tail(self, latent: torch.Tensor, shared: torch.Tensor) -> LatentTail | None:
        """The tail of this batch, or None where it is vLLM's."""
        if "tail" not in self._k3_parts or self._k3_reasons:
            return None
        try:
            tail = of_layer(self.routed_output_transform, get_tensor_model_parallel_rank(), self._up_proj_shard_size)
            reasons = tail.reasons(latent, shared)
        except Exception as error:
            self._k3_fail_tail(error)
            return None
        CALLS.tail_fallback.update(reasons)
        self._k3_warn([reason for reason in reasons if reason != TOO_MANY])
        return None if reasons else tail

    def _k3_fail_tail(self, error: Exception) -> None:
        """From here on the tail is vLLM's, the rest of the layer is not. K3MOE=strict raises."""
        if self._k3_settings.strict:
            raise error
        self._k3_parts -= {"tail"}
        reason = f"tail: failed in serving: {type(error).__name__}: {error}"
        report.logger.warning("%s: k3moe: %s", self.layer_name, reason, exc_info=True)
        CALLS.tail_fallback.update([reason])

    def _k3_call_reasons(self, x: torch.Tensor, logits: torch.Tensor) -> list[str]:
        """Why this call takes vLLM's path. What the log has not said yet, at the first call, it says now."""
        if self._k3_reasons:
            return self._k3_reasons
        reasons = []
        if self._k3_method is None:
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                reasons = [NOT_PREPARED]
            else:
                self._k3_prepare()
                if self._k3_method is None:
                    return self._k3_reasons
        if self._k3_method is not None:
            refused = self._k3_method.refuses(len(x))
            if refused is not None:
                return [refused]
            reasons = gates.failed(gates.CALL, self) + self._k3_method.reasons(x, logits)
            if _pointers(self._k3_weights()) != self._k3_pointers:
                reasons.append("weights moved since they were checked")
        self._k3_warn(reasons)
        return reasons

    def _k3_warn(self, reasons: list[str]) -> None:
        """Each once, of a batch that is vLLM's, or a part of it."""
        for reason in reasons:
            report.logger.warning_once("k3moe: a call of %s is vLLM's: %s", self.layer_name, reason)

    def _k3_vllms_experts(self, x: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """The routed experts [M, L] by vLLM's router and modular kernel, as its own `_forward_impl` calls them."""
        self.routed_experts._ensure_moe_quant_config_init()
        weights, ids = self._k3_select_experts(x, logits)
        return self.routed_experts.forward_modular(
            x=x, topk_weights=weights, topk_ids=ids, shared_experts=None, shared_experts_input=None
        )

    def _k3_fail(self, error: Exception) -> None:
        """A fault in ours is logged and final: from here on vLLM's answer. K3MOE=strict raises it."""
        if self._k3_settings.strict:
            raise error
        self._k3_reasons = [f"failed in serving: {type(error).__name__}: {error}"]
        report.logger.warning("%s: %s", self.layer_name, report.inactive(self._k3_reasons), exc_info=True)
        CALLS.fallback.update(self._k3_reasons)

    def _k3_ours(self, x: torch.Tensor, logits: torch.Tensor, shared: K3SortPlan | None = None) -> torch.Tensor:
        """The routed experts [M, L] by our front, which may take the shared expert along."""
        assert self._k3_method is not None
        routed = self._k3_method(x, logits, shared)
        CALLS.fused += 1
        return routed

    def _k3_routed(self, x: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """The routed experts alone, ours unless something failed."""
        if not self._k3_reasons:
            try:
                return self._k3_ours(x, logits)
            except Exception as error:
                self._k3_fail(error)
        return self._k3_vllms_experts(x, logits)

    def _k3_both(
        self, x: torch.Tensor, logits: torch.Tensor, shared_input: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Shared [M, H] and routed [M, L]. gate_up is vLLM's linear and runs once, whatever becomes of the rest."""
        mlp = self._shared_experts._layer
        gate_up, _ = mlp.gate_up_proj(shared_input)
        routed = None if fuses_front(self._k3_parts) else self._k3_vllms_experts(x, logits)
        plan, reasons = offer(gate_up, mlp.down_proj.weight.data, len(x), SITU_BETA, SITU_LINEAR_BETA)
        CALLS.shared_fallback.update(reasons)
        self._k3_warn(reasons)
        if plan is not None:
            try:
                with plan:
                    ours = self._k3_ours(x, logits, plan) if routed is None else routed
                CALLS.shared_fused += 1
                return plan.out, ours
            except Exception as error:
                self._k3_fail(error)
        shared, _ = mlp.down_proj(mlp.act_fn(gate_up))
        return shared, self._k3_routed(x, logits) if routed is None else routed

    def _forward_impl(
        self,
        hidden_states: torch.Tensor,
        router_logits: torch.Tensor,
        shared_experts_input: torch.Tensor | None,
        input_ids: torch.Tensor | None = None,
    ) -> Any:
        """hidden_states bf16 [M, L], router_logits fp32 [M, E] -> (shared [M, H], routed [M, L]) partial sums."""
        reasons = self._k3_call_reasons(hidden_states, router_logits)
        fits = "shared" in self._k3_parts and len(hidden_states) <= MAX_SHARED
        shared_input = shared_experts_input if fits else None
        if not reasons and shared_input is None and not fuses_front(self._k3_parts):
            reasons = [NOT_ASKED_FOR]
        if reasons:
            CALLS.fallback.update(reasons)
            return super()._forward_impl(hidden_states, router_logits, shared_experts_input, input_ids)
        if self._shared_experts is None:
            return self._k3_routed(hidden_states, router_logits)
        if shared_input is not None:
            return self._k3_both(hidden_states, router_logits, shared_input)
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
        tail = self._k3_tail(fused_output, shared_output)
        if tail is None:
            return super()._shard_up_proj_tail(fused_output, shared_output, trunc_size)
        latent = tensor_model_parallel_all_reduce(fused_output)
        tail.launch(latent, shared_output)  # were it to raise, nobody knows what is in these columns: no second way
        CALLS.tail_fused += 1
        return self._maybe_reduce_final_output(shared_output, trunc_size, output_is_reduced=False)


def _pointers(weights: Weights) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in weights)
