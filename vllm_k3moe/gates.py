"""When the fused path may not run. Default-deny: every gate is asked, each that fails is a reason, all are reported.

Gates look at shapes, types and switches, never at a model's name: a K3.1-named config of these shapes passes, a
K3-named one of other shapes does not. A gate reads one attribute; one that cannot be read fails, unless it is younger
than the oldest vLLM served and its absence means the feature is not there.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

from .envs import Settings
from .shapes import K3_TP8, ROUTED_SCALING, SITU_BETA, SITU_LINEAR_BETA, MoEShape

SHAPES = (K3_TP8,)  # validated; S and H gate the shared expert alone (parts.py)
VLLM_VERSIONS = ("0.29", "0.30", "0.31", "0.32", "0.33")
MODES = {"a16w4": "none", "a8w4": "mxfp8", "a4w4": "mxfp4"}  # vLLM's name: what quantises the rows
# vLLM takes the mode from the first it knows: 0.29 and 0.30 know the second alone
MODE_VARIABLES = ("VLLM_ROCM_USE_AITER_MOE_SITUV2", "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4")
COMPUTE_UNITS = 256  # a partitioned MI355X has fewer, and no tile table is for it
_ABSENT = object()


@dataclass(frozen=True)
class Gate:
    """An attribute of a root object, the values it may have, and whether it may be absent."""

    what: str
    path: str
    accepts: tuple[Any, ...]
    younger: bool = False  # than the oldest vLLM served

    def reason(self, root: Any) -> str | None:
        value = ask(root, self.path)
        if value is _ABSENT:
            return None if self.younger else f"{self.what}: this vLLM has no {self.path}"
        if any(value is a or (type(value) is type(a) and value == a) for a in self.accepts):
            return None
        return f"{self.what}: {self.path} is {value!r}; served: {' or '.join(map(repr, self.accepts))}"


def ask(root: Any, path: str) -> Any:
    """The attribute at a dotted path, or _ABSENT. None on the way ends the path: what hangs on it is None too."""
    for name in path.split("."):
        if root is None:
            return None
        root = getattr(root, name, _ABSENT)
        if root is _ABSENT:
            return _ABSENT
    return root


_QUANT, _MOE, _EXPERTS = "routed_experts.quant_method", "moe_config", "routed_experts"
_UP, _SHARED = "routed_output_transform.up_proj", "_shared_experts._layer"
_LINEAR = ("UnquantizedLinearMethod",), ("vllm.model_executor.layers.linear",)
_PARALLEL = "moe_config.moe_parallel_config"
RUNNER = (
    Gate("quantisation", f"{_QUANT}.__class__.__name__", ("Mxfp4MoEMethod",)),
    Gate("quantisation", f"{_QUANT}.__class__.__module__", ("vllm.model_executor.layers.quantization.mxfp4",)),
    Gate("weight layout", f"{_QUANT}.mxfp4_backend.name", ("AITER_MXFP4_BF16",)),
    Gate("weight layout", f"{_QUANT}.is_k3_situ_aiter", (True,), younger=True),
    Gate("monolithic experts", f"{_QUANT}.is_monolithic", (False,)),
    Gate("--moe-backend", f"{_MOE}.moe_backend", ("auto", "aiter")),
    Gate("activation", f"{_MOE}.activation.value", ("situ",)),
    Gate("SiTU beta", f"{_MOE}.activation_situ_beta", (SITU_BETA,)),
    Gate("SiTU linear beta", f"{_MOE}.activation_situ_linear_beta", (SITU_LINEAR_BETA,)),
    Gate("expert bias", f"{_MOE}.has_bias", (False,)),
    Gate("SwiGLU limit", f"{_MOE}.swiglu_limit", (None,)),
    Gate("SwiGLU limit", f"{_EXPERTS}.swiglu_limit", (None,)),
    Gate("router", "router.__class__.__name__", ("GroupedTopKRouter",)),
    Gate("routing", f"{_MOE}.routing_method.name", ("DeepSeekV3",)),
    Gate("expert groups", "router.num_expert_group", (1,)),
    Gate("expert groups", "router.topk_group", (1,)),
    Gate("scoring", f"{_EXPERTS}.scoring_func", ("sigmoid",)),
    Gate("renormalisation", f"{_EXPERTS}.renormalize", (True,)),
    Gate("routed scaling factor", f"{_EXPERTS}.routed_scaling_factor", (ROUTED_SCALING,)),
    Gate("routed scaling factor", "routed_scaling_factor", (ROUTED_SCALING,)),
    Gate("custom routing", f"{_EXPERTS}.custom_routing_function", (None,)),
    Gate("fused shared experts", "router.num_fused_shared_experts", (0,)),
    Gate("hash routing", f"{_MOE}.has_hash_routing", (False,), younger=True),
    Gate("second routing bias", "router.bias_vl", (None,), younger=True),
    Gate("decomposed routing", f"{_MOE}.require_decomposed_backend", (False,), younger=True),
    Gate("router weight on input", f"{_EXPERTS}.apply_router_weight_on_input", (False,)),
    Gate("runner-owned gate", "gate", (None,)),
    Gate("expert parallel", f"{_PARALLEL}.use_ep", (False,)),
    Gate("data parallel", f"{_PARALLEL}.dp_size", (1,)),
    Gate("prefill context parallel", f"{_PARALLEL}.pcp_size", (1,)),
    Gate("sequence parallel", f"{_PARALLEL}.is_sequence_parallel", (False,)),
    Gate("EPLB", f"{_PARALLEL}.enable_eplb", (False,)),
    Gate("EPLB", "router.eplb_state", (None,)),
    Gate("all2all", f"{_PARALLEL}.use_all2all_kernels", (False,)),
    Gate("LoRA", f"{_MOE}.is_lora_enabled", (False,)),
    Gate("DBO", "enable_dbo", (False,)),
)
CONFIG = (
    Gate("routed-expert capture", "aux_output_config.enable_return_routed_experts", (False, None), younger=True),
    Gate("routed-expert capture", "model_config.enable_return_routed_experts", (False, None), younger=True),
    Gate("LoRA", "lora_config", (None,)),
    Gate("CPU offload", "offload_config.uva.cpu_offload_gb", (0, 0.0, None), younger=True),
    Gate("CPU offload", "offload_config.prefetch.offload_group_size", (0, None), younger=True),
    Gate("CPU offload", "cache_config.cpu_offload_gb", (0, 0.0, None), younger=True),
    Gate("sleep mode", "model_config.enable_sleep_mode", (False,)),
    Gate("weight transfer", "weight_transfer_config", (None,), younger=True),
    Gate("DBO", "parallel_config.use_ubatching", (False,), younger=True),
    Gate("elastic EP", "parallel_config.enable_elastic_ep", (False,), younger=True),
)
SWITCHES = (
    Gate("batch invariance", "VLLM_BATCH_INVARIANT", (False,)),
    Gate("routing simulation", "VLLM_MOE_ROUTING_SIMULATION_STRATEGY", ("",)),
)
SHARED = (  # attributes of a runner; of a layer without a shared expert none is asked
    Gate("shared expert", f"{_SHARED}.__class__.__name__", ("KimiMLP",)),
    Gate("shared expert", f"{_SHARED}.__class__.__module__", ("vllm.models.kimi_k3.amd.linear",)),
    Gate("shared activation", f"{_SHARED}.act_fn.__class__.__name__", ("SituAndMul",)),
    Gate("shared SiTU beta", f"{_SHARED}.act_fn.beta", (SITU_BETA,)),
    Gate("shared SiTU linear beta", f"{_SHARED}.act_fn.linear_beta", (SITU_LINEAR_BETA,)),
    Gate("shared gate_up", f"{_SHARED}.gate_up_proj.quant_method.__class__.__name__", _LINEAR[0]),
    Gate("shared gate_up", f"{_SHARED}.gate_up_proj.quant_method.__class__.__module__", _LINEAR[1]),
    Gate("shared down", f"{_SHARED}.down_proj.quant_method.__class__.__name__", _LINEAR[0]),
    Gate("shared down", f"{_SHARED}.down_proj.quant_method.__class__.__module__", _LINEAR[1]),
    Gate("shared down bias", f"{_SHARED}.down_proj.bias", (None,)),
    Gate("shared down's sum over ranks", f"{_SHARED}.down_proj.reduce_results", (False,)),
)
TAIL = (  # attributes of a runner; of a layer whose tail is not sharded none is asked
    Gate("latent norm", "routed_output_transform.norm.__class__.__name__", ("RMSNorm",)),
    Gate("latent norm", "routed_output_transform.norm.__class__.__module__", ("vllm.model_executor.layers.layernorm",)),
    Gate("latent norm", "routed_output_transform.norm.variance_size_override", (None,)),
    Gate("latent norm", "routed_output_transform.norm.has_weight", (True,), younger=True),
    Gate("up-projection", f"{_UP}.quant_method.__class__.__name__", _LINEAR[0]),
    Gate("up-projection", f"{_UP}.quant_method.__class__.__module__", _LINEAR[1]),
    Gate("up-projection bias", f"{_UP}.bias", (None,)),
)
CALL = (  # attributes of a runner that may change between calls
    Gate("routed-expert capture", "router.capture_fn", (None,), younger=True),
    Gate("routed-expert capture", "router._routing_replay_out", (None,), younger=True),
    Gate("routed-expert capture", "routed_experts.routing_sink", (None,), younger=True),
)


def failed(gates: Iterable[Gate], root: Any) -> list[str]:
    return [reason for gate in gates if (reason := gate.reason(root)) is not None]


def shape_of(moe_config: Any) -> tuple[MoEShape | None, list[str]]:
    """The validated shape of a layer, or why there is none."""
    names = (
        "num_experts", "num_local_experts", "num_logical_experts", "experts_per_token", "hidden_dim",
        "hidden_dim_unpadded", "intermediate_size_per_partition", "intermediate_size_per_partition_unpadded",
    )  # fmt: skip
    values = tuple(getattr(moe_config, name, None) for name in names)
    for shape in SHAPES:
        _, latent, experts, topk, inter, _ = astuple(shape)
        if values == (experts, experts, experts, topk, latent, latent, inter, inter):
            return shape, []
    return None, [f"shape: ({', '.join(names)}) is {values}; served: Kimi-K3 at TP8"]


def platform_reasons(settings: Settings, is_rocm: bool, arch: str, vllm_version: str) -> list[str]:
    """What can be said before any layer exists. `arch` as in gfx950, "" off ROCm."""
    reasons = [f"setting: {error}" for error in settings.errors]
    if not settings.fuse:
        reasons.append("K3MOE_FUSE=none")
    if not is_rocm:
        reasons.append("platform: not ROCm")
    elif arch != "gfx950" and not settings.allow_any_arch:
        reasons.append(f"platform: {arch or 'unknown architecture'}; served: gfx950")
    if not vllm_version.startswith(tuple(f"{v}." for v in VLLM_VERSIONS)):
        reasons.append(f"vLLM {vllm_version} is untested; served: {VLLM_VERSIONS[0]} to {VLLM_VERSIONS[-1]}")
    return reasons


def config_reasons(vllm_config: Any) -> list[str]:
    """What the engine's configuration rules out."""
    if vllm_config is None:
        return ["no vLLM configuration is set"]
    reasons = failed(CONFIG, vllm_config)
    extra = getattr(vllm_config, "additional_config", None)
    if isinstance(extra, dict) and extra.get("decode_backend", "auto") != "auto":
        reasons.append(f"decode_backend={extra['decode_backend']}: vLLM's own decode owns these layers")
    if ask(vllm_config, "compilation_config.mode.name") == "STOCK_TORCH_COMPILE":
        reasons.append("compilation mode STOCK_TORCH_COMPILE")
    return reasons


def static_reasons(runner: Any, vllm_config: Any, envs: Any, mode: str, compute_units: int) -> list[str]:
    """Why this layer stays on vLLM's path for good; [] if it need not. `envs` is vllm.envs, `mode` vLLM's SiTU mode."""
    import torch

    moe_config = runner.moe_config
    reasons = failed(RUNNER, runner) + shape_of(moe_config)[1] + config_reasons(vllm_config) + failed(SWITCHES, envs)
    dtype = ask(runner, "moe_config.in_dtype")
    if dtype is not torch.bfloat16:
        reasons.append(f"dtype: {dtype}; served: torch.bfloat16")
    if ask(runner, "routed_experts.e_score_correction_bias") in (None, _ABSENT):
        reasons.append("routing: no e_score_correction_bias")
    if mode not in MODES:
        reasons.append(f"SiTU mode {mode!r}; served: {', '.join(MODES)}")
    if compute_units != COMPUTE_UNITS:
        reasons.append(f"{compute_units} compute units (a partitioned GPU?); the tile tables are for {COMPUTE_UNITS}")
    return reasons
