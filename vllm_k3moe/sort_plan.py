"""K3SortPlan: the shared expert of one call, from gate_up on, as work that the sort may take along.

    with K3SortPlan(gate_up, down_weight, beta, linear_beta) as plan:     offers SiTU and the down projection
        routed = method(x, logits, plan)                                 the front's launches take them, or do not
    shared = plan.out

Untaken they run as launches of their own when the block ends. They are taken once at most; an exception within the
block leaves nothing to run. The plan lives in the call: what one layer offers no other can take.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

import torch

from .kernels.moe_sort import NO_EXTENSION, SortExtension
from .kernels.shared_expert import check_down, down_extension, launch_shared
from .kernels.shared_token import token_extension
from .kernels.situ import check_situ, situ_extension

NEW, OFFERED, TAKEN, DONE, FAILED = "new", "offered", "taken", "done", "failed"


class Riders(NamedTuple):
    """What rides where: the GEMM needs all of SiTU, so a launch boundary is between them. One token needs none."""

    beside_route: SortExtension
    beside_sort: SortExtension  # beside the last launch of the front, of one token the only one


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
        self._gate_up, self._weight, self._betas = gate_up, weight, (beta, linear_beta)
        self._out = gate_up.new_empty((m, len(weight)))
        self._state = NEW

    def _become(self, state: str, only_from: str) -> None:
        if self._state != only_from:
            raise RuntimeError(f"the shared expert of this call is {self._state}; accepted: {only_from}")
        self._state = state

    @contextmanager
    def take(self, num_tokens: int) -> Iterator[Riders]:
        """All of it, for whoever launches it within this block, beside work for as many tokens."""
        if num_tokens != len(self._out):
            own = len(self._out)
            raise ValueError(f"the shared expert has {own} tokens, who takes it {num_tokens}; accepted: as many")
        self._become(FAILED, only_from=OFFERED)  # until they are launched
        if num_tokens == 1:
            yield Riders(NO_EXTENSION, token_extension(self._gate_up, self._weight, self._out, *self._betas))
        else:
            yield Riders(
                situ_extension(self._gate_up, self._hidden, *self._betas),
                down_extension(self._hidden, self._weight, self._out),
            )
        self._state = TAKEN

    @property
    def out(self) -> torch.Tensor:
        """bf16 [M, H], this rank's partial sum; complete after the block only."""
        if self._state != DONE:
            raise RuntimeError(f"the shared expert of this call is {self._state}; its output is there when it is done")
        return self._out

    def __enter__(self) -> "K3SortPlan":
        self._become(OFFERED, only_from=NEW)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state, self._state = self._state, FAILED
        if kind is not None or state == FAILED:
            return
        if state == OFFERED and len(self._out):
            launch_shared(self._gate_up, self._hidden, self._weight, self._out, *self._betas)
        self._state = DONE


def offer(
    gate_up: torch.Tensor, weight: torch.Tensor, num_tokens: int, beta: float, linear_beta: float | None
) -> tuple[K3SortPlan | None, list[str]]:
    """A plan for the shared expert of a batch whose routed experts have `num_tokens`, or why there is none."""
    if len(gate_up) != num_tokens:
        return None, [f"shared: {len(gate_up)} tokens beside {num_tokens} routed ones"]
    try:
        return K3SortPlan(gate_up, weight, beta, linear_beta), []
    except (TypeError, ValueError) as error:
        return None, [f"shared: {error}"]
