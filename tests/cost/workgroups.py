"""What each workgroup of an emulated launch executes, counted where the emulator enters its core.

The emulator itself adds up whole launches. But it enters the C core for one wave at a time and, with its default of one
resident workgroup, closes a workgroup's view of memory before it starts the next: two places to count at.
"""

import importlib
from dataclasses import dataclass
from typing import Any

ATOMIC = ("buffer_atomic", "global_atomic", "flat_atomic")


@dataclass(frozen=True)
class Launch:
    """Counts of one launch. They are wave instructions, not time."""

    kernel: str
    workgroups: int
    waves: int  # per workgroup
    instructions: int
    instructions_largest_workgroup: int
    cache_ops: int  # buffer_wbl2 sc1 and buffer_inv sc1
    atomics: int  # on memory; those on LDS cost no more than any other access to it


class CountingCore:
    """The emulator's core, which also counts wave instructions per workgroup."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.per_workgroup: list[int] = []
        self.running = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def core_run(self, wave: Any, *rest: Any) -> int:
        before = wave._obj.icount  # `wave` is a ctypes.byref, and so the structure is its _obj
        code = self.core.core_run(wave, *rest)
        self.running += wave._obj.icount - before
        return code

    def core_view_ended(self, view: Any) -> None:
        self.core.core_view_ended(view)
        self.per_workgroup.append(self.running)
        self.running = 0


class Counter:
    """Counts every launch of the emulator that comes after it."""

    def __init__(self) -> None:
        self.emulator: Any = importlib.import_module("cdna4_ext")  # on sys.path once the backend has started
        self.core = CountingCore(self.emulator.core())
        vars(self.emulator)["_core"] = self.core  # what its core() returns from here on

    def launch(self, name: str, kernel: Any, stats: Any) -> Launch:
        """The counts of the launch that just ended, from what `on_launch` of run_gfx950.install is given."""
        workgroups, self.core.per_workgroup = self.core.per_workgroup, []
        if sum(workgroups) != stats.instructions:
            raise RuntimeError(f"{name}: {sum(workgroups)} instructions counted; the emulator: {stats.instructions}")
        instructions = [instruction for instruction, _, _ in kernel._program.insns.values()]
        cache_ops = sum(i.count for i in instructions if i.kind == self.emulator.K["CACHE"])
        for instruction in instructions:  # the program outlives the launch, its counts must not
            instruction.count = 0
        return Launch(
            kernel=name.lstrip("_"),
            workgroups=len(workgroups),
            waves=kernel.num_warps,
            instructions=stats.instructions,
            instructions_largest_workgroup=max(workgroups),
            cache_ops=cache_ops,
            atomics=sum(n for op, n in stats.histogram.items() if op.startswith(ATOMIC)),
        )
