"""K3SortPlan: the shared expert of one call, from gate_up on, as work that the sort may take along.

    with K3SortPlan(gate_up, down_weight, beta, linear_beta) as plan:     offers SiTU and the down GEMM
        routed = method(x, logits, plan)                                 the front's launches take them, or do not
    shared = plan.out

Untaken they run as launches of their own when the block ends. They are taken once at most; an exception within the
block leaves nothing to run. The plan lives in the call: what one layer offers no other can take.
"""

from types import TracebackType
from typing import NamedTuple

import torch

from .kernels.moe_sort import NO_EXTENSION, SortExtension
from .kernels.shared_expert import check_down, down_extension, launch_down
from .kernels.situ import check_situ, launch_situ, situ_extension

OFFERED, TAKEN, DONE, FAILED = "offered", "taken", "done", "failed"


class Riders(NamedTuple):
    """What rides where: the GEMM needs all of SiTU, so a launch boundary is between them."""

    beside_route: SortExtension
    beside_sort: SortExtension


NO_RIDERS = Riders(NO_EXTENSION, NO_EXTENSION)


class K3SortPlan:
    """gate_up bf16 [M, 2S], the gate's columns first, and the down weight bf16 [H, S] to out bf16 [M, H]; M <= 128.

    Raises TypeError or ValueError on what the kernels do not serve.
    """

    def __init__(self, gate_up: torch.Tensor, weight: torch.Tensor, beta: float, linear_beta: float | None) -> None:
        check_situ(gate_up, beta, linear_beta)
        m, columns = gate_up.shape
        self._hidden = gate_up.new_empty((m, columns // 2))
        check_down(self._hidden, weight)
        self._situ, self._weight = (gate_up, self._hidden, beta, linear_beta), weight
        self._out = gate_up.new_empty((m, len(weight)))
        self._state = OFFERED

    def take(self, num_tokens: int) -> Riders:
        """Both kernels, for whoever launches them now, beside work for as many tokens."""
        if self._state != OFFERED:
            raise RuntimeError(f"the shared expert of this call is {self._state}; it can be taken once, when offered")
        if num_tokens != len(self._out):
            raise ValueError(
                f"the shared expert has {len(self._out)} tokens, who takes it {num_tokens}; accepted: as many"
            )
        self._state = TAKEN
        return Riders(situ_extension(*self._situ), down_extension(self._hidden, self._weight, self._out))

    @property
    def out(self) -> torch.Tensor:
        """bf16 [M, H], this rank's partial sum; complete after the block only."""
        if self._state != DONE:
            raise RuntimeError(f"the shared expert of this call is {self._state}; its output is there when it is done")
        return self._out

    def __enter__(self) -> "K3SortPlan":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        untaken, self._state = self._state == OFFERED, FAILED
        if kind is not None:
            return
        if untaken and len(self._out):
            launch_situ(*self._situ)
            launch_down(self._hidden, self._weight, self._out)
        self._state = DONE
