"""Litmus cases on emulated gfx950, and what LLVM's memory model for gfx942 and gfx950 says of each.

`python tests/litmus.py` measures them and prints the table of docs/memory.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

import backends
import litmus_handover as handover
import litmus_place as place

if TYPE_CHECKING:  # see backends.py
    from gfx950emu import Emulator

SEEDS = 24
# What may be said of an outcome that a reader who thinks of one memory would rule out
FORBIDDEN = "forbidden"  # never occurs
SHOWN = "allowed, shown"  # occurs for some seed: the emulator shows the weakness
HIDDEN = "allowed, not shown"  # the model allows it, the emulator is too strong to show it: no proof of soundness


@dataclass(frozen=True)
class Case:
    program: str
    how: str
    verdict: str
    odd: Callable[[Callable[..., None]], bool]  # run for one seed, see litmus_handover.py
    caches_only: bool = False  # only caches bring it about: it is gone where all see one memory

    def __str__(self) -> str:
        return f"{self.program}: {self.how}".replace("`", "")


def occurrences(emulator: "Emulator", case: Case, seeds: int = SEEDS, **options: object) -> int:
    """For how many seeds the odd outcome came about."""

    def launch(seed: int, kernel, workgroups: int, *arguments, **constants) -> None:
        with emulator.options(seed=seed, resident=workgroups, max_instr=3_000_000, **options):
            kernel[(workgroups,)](*arguments, **constants)

    return sum(case.odd(partial(launch, seed)) for seed in range(seeds))


def _message(payload: str, how: str, write: str, read: str, verdict: str) -> Case:
    odd = partial(handover.message, how=how, write=write, read=read)
    cached = how in ("plain", "cg") and (write, read) == ("release", "relaxed")
    return Case("message passing", f"{payload}; {write}, {read}", verdict, odd, cached)


PAYLOADS = {
    "plain": "plain",
    "cg": "`.cg`",
    "through": "`.wt`, `.cv`",
    "atomic": "relaxed atomics",
}
CASES = [
    _message(text, how, write, read, verdict)
    for how, text in PAYLOADS.items()
    for write, read, verdict in [
        ("relaxed", "relaxed", SHOWN),
        ("release", "relaxed", SHOWN if how in ("plain", "cg") else HIDDEN),
        ("relaxed", "acquire", SHOWN),
        ("release", "acquire", FORBIDDEN),
        ("acq_rel", "acq_rel", FORBIDDEN),
    ]
]
CASES += [
    _message("`.wt`, `debug_barrier`, `.cv`", "through, barrier", "relaxed", "relaxed", SHOWN),
    _message("relaxed atomics, `debug_barrier`", "atomic, barrier", "relaxed", "relaxed", SHOWN),
    _message("`.wt`, `s_waitcnt`, `debug_barrier`, `.cv`", "through, wait, barrier", "relaxed", "relaxed", HIDDEN),
    Case("message passing", "plain; two launches", FORBIDDEN, handover.launches),
]
CASES += [
    Case("store buffering", how, verdict, partial(handover.buffering, how=payload, sem=sem))
    for how, payload, sem, verdict in [
        ("plain", "plain", "none", SHOWN),
        ("`.wt`, `.cv`", "through", "none", SHOWN),
        ("relaxed atomics", "atomic", "none", SHOWN),
        ("plain; relaxed add to one counter between", "plain", "relaxed", SHOWN),
        ("plain; acq_rel add to one counter between", "plain", "acq_rel", FORBIDDEN),
        ("relaxed atomics; acq_rel add to one counter between", "atomic", "acq_rel", FORBIDDEN),
    ]
]
CASES += [
    Case("coherence of one place", how, verdict, partial(place.coherence, how=first, then=then))
    for how, first, then, verdict in [
        ("relaxed atomics", "atomic", "atomic", FORBIDDEN),
        ("`.wt`, `.cv`", "through", "through", FORBIDDEN),
        ("relaxed atomics, read plainly in between", "atomic", "plain", HIDDEN),
        ("`.wt`, read by `.cv` and atomics in turn", "through", "atomic", FORBIDDEN),
    ]
]
CASES += [
    Case("coherence of one place", "own plain store, own atomic", FORBIDDEN, partial(place.own, how="atomic")),
    Case("coherence of one place", "own plain store, own `.cv`", FORBIDDEN, partial(place.own, how="through")),
]
CASES += [
    Case("counting", "relaxed atomics", FORBIDDEN, partial(place.count, how="atomic")),
    Case("counting", "plain load, add, store", SHOWN, partial(place.count, how="plain")),
    Case("counting", "`.cv`, add, `.wt`", SHOWN, partial(place.count, how="through")),
]
CASES += [
    Case("release sequence", how, verdict, partial(handover.sequence, write=write, middle=middle, whose=whose))
    for how, write, middle, whose, verdict in [
        ("release, relaxed add, acquire; the first's data", "release", "relaxed", "head", FORBIDDEN),
        ("release, relaxed add, acquire; the second's data", "release", "relaxed", "middle", SHOWN),
        ("release, release add, acquire; the second's data", "release", "release", "middle", FORBIDDEN),
        ("relaxed, release add, acquire; the first's data", "relaxed", "release", "head", SHOWN),
        ("release, `.wt` store, acquire; the first's data", "release", "store", "head", HIDDEN),
    ]
]
CASES += [
    Case(
        "counter, two rounds", how, verdict, partial(place.rounds, how=reset, write=write, read=read), verdict == SHOWN
    )
    for how, reset, write, read, verdict in [
        ("reset by a plain store; relaxed", "plain", "relaxed", "relaxed", SHOWN),
        ("reset by a plain store; release, acquire", "plain", "release", "acquire", FORBIDDEN),
        ("reset by an atomic; relaxed", "atomic", "relaxed", "relaxed", HIDDEN),
        ("never reset, taken modulo; relaxed", "modulo", "relaxed", "relaxed", FORBIDDEN),
    ]
]
CASES += [Case("counter, one round", "reset by a plain store for the next launch", FORBIDDEN, place.last)]
CASES += [
    Case("zeroing, then atomic adds", how, verdict, partial(handover.zeroing, how=payload, write=write, read=read))
    for how, payload, write, read, verdict in [
        ("plain zeros; relaxed, relaxed", "plain", "relaxed", "relaxed", SHOWN),
        ("plain zeros; relaxed, acquire", "plain", "relaxed", "acquire", SHOWN),
        ("plain zeros; release, relaxed", "plain", "release", "relaxed", HIDDEN),
        ("plain zeros; release, acquire", "plain", "release", "acquire", FORBIDDEN),
        ("zeros by relaxed atomics; relaxed, relaxed", "atomic", "relaxed", "relaxed", SHOWN),
    ]
]
CASES += [
    Case("same line, other bytes", how, FORBIDDEN, partial(place.neighbours, dtype=dtype, how=payload))
    for how, dtype, payload in [
        ("plain, 1 byte each", torch.int8, "plain"),
        ("plain, 2 bytes each", torch.int16, "plain"),
        ("plain, 4 bytes each", torch.int32, "plain"),
        ("plain beside `.wt`, 1 byte each", torch.int8, "through"),
        ("plain beside relaxed atomics", torch.int32, "atomic"),
    ]
]


def row(case: Case) -> str:
    """Its line of the table, less the count."""
    return f"| {case.program} | {case.how} | {case.verdict} |"


if __name__ == "__main__":
    gfx950 = backends.start("gfx950")
    for case in CASES:
        print(row(case), occurrences(gfx950, case), "|")
