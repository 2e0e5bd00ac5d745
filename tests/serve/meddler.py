"""A vLLM plugin that changes something: every MoE layer's output by one part in a thousand."""


def register() -> None:
    from vllm.model_executor.models.mixtral import MixtralMoE

    forward = MixtralMoE.forward
    MixtralMoE.forward = lambda self, x: forward(self, x) * 1.001
