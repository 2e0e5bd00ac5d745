"""What `k3moe doctor` asks of vLLM, torch and AITER. Functions import what they need and raise what that raises."""

from typing import Any

from . import gates
from .envs import OFF, Settings


def platform() -> dict[str, Any]:
    """{name, architecture} of vLLM's platform; the architecture is null off ROCm."""
    from vllm.platforms import current_platform

    from . import report

    is_rocm = current_platform.is_rocm()
    return {"name": type(current_platform).__name__, "architecture": report.architecture() if is_rocm else None}


def compute_units() -> int | None:
    """As vLLM counts them, which initialises HIP; None off ROCm."""
    from vllm.platforms import current_platform

    return int(current_platform.num_compute_units()) if current_platform.is_rocm() else None


def decision(settings: Settings, loadable: bool) -> list[str]:
    """Reasons that hold before a layer is built. Where there are none and vLLM may load us, it is made to."""
    from . import plugin, report

    if settings.mode == OFF:
        return ["K3MOE=off"]
    reasons = report.platform_reasons(settings)
    if reasons or not loadable:
        return reasons
    from vllm.plugins import load_general_plugins

    load_general_plugins()  # with every other plugin, one of which may hold our runner's name
    return plugin.register(settings)  # once more: register() logs a fault, this raises it


def situ_mode() -> str:
    from . import report

    return report.situ_mode()


def situ_variable() -> str | None:
    from . import report

    return report.situ_variable()


def aiter_missing() -> dict[str, list[str]]:
    """By mode, what AITER lacks of what we call."""
    from .experts import aiter_contract

    return {mode: aiter_contract.missing(quantiser) for mode, quantiser in gates.MODES.items()}
