"""Which ExpertRunner a layer gets, or why none."""

from .. import tables
from ..kernels import mx
from ..shapes import MoEShape
from . import ExpertRunner, Weights
from .aiter import A16W4Experts
from .aiter_quantised import QuantisedExperts


def build_experts(shape: MoEShape, mode: str, weights: Weights) -> tuple[ExpertRunner | None, list[str]]:
    """The runner of a layer whose rows are quantised by `mode`, one of `mx.MODES`, and reasons where there is none."""
    reasons = [
        f"weights: {name} is not marked is_shuffled, so not known to be in AITER's layout"
        for name in ("w13", "w2")
        if not getattr(getattr(weights, name), "is_shuffled", False)
    ]
    if mode != mx.NONE:
        return (None, reasons) if reasons else (QuantisedExperts(shape, mode, weights), [])
    try:
        table = tables.load("gfx950", "a16w4", shape)
    except tables.TableError as error:
        return None, [*reasons, f"tile table: {error}"]
    return (None, reasons) if reasons else (A16W4Experts(shape, table, weights), [])
