"""A Mixtral of two layers that fits in 1 MB, with weights of a seed and a tokenizer of bytes. Needs numpy only."""

import json
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, INTER, LAYERS, HEADS, HEAD, EXPERTS, VOCAB = 64, 128, 2, 2, 32, 4, 256 + 2
CONFIG: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "dtype": "float32",
    "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": INTER, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD, "num_local_experts": EXPERTS,
    "num_experts_per_tok": 2, "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 257,
}  # fmt: skip


def shapes() -> dict[str, tuple[int, ...]]:
    """The tensors of the checkpoint, by the names that Mixtral's have."""
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN)}
    out["model.norm.weight"] = (HIDDEN,)
    for layer in (f"model.layers.{i}" for i in range(LAYERS)):
        out |= {f"{layer}.{norm}_layernorm.weight": (HIDDEN,) for norm in ("input", "post_attention")}
        out |= {f"{layer}.self_attn.{p}_proj.weight": (HEADS * HEAD, HIDDEN) for p in "qkv"}
        out[f"{layer}.self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD)
        out[f"{layer}.block_sparse_moe.gate.weight"] = (EXPERTS, HIDDEN)
        for expert in (f"{layer}.block_sparse_moe.experts.{e}" for e in range(EXPERTS)):
            out |= {f"{expert}.w1.weight": (INTER, HIDDEN), f"{expert}.w3.weight": (INTER, HIDDEN)}
            out[f"{expert}.w2.weight"] = (HIDDEN, INTER)
    return out


def weights(seed: int) -> dict[str, np.ndarray]:
    """Large enough that every layer moves the logits: with vLLM's dummy weights, below 1e-3, no expert counts."""
    rng = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) == 1:
            return np.ones(shape, np.float32)
        return (rng.standard_normal(shape) * 2 / np.sqrt(shape[1])).astype(np.float32)

    return {name: draw(shape) for name, shape in shapes().items()}


def safetensors(tensors: dict[str, np.ndarray]) -> bytes:
    """The file format: the length of a JSON header, the header, the bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": (at, at + tensor.nbytes)}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(t.tobytes() for t in tensors.values())


def byte_letters() -> list[str]:
    """The letter that stands for each byte in a byte-level tokenizer (GPT-2's): itself where it can be printed."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def tokenizer() -> dict[str, Any]:
    """tokenizer.json: a token for each byte and no merges."""
    level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": 256 + i, "content": content, **special} for i, content in enumerate(("<s>", "</s>"))],
        "pre_tokenizer": {"type": "ByteLevel", **level},
        "decoder": {"type": "ByteLevel", **level},
        "model": {"type": "BPE", "vocab": {letter: b for b, letter in enumerate(byte_letters())}, "merges": []},
    }


def write(folder: Path, seed: int = 0) -> None:
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    for name, content in (("config", CONFIG), ("tokenizer", tokenizer()), ("tokenizer_config", tokens)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "model.safetensors").write_bytes(safetensors(weights(seed)))
