"""What vLLM and the machine say to the gates, and what the log says about them. Imported beside vLLM only.

The first question, the platform's, is asked everywhere vLLM runs, also where there is no Triton. So what imports Triton
is imported where a layer is asked, not here.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from vllm import envs as vllm_envs
from vllm.logger import init_logger

from . import gates
from .envs import PARTS, Settings, fuses_front
from .versions import versions

if TYPE_CHECKING:
    from .method import K3FusedMoEMethod

VLLMS = "vLLM's path"
logger = init_logger("vllm.k3moe")  # below vLLM's name, whose handlers print it


def platform_reasons(settings: Settings) -> list[str]:
    """The gates of gates.platform_reasons, asked of this process; initialises no GPU."""
    from vllm.platforms import current_platform

    is_rocm = current_platform.is_rocm()
    return gates.platform_reasons(settings, is_rocm, architecture() if is_rocm else "", versions()["vllm"])


def architecture() -> str:
    """gfx950, or what else the GPU is, as vLLM's ROCm platform found it through amdsmi."""
    from vllm.platforms import rocm

    return "gfx950" if rocm.on_gfx950() else str(getattr(rocm, "_GCN_ARCH", "not gfx950"))


def situ_mode() -> str:
    """a16w4, a8w4 or a4w4, as vLLM decided it; "unknown" where this vLLM cannot say."""
    from vllm._aiter_ops import rocm_aiter_ops

    ask = getattr(rocm_aiter_ops, "get_fused_moe_situv2_activation", None)
    if ask is not None:
        return str(ask())
    a8w4 = getattr(rocm_aiter_ops, "is_fused_moe_situv2_a8w4_enabled", None)  # 0.29 and 0.30, which have no a4w4
    if a8w4 is None:
        return "unknown"
    return "a8w4" if a8w4() else "a16w4"


def situ_variable() -> str | None:
    """The environment variable that this vLLM takes the mode from."""
    return next((name for name in gates.MODE_VARIABLES if name in vllm_envs.environment_variables), None)


def compute_units() -> int:
    from vllm.platforms import current_platform

    return int(current_platform.num_compute_units())


def static_reasons(runner: Any, vllm_config: Any) -> list[str]:
    """Every gate that a built layer can be asked, and what AITER lacks."""
    from .experts import aiter_contract

    mode = situ_mode()
    reasons = gates.static_reasons(runner, vllm_config, vllm_envs, mode, compute_units())
    return reasons + (aiter_contract.missing(gates.MODES[mode]) if mode in gates.MODES else [])


def weights_are_real(vllm_config: Any) -> bool:
    """False under --load-format dummy, whose random bytes no canary can be held to."""
    return gates.ask(vllm_config, "load_config.load_format") != "dummy"


def progress(text: str) -> None:
    logger.info_once("k3moe: %s", text, scope="global")


def inactive(reasons: list[str]) -> str:
    return f"k3moe inactive: {'; '.join(reasons)}"


def active(mode: str, method: "K3FusedMoEMethod", parts: Collection[str]) -> str:
    """The one line that says what runs; `parts` of K3MOE_FUSE are fused."""
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    fused = ", ".join(part for part in PARTS if part in parts) or "nothing"
    launches = "; ".join(ranges(method, parts))
    return f"k3moe active: {architecture()}, {mode}, fused: {fused}; {launches}; {method.experts.description}; {found}"


def ranges(method: "K3FusedMoEMethod", parts: Collection[str]) -> list[str]:
    """What runs by token count, as in `M 1: route_sort`."""
    from .kernels.checks import MAX_TOKENS

    out: list[tuple[int, str]] = []
    for m in range(1, MAX_TOKENS + 1):
        launches = _launches(method, parts, m)
        if not out or out[-1][1] != launches:
            out.append((m, launches))
    most = method.experts.max_tokens
    if most > MAX_TOKENS and fuses_front(parts):
        out.append((MAX_TOKENS + 1, "vLLM's routing, our tiles"))
        out.append((most + 1, VLLMS))
    elif out[-1][1] != VLLMS:
        out.append((MAX_TOKENS + 1, VLLMS))
    ends = [first - 1 for first, _ in out[1:]]
    spans = [
        f"{first}" if first == end else f"{first}-{end}" for (first, _), end in zip(out, [*ends, "up"], strict=True)
    ]
    return [f"M {span}: {text}" for span, (_, text) in zip(spans, out, strict=True)]


def _launches(method: "K3FusedMoEMethod", parts: Collection[str], m: int) -> str:
    from .kernels.situ import MAX_TOKENS as MAX_SHARED
    from .plan import shared_launches

    with_shared = "shared" in parts and m <= MAX_SHARED
    if method.refuses(m):
        return VLLMS
    if fuses_front(parts):
        return " + ".join(method.plans[method.experts.block(m)].launches(m, with_shared))
    return f"vLLM's experts, {' + '.join(shared_launches(m))}" if with_shared else VLLMS
