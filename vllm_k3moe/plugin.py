"""What `register()` does once vLLM is known to be there: take the place of one runner, or say why not."""

import logging

from . import envs

NAME = "ROCmLatentMoERunner"  # what vLLM's Kimi-K3 model on ROCm asks for; nothing else does
logger = logging.getLogger("vllm.k3moe")


def register(settings: envs.Settings) -> list[str]:
    """Register K3LatentMoERunner for NAME; reasons where it stands down. Idempotent; initialises no GPU."""
    from . import report  # vLLM's platform and logger, no model

    reasons = report.platform_reasons(settings)
    if not reasons:
        from vllm.model_executor.custom_op import PluggableLayer, op_registry_oot

        holder = op_registry_oot.get(NAME)
        if holder is None:
            from .runner import K3LatentMoERunner

            PluggableLayer.register_oot(K3LatentMoERunner, name=NAME)
        elif holder.__module__ != f"{__package__}.runner":
            reasons = [f"{NAME} is already replaced by {holder.__module__}.{holder.__qualname__}"]
    level = logging.INFO if reasons and settings.strict else logging.DEBUG
    logger.log(level, report.inactive(reasons) if reasons else f"k3moe registered for {NAME}")
    return reasons
