"""How to run a grid."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Called before each instruction: workgroup, wave, pc relative to the kernel's entry, tinygrad's instruction, WaveState
Trace = Callable[[tuple[int, int, int], int, int, Any, Any], None]


@dataclass(frozen=True)
class LaunchOptions:
    """The defaults find the most in code that should be right; none of them changes the result of a right kernel.

    check: memory outside of the arguments' storage is an error. LDS outside of the allocation is one always.
    poison: registers, LDS and scratch start as garbage, as on the device, rather than as zeros.
    late: loads straight to LDS write it, and stores past the caches reach memory, only when `s_waitcnt` says that they
        must have; code that waits too little sees old data.
    seed: shuffles the order of workgroups and waves; None: in order.
    resident: workgroups that run concurrently, for kernels whose workgroups wait for or hand over to one another.
    quantum: instructions of one wave before it is the next one's turn. None: 2000 with several resident workgroups, or
        with a seed 1 to 500 at a time, so that orders differ finely from seed to seed; no limit with one.
    max_instr: wave instructions of a launch after which it is taken to hang.
    trace: see Trace. Ten times slower and more, and `quantum` is then 1.
    caches: a workgroup sees another's stores only as LLVM's memory model promises it (write-back and invalidate at
        agent scope); off: at once.
    races: two waves of a workgroup that access a byte between the same two barriers, one of them writing, are an error
        once the launch has ended; see core/races.c.
    """

    check: bool = True
    poison: bool = True
    late: bool = True
    seed: int | None = None
    resident: int = 1
    quantum: int | None = None
    max_instr: int = 2_000_000_000
    trace: Trace | None = None
    caches: bool = True
    races: bool = True
