"""Which of the parts that K3MOE_FUSE names a layer can fuse: a part that it cannot is vLLM's, the others are not."""

from typing import Any

from . import gates
from .kernels.checks import refusal
from .kernels.shared_expert import check_weight
from .shapes import K3_TP8
from .tail import of_layer


def fusible(runner: Any, wanted: tuple[str, ...]) -> tuple[frozenset[str], list[str]]:
    """Those of `wanted` that nothing on this layer speaks against, and for each of the others what does.

    Of a part that the layer does not have nothing is said.
    """
    absent = {
        "shared": runner._shared_experts is None,
        "tail": not runner._tail_shardable,
    }
    reasons = {part: _REASONS[part](runner) if part in _REASONS else [] for part in wanted if not absent.get(part)}
    parts = frozenset(part for part, found in reasons.items() if not found)
    return parts, [f"{part} is vLLM's: {'; '.join(found)}" for part, found in reasons.items() if found]


def _shared(runner: Any) -> list[str]:
    reasons = gates.failed(gates.SHARED, runner)
    if reasons:
        return reasons
    weight, served = gates.ask(runner, "_shared_experts._layer.down_proj.weight"), (K3_TP8.hidden, K3_TP8.shared_inter)
    reasons = refusal("shared down", check_weight, weight)
    if not reasons and tuple(weight.shape) != served:  # others would compile in serving
        return [f"shared down: weight has shape {list(weight.shape)}; served: {list(served)}"]
    return reasons


def _tail(runner: Any) -> list[str]:
    """The first rank's rows tell of all: their number and alignment are the same."""
    reasons = gates.failed(gates.TAIL, runner)
    return reasons or of_layer(runner.routed_output_transform, 0, runner._up_proj_shard_size).faults()


_REASONS = {"shared": _shared, "tail": _tail}
