"""Fused, tuned MoE for Kimi-K3 in vLLM on MI355X (gfx950)."""

__version__ = "0.1.0"


def register() -> None:
    """Entry point of the group `vllm.general_plugins`.

    vLLM calls it in the API server, the engine core, every worker and on `vllm serve --help`; an exception out of it
    kills the server. So it may run more than once in a process and never raises: a fault inside becomes one line in the
    log, and vLLM runs as if this package were not installed.
    """
    import logging
    from importlib.util import find_spec

    try:
        from . import envs

        settings = envs.read()
        if settings.mode == envs.OFF or find_spec("vllm") is None:  # without vLLM there is nothing to register with
            return
        from . import plugin

        plugin.register(settings)
    except Exception as error:
        logger = logging.getLogger("vllm.k3moe")
        logger.warning("k3moe inactive: registering failed: %s: %s", type(error).__name__, error)
        logger.debug("k3moe: the fault", exc_info=True)
