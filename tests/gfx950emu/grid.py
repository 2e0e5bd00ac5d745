"""Runs a grid: which workgroup and wave is next, for how long, and what ends it."""

import ctypes
import random
import time
from collections.abc import Sequence
from typing import NoReturn

from .code_object import KernelCode
from .errors import EmulatorError
from .faults import describe, describe_conflict
from .options import LaunchOptions
from .program import Program
from .stats import Stats
from .structures import Kind, Races, Range, Stop, View
from .wave import WaveState
from .workgroup import Index, Start, Workgroup

UNLIMITED = 1 << 62
TURN = 2000  # instructions of a wave before another's turn, where workgroups run concurrently
SHUFFLED_TURNS = (1, 2, 3, 5, 8, 20, 100, 500)


class Grid:
    """One launch. `ranges`: the memory that its code may touch; None: any."""

    def __init__(
        self,
        program: Program,
        kernel: KernelCode,
        start: Start,
        ranges: Sequence[tuple[int, int]] | None,
        options: LaunchOptions,
    ) -> None:
        self.program, self.core, self.kernel, self.start, self.options = program, program.core, kernel, start, options
        self.ranges = list(ranges or [])
        allowed = [] if ranges is None or not options.check else [*ranges, (program.base, program.base + program.size)]
        self._allowed = (Range * len(allowed))(*(Range(low, high) for low, high in allowed))
        self.random = None if options.seed is None else random.Random(options.seed)
        self._idle: list[WaveState] = []  # whose workgroups have ended
        self._views: list[View] = []
        self._conflicts: list[str] = []  # found in workgroups that have ended
        self.stats = Stats()

    def run(self) -> Stats:
        """All of it; EmulatorError where the code does something wrong."""
        began = time.perf_counter()
        self.program.clear_counts()
        try:
            self._run_workgroups()
            self._shuffle(self._views)
            for view in self._views:  # the end of a launch writes all caches back
                self.core.view(ctypes.byref(view), 1)
        finally:
            for view in self._views:
                self.core.view_free(ctypes.byref(view))
        if self._conflicts:
            raise EmulatorError(f"{self.kernel.name}: race inside a workgroup: {'; '.join(self._conflicts)}")
        self.stats.waves = len(self.stats.workgroups) * self.start.waves
        self.stats.histogram = self.program.histogram()
        self.stats.cache_ops = self.program.executed(Kind.CACHE)
        self.stats.seconds = time.perf_counter() - began
        return self.stats

    def _run_workgroups(self) -> None:
        width, height, depth = self.start.grid
        waiting = [(x, y, z) for z in range(depth) for y in range(height) for x in range(width)]
        self._shuffle(waiting)
        waiting.reverse()
        live: list[Workgroup] = []
        while waiting or live:
            while waiting and len(live) < self.options.resident:
                live.append(self._begin(waiting.pop()))
            for workgroup in list(live):
                order = list(range(self.start.waves))
                self._shuffle(order)
                for wave in order:
                    if workgroup.stopped[wave] is None:
                        self._run_wave(workgroup, wave)
                if not workgroup.running() and not workgroup.pass_barrier():
                    live.remove(workgroup)
                    self._end(workgroup)

    def _shuffle(self, items: list) -> None:
        if self.random:
            self.random.shuffle(items)

    def _begin(self, index: Index) -> Workgroup:
        waves = [
            self._idle.pop() if self._idle else WaveState(self.start.scratch, self.core)
            for _ in range(self.start.waves)
        ]
        workgroup = Workgroup(index, self.start, waves, self._allowed, self.options)
        if workgroup.view is not None:
            self._views.append(workgroup.view)
        return workgroup

    def _end(self, workgroup: Workgroup) -> None:
        self.stats.workgroups[workgroup.index] = workgroup.instructions
        self._idle.extend(workgroup.waves)
        if workgroup.view is not None:
            self.core.view_ended(ctypes.byref(workgroup.view))
        if workgroup.races is not None:
            self._collect(workgroup.index, workgroup.races)

    def _collect(self, index: Index, races: Races) -> None:
        """What a workgroup's waves did to each other; of one workgroup, the rest will be the same again."""
        entry = self.kernel.entry - self.program.base
        if not self._conflicts:
            kept = races.conflict[: min(races.found, len(races.conflict))]
            found = [describe_conflict(c, self._decoded_at, entry) for c in kept]
            self._conflicts = [f"workgroup {index}, {text}" for text in found]
        self.core.races_free(ctypes.byref(races))

    def _decoded_at(self, pc: int) -> object:
        return self.program.at(self.program.base + pc).instruction.decoded

    def _turn(self) -> int:
        """How many instructions a wave may execute at a time."""
        if self.options.trace:
            return 1
        if self.options.quantum is not None:
            return self.options.quantum
        if self.options.resident == 1:
            return UNLIMITED
        return self.random.choice(SHUFFLED_TURNS) if self.random else TURN

    def _run_wave(self, workgroup: Workgroup, number: int) -> None:
        """Until its turn is over or it stops, decoding what it meets for the first time."""
        program, state, left = self.program, workgroup.waves[number], self._turn()
        stop: int = Stop.DECODE
        while stop == Stop.DECODE:
            if self.options.trace:
                pc = state.pc
                instruction = program.at(pc).instruction.decoded
                self.options.trace(workgroup.index, number, pc - self.kernel.entry, instruction, state)
            before = state.wave.icount
            budget = min(left, self.options.max_instr + 1 - self.stats.instructions)  # a wave may loop for ever
            stop = self.core.run(ctypes.byref(state.wave), program.table, program.base, program.size, budget)
            executed = state.wave.icount - before
            left -= executed
            workgroup.instructions += executed
            self.stats.instructions += executed
            if stop == Stop.DECODE:
                program.add(state.pc)
        if stop in (Stop.END, Stop.BARRIER):
            workgroup.stopped[number] = Stop(stop)
        elif stop == Stop.FAULT:
            self._fail(workgroup, number, describe(state.wave, self.ranges))
        elif stop == Stop.TRAP:
            self._fail(workgroup, number, "trap")
        elif stop == Stop.BADOP:
            self._fail(workgroup, number, "cannot execute")
        if self.stats.instructions > self.options.max_instr:
            self._fail(workgroup, number, f"more than {self.options.max_instr} instructions")

    def _fail(self, workgroup: Workgroup, number: int, what: str) -> NoReturn:
        state = workgroup.waves[number]
        decoded = self.program.instructions.get(state.pc)
        instruction = decoded and decoded.instruction.decoded
        raise EmulatorError(
            f"{self.kernel.name}: {what}; workgroup {workgroup.index}, wave {number}, "
            f"pc +{state.pc - self.kernel.entry:#x}: {instruction!r}, exec {state.exec:016x}"
        )
