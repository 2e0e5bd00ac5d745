"""Which of the parts that K3MOE_FUSE names a layer can fuse: a part that it cannot is vLLM's, the others are not."""

from typing import Any

from . import gates
from .kernels.shared_expert import check_weight
from .shapes import K3_TP8


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
    if not reasons:
        weight, served = runner._shared_experts._layer.down_proj.weight.data, (K3_TP8.hidden, K3_TP8.shared_inter)
        if tuple(weight.shape) != served:  # others would compile in serving
            reasons.append(f"shared down: weight has shape {list(weight.shape)}; served: {list(served)}")
        try:
            check_weight(weight)
        except (TypeError, ValueError) as error:
            reasons.append(f"shared down: {error}")
    return reasons


def _tail(runner: Any) -> list[str]:
    return gates.failed(gates.TAIL, runner)


_REASONS = {"shared": _shared, "tail": _tail}
