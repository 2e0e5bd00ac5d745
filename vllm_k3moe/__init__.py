"""Fused, tuned MoE for Kimi-K3 in vLLM on MI355X (gfx950)."""

__version__ = "0.1.0"


def register() -> None:
    """Entry point of the group `vllm.general_plugins`.

    vLLM calls it in the API server, the engine core, every worker and on `vllm serve --help`; an exception out of it
    kills the server. So it may run more than once in a process, never raises, and imports nothing heavy (no torch,
    triton, vllm or aiter) before there is something to do. There is not, yet: vLLM behaves as if this package were
    not installed.
    """
