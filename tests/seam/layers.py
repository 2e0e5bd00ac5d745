"""vLLM's own KimiMoE at Kimi-K3's full shape, with weights that a seed makes expert by expert."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vllm_k3moe.reference.block import LatentMoEWeights
from vllm_k3moe.reference.mx import dequantise_mxfp4
from vllm_k3moe.shapes import K3_TP8

PREFIX = "model.layers.1.block_sparse_moe"


def text_config(tp: int = 1, **changes: Any) -> dict[str, Any]:
    """A Kimi-K3 text config of two layers; one rank of `tp` has the expert width of a TP8 rank."""
    return {
        "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "dtype": "bfloat16",
        "vocab_size": 1024, "hidden_size": K3_TP8.hidden, "num_hidden_layers": 2, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "intermediate_size": 1024, "hidden_act": "situ", "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0, "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 128,
        "q_lora_rank": 256, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "mla_use_nope": True, "mla_use_output_gate": True,
        "linear_attn_config": {
            "num_heads": 12, "head_dim": 128, "short_conv_kernel_size": 4, "use_full_rank_gate": True,
            "gate_lower_bound": -5.0, "kda_layers": [1], "full_attn_layers": [2],
        },
        "attn_res_block_size": 2, "num_experts": K3_TP8.experts, "num_experts_per_token": K3_TP8.topk,
        "num_shared_experts": 2, "moe_intermediate_size": K3_TP8.inter * tp,
        "routed_expert_hidden_size": K3_TP8.latent, "latent_moe_use_norm": True, "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 1.0, "use_grouped_topk": True,
        "num_expert_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "num_nextn_predict_layers": 0,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "tie_word_embeddings": False, "bos_token_id": 256,
        "eos_token_id": 257, "pad_token_id": 258, "rope_theta": 50000.0,
        "quantization_config": {"quant_method": "mxfp4"},
    } | changes  # fmt: skip


def engine_config(folder: Path, config: dict[str, Any], **arguments: Any) -> Any:
    """vLLM's configuration of an engine that would serve `config`."""
    from vllm.engine.arg_utils import EngineArgs

    (folder / "config.json").write_text(json.dumps(config))
    defaults = {"load_format": "dummy", "max_model_len": 256, "max_num_seqs": 4, "enforce_eager": True}
    return EngineArgs(model=str(folder), skip_tokenizer_init=True, **{**defaults, **arguments}).create_engine_config()


@contextmanager
def bfloat16() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def build(vllm_config: Any, device: str = "cpu") -> Any:
    """A KimiMoE as the model builds it. Needs a process group; raises what the runner raises."""
    from vllm.config import set_current_vllm_config
    from vllm.models.kimi_k3.amd.linear import KimiMoE

    vllm_config.compilation_config.static_forward_context.clear()
    with set_current_vllm_config(vllm_config), bfloat16(), torch.device(device):
        return KimiMoE(
            vllm_config.model_config.hf_text_config, quant_config=vllm_config.quant_config, prefix=PREFIX, layer_idx=1
        )


class Experts:
    """Expert weights by seed: the same bytes whenever they are asked for, so that nobody has to keep 2 GB of them."""

    def __init__(self, seed: int, inter: int = K3_TP8.inter) -> None:
        self.seed, self.inter = seed, inter

    def packed(self, expert: int) -> tuple[torch.Tensor, ...]:
        """w13 uint8 [2I, L/2], its scales uint8 [2I, L/32], w2 uint8 [L, I/2], its scales uint8 [L, I/32]."""
        rng = np.random.default_rng((self.seed, expert))

        def values(rows: int, columns: int) -> torch.Tensor:
            return torch.frombuffer(bytearray(rng.bytes(rows * columns)), dtype=torch.uint8).view(rows, columns)

        latent, inter = K3_TP8.latent, self.inter
        return (
            values(2 * inter, latent // 2),
            values(2 * inter, latent // 32) % 4 + 118,
            values(latent, inter // 2),
            values(latent, inter // 32) % 4 + 118,
        )

    def __call__(self, expert: int) -> tuple[torch.Tensor, torch.Tensor]:
        """w13 fp32 [2I, L] and w2 fp32 [L, I]."""
        w13, w13_scale, w2, w2_scale = self.packed(expert)
        return dequantise_mxfp4(w13, w13_scale), dequantise_mxfp4(w2, w2_scale)


def whole(seed: int, ranks: int = 1) -> LatentMoEWeights:
    """The plain weights of a layer before `ranks` share them; the experts are the first rank's."""
    rng = torch.Generator().manual_seed(seed)
    hidden, latent, experts, shared = K3_TP8.hidden, K3_TP8.latent, K3_TP8.experts, K3_TP8.shared_inter * ranks

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=rng) * columns**-0.5).to(torch.bfloat16)

    return LatentMoEWeights(
        gate=matrix(experts, hidden),
        bias=torch.randn(experts, generator=rng) * 0.1,
        latent_down=matrix(latent, hidden),
        expert_weights=Experts(seed),
        shared_gate_up=matrix(2 * shared, hidden),
        shared_down=matrix(hidden, shared),
        norm=(1 + torch.randn(latent, generator=rng) * 0.1).to(torch.bfloat16),
        latent_up=matrix(hidden, latent),
    )


def share(weights: LatentMoEWeights, seed: int, rank: int) -> LatentMoEWeights:
    """What `rank` computes its partial sums with: experts of its own, its columns of the shared expert."""
    own = slice(rank * K3_TP8.shared_inter, (rank + 1) * K3_TP8.shared_inter)
    gate, up = weights.shared_gate_up.chunk(2)
    return replace(
        weights,
        expert_weights=Experts(seed + rank),
        shared_gate_up=torch.cat([gate[own], up[own]]),
        shared_down=weights.shared_down[:, own],
    )


@torch.no_grad()
def fill(moe: Any, weights: LatentMoEWeights, experts: Experts) -> None:
    """Hand a KimiMoE its weights as a checkpoint has them: `weights` whole, by vLLM's loaders, and a rank's experts."""
    layer = moe.experts.routed_experts
    parameters = (layer.w13_weight, layer.w13_weight_scale, layer.w2_weight, layer.w2_weight_scale)
    for e in range(K3_TP8.experts):
        for parameter, value in zip(parameters, experts.packed(e), strict=True):
            parameter.data[e] = value

    def put(parameter: Any, value: torch.Tensor, *shard: int) -> None:
        parameter.weight_loader(parameter, value, *shard)

    put(moe.gate.weight, weights.gate)
    moe.gate.e_score_correction_bias.data.copy_(weights.bias)
    put(moe.routed_expert_down_proj.weight, weights.latent_down)
    put(moe.routed_expert_up_proj.weight, weights.latent_up)
    moe.routed_expert_norm.weight.data.copy_(weights.norm)
    for shard, half in enumerate(weights.shared_gate_up.chunk(2)):
        put(moe.shared_experts.gate_up_proj.weight, half, shard)
    put(moe.shared_experts.down_proj.weight, weights.shared_down)


def post_process(moe: Any) -> None:
    """What vLLM's loader does last; needs room for a second copy of the larger half of the experts."""
    layer = moe.experts.routed_experts
    layer.quant_method.process_weights_after_loading(layer)


def forward(moe: Any, vllm_config: Any, x: torch.Tensor) -> torch.Tensor:
    """x bf16 [M, H] through a layer in a forward context, as the engine calls it."""
    from vllm.forward_context import set_forward_context

    with torch.no_grad(), set_forward_context(None, vllm_config):
        return moe(x)


class Layer:
    """A built and loaded layer with its plain weights."""

    def __init__(self, vllm_config: Any, seed: int) -> None:
        self.config = vllm_config
        self.moe = build(vllm_config)
        self.runner = self.moe.experts
        self.weights = whole(seed)
        fill(self.moe, self.weights, Experts(seed))
        post_process(self.moe)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return forward(self.moe, self.config, x)
