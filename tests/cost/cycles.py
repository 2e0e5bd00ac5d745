"""Modelled cycles of a workgroup: an in-order clock per wave over the instructions that the emulator saw it execute.

A model, not a measurement, and never to be turned into microseconds. It is there to compare two versions of a kernel.

Per wave: every instruction takes 4 cycles of its wave and waits for the registers it reads; a vector instruction also
occupies its SIMD. Memory is charged where `s_waitcnt` waits for it, in order of issue. Between two barriers a workgroup
takes the larger of its busiest SIMD's occupancy (waves w, w+4, ... share SIMD w % 4) and its slowest wave.

Not modelled: what waves of other workgroups take from the SIMD, bandwidth, bank conflicts, cache hits (every load comes
from HBM), instruction fetch, taken branches, dispatch, the cost of a barrier itself, the depth of the counters. A store
is acknowledged, and a scalar load returns, as late as a load from HBM: no figure of their own is published. Neither is
one for atomics, cache operations and other MFMA shapes: those raise.
"""

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .operands import name, reads, writes

SIMDS = 4
NO_WAIT = 1 << 30

# Said to be measured on a gfx950 by a public latency study, which was not found. No L2 figure for gfx950 was found.
ISSUE = 4  # of any instruction for its wave, and of a vector instruction for its SIMD
VALU_RESULT = 8
LDS_RESULT = 69
GLOBAL_RESULT = 790  # HBM
MFMA_RESULT = 17  # 16x16x32
# From MI355X's published FP16 peak: 2 * 16 * 16 * 32 flop / (2.5e15 flop/s / 2.4 GHz / 256 CU / 4 SIMD), rounded.
MFMA_ISSUE = 16
# Quarter rate, a given figure. AMD's scheduling table in LLVM (SISchedule.td, SIDPGFX940FullSpeedModel, at commit
# 03a5b92df2) has transcendentals at quarter rate too, WriteTrans32, but 64-bit operations at full rate, Write64Bit and
# WriteDouble: for those this is an upper bound.
SLOW_ISSUE = 16
SLOW_RESULT = SLOW_ISSUE + VALU_RESULT - ISSUE
SLOW = re.compile(r"v_(rcp|rsq|sqrt|exp|log|sin|cos)_|v_\w+_[iufb]64(_|$)")


@dataclass(frozen=True)
class Step:
    """What an instruction means to the clock."""

    reads: frozenset[int] = frozenset()
    writes: frozenset[int] = frozenset()
    cycles: int = ISSUE  # until its wave's next instruction
    simd: int = 0  # cycles of its SIMD
    result: int = 0  # cycles until `writes` are ready
    vector_memory: int = 0  # cycles until the memory operation is over, counted by vmcnt
    other_memory: int = 0  # the same, by lgkmcnt
    vmcnt: int = NO_WAIT  # operations that may remain outstanding
    lgkmcnt: int = NO_WAIT
    barrier: bool = False


def step(instruction: Any) -> Step:
    """Classify a decoded instruction; ValueError where no figure is known."""
    op, encoding = name(instruction), type(instruction).__name__.split("_")[0]
    r, w = reads(instruction), writes(instruction)
    if op.startswith("v_mfma"):
        if "_16x16x32_" not in op:
            raise ValueError(f"no figure for {op}")
        return Step(r, w, MFMA_ISSUE, MFMA_ISSUE, MFMA_RESULT)
    if op.startswith("v_"):
        slow = SLOW.match(op)
        return Step(r, w, *((SLOW_ISSUE, SLOW_ISSUE, SLOW_RESULT) if slow else (ISSUE, ISSUE, VALU_RESULT)))
    if encoding in ("GLOBAL", "MUBUF"):
        if not re.match(r"(global|buffer)_(load|store)_", op):
            raise ValueError(f"no figure for {op}")
        return Step(r, vector_memory=GLOBAL_RESULT)
    if encoding == "DS":
        return Step(r, other_memory=LDS_RESULT)
    if op.startswith("s_load"):
        return Step(r, other_memory=GLOBAL_RESULT)
    if op == "s_waitcnt":  # gfx9: vmcnt in bits 15:14 and 3:0, lgkmcnt in 11:8
        vmcnt, lgkmcnt = instruction.simm16 >> 14 << 4 | instruction.simm16 & 15, instruction.simm16 >> 8 & 15
        return Step(vmcnt=NO_WAIT if vmcnt == 63 else vmcnt, lgkmcnt=NO_WAIT if lgkmcnt == 15 else lgkmcnt)
    if op == "s_nop":
        return Step(cycles=ISSUE * (1 + instruction.simm16))
    if encoding.startswith("SOP"):
        return Step(r, barrier=op == "s_barrier")
    raise ValueError(f"no figure for {op}")


class _Wave:
    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps = iter(steps)
        self.clock = 0
        self.simd = 0  # cycles taken of its SIMD since the last barrier
        self.ready: dict[int, int] = {}
        self.vector: list[int] = []  # when each outstanding operation is over, in order of issue
        self.other: list[int] = []

    def run(self) -> bool:
        """Up to a barrier (True) or its end (False)."""
        ready = self.ready
        for s in self.steps:
            clock = max([self.clock, *(ready[r] for r in s.reads if r in ready)])
            if s.vector_memory:
                self.vector.append(clock + s.vector_memory)
            if s.other_memory:  # a scalar load may be under way for longer than the LDS accesses after it
                self.other.append(max([clock + s.other_memory, *self.other[-1:]]))
            clock = _wait(self.other, s.lgkmcnt, _wait(self.vector, s.vmcnt, clock))
            for register in s.writes:
                ready[register] = clock + s.result
            self.clock = clock + s.cycles
            self.simd += s.simd
            if s.barrier:
                return True
        return False


def _wait(queue: list[int], allowed: int, clock: int) -> int:
    """The clock once at most `allowed` of the queue's operations are outstanding; forgets the others."""
    over = len(queue) - allowed
    if over <= 0:
        return clock
    clock = max(clock, queue[over - 1])
    del queue[:over]
    return clock


def workgroup_cycles(streams: Sequence[Iterable[Step]]) -> int:
    """Of one workgroup, from the steps of each of its waves."""
    waves = [_Wave(steps) for steps in streams]
    now, running = 0, waves
    while running:
        stopped = [wave for wave in running if wave.run()]
        busiest = max(sum(wave.simd for wave in waves[simd::SIMDS]) for simd in range(SIMDS))
        now = max(now + busiest, *(wave.clock for wave in running))
        for wave in waves:
            wave.clock, wave.simd = now, 0
        running = stopped
    return now


class Trace:
    """The emulator's `trace` callback: keeps what every wave of a launch executed."""

    def __init__(self) -> None:
        self.steps: dict[int, Step] = {}
        self.streams: defaultdict[tuple[tuple, int], array] = defaultdict(lambda: array("q"))

    def __call__(self, workgroup: tuple, wave: int, pc: int, instruction: Any, registers: Any) -> None:
        if pc not in self.steps:
            self.steps[pc] = step(instruction)
        self.streams[workgroup, wave].append(pc)

    def take(self) -> list[int]:
        """Modelled cycles of every workgroup of the launch since the last call."""
        workgroups: dict[tuple, list[array]] = {}
        for workgroup, wave in sorted(self.streams):
            workgroups.setdefault(workgroup, []).append(self.streams[workgroup, wave])
        known: dict[tuple[bytes, ...], int] = {}
        out = []
        for streams in workgroups.values():
            key = tuple(stream.tobytes() for stream in streams)
            if key not in known:  # most workgroups of a launch execute the same
                known[key] = workgroup_cycles([map(self.steps.__getitem__, stream) for stream in streams])
            out.append(known[key])
        self.steps.clear()
        self.streams.clear()
        return out
