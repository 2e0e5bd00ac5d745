"""What we use of AITER: each name, and the parameters we pass it. Checked once per layer; what differs is a reason.

Read in ROCm/aiter at e4048607a5. Nothing else of AITER is touched, and nothing of it is replaced.
"""

import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..kernels import mx

_SORTED = ("sorted_token_ids", "sorted_expert_ids", "num_valid_ids", "out", "topk")
_TILES = ("tile_m", "tile_n", "tile_k", "a_dtype", "b_dtype", "out_dtype", "b_nt", "xcd_swizzle")
STAGE1 = (
    ("a", "w1", *_SORTED),
    (*_TILES, "k_wave", "waves_per_eu", "act", "situ_beta", "situ_linear_beta", "w1_scale"),
)
STAGE2 = (("inter_states", "w2", *_SORTED), (*_TILES, "mode", "w2_scale", "sorted_weights"))
MOE_SORTING = (("topk_ids", "topk_weights", "num_experts", "model_dim", "moebuf_dtype", "block_size"), ())
CONFIG = (
    (
        "token", "model_dim", "inter_dim", "expert", "topk", "dtype", "q_dtype_a", "q_dtype_w", "q_type",
        "use_g1u1", "activation", "doweight_stage1", "hidden_pad", "intermediate_pad", "is_shuffled", "gate_mode",
    ),
    ("is_ep", "has_stage2_bias", "opus_weights_shuffled"),
)  # fmt: skip

# module, name, (parameters passed by position in their order, parameters passed by name)
FUNCTIONS: dict[str, tuple[tuple[str, str, tuple[tuple[str, ...], tuple[str, ...]]], ...]] = {
    mx.NONE: (
        ("aiter.ops.flydsl", "flydsl_moe_stage1", STAGE1),
        ("aiter.ops.flydsl", "flydsl_moe_stage2", STAGE2),
        ("aiter.fused_moe", "moe_sorting", MOE_SORTING),
    ),
    mx.MXFP8: (
        ("aiter.fused_moe", "get_2stage_cfgs", CONFIG),
        ("aiter.fused_moe", "get_padded_M", (("M",), ())),
    ),
}
FUNCTIONS[mx.MXFP4] = FUNCTIONS[mx.MXFP8]
VALUES = {
    mx.NONE: (),
    mx.MXFP8: (
        ("aiter", "QuantType.per_1x32"),
        ("aiter", "ActivationType.Situv2"),
        ("aiter.ops.flydsl.moe_common", "GateMode.INTERLEAVE.value"),
        ("aiter.fused_moe", "_opus_a8w4_stage1_wrapper"),
    ),
}
VALUES[mx.MXFP4] = (*VALUES[mx.MXFP8][:2], ("aiter.ops.flydsl.moe_common", "GateMode.SEPARATED.value"))
VALUES[mx.MXFP4] += VALUES[mx.MXFP8][3:]


def signature_error(function: Any, by_position: tuple[str, ...], by_name: tuple[str, ...]) -> str | None:
    """Why a call by these parameters would not mean what it meant where we read it, or None."""
    parameters = list(inspect.signature(function).parameters.values())
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    taken = positional[: len(by_position)]
    errors = {
        f"takes ({', '.join(taken)}) where we pass ({', '.join(by_position)})": taken != list(by_position),
        f"lacks {', '.join(n for n in by_name if n not in named)}": not named.issuperset(by_name),
        f"requires {', '.join(n for n in required if n not in (*by_position, *by_name))}": not {
            *by_position,
            *by_name,
        }.issuperset(required),
    }
    return " and ".join(text for text, wrong in errors.items() if wrong) or None


def _find(module: str, path: str) -> Any:
    found: Any = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def missing(mode: str) -> list[str]:
    """Reasons why AITER as installed cannot be called as we call it in `mode`; each names what it is about."""
    if find_spec("aiter") is None:
        return ["AITER is not installed"]
    reasons = []
    wanted = [(module, name, parameters) for module, name, parameters in FUNCTIONS[mode]]
    wanted += [(module, name, ((), ())) for module, name in VALUES[mode]]
    for module, name, (by_position, by_name) in wanted:
        try:
            found = _find(module, name)
        except Exception as error:  # whatever a half-installed AITER raises, it is the reason
            reasons.append(f"AITER: {module}.{name}: {type(error).__name__}: {error}")
            continue
        if by_position and (error_text := signature_error(found, by_position, by_name)):
            reasons.append(f"AITER: {module}.{name} {error_text}")
    return reasons
