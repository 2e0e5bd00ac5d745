"""A workgroup: its waves as the hardware starts them, its LDS, its view of memory."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .descriptor import Descriptor
from .options import LaunchOptions
from .structures import Races, Range, Stop, View
from .wave import LANES, POISON, WaveState

Index = tuple[int, int, int]
XCCS = 8  # dies that workgroups go to in turn
LEAST_LDS = 16  # bytes


@dataclass(frozen=True)
class Start:
    """What all workgroups of a launch start with."""

    grid: Index
    waves: int  # of a workgroup
    entry: int  # address
    lds: int  # bytes
    user_sgprs: Sequence[int]
    descriptor: Descriptor

    @property
    def scratch(self) -> int:
        """Bytes a lane."""
        return (self.descriptor.scratch_size + 3) & ~3

    def number(self, index: Index) -> int:
        """Of a workgroup, in order of dispatch."""
        x, y, z = index
        return x + self.grid[0] * (y + self.grid[1] * z)


class Workgroup:
    """`stopped`: for each wave why it does not run, or None while it does."""

    def __init__(
        self, index: Index, start: Start, waves: list[WaveState], ranges: ctypes.Array[Range], options: LaunchOptions
    ) -> None:
        self.index, self.waves, self.instructions = index, waves, 0
        self.stopped: list[Stop | None] = [None] * len(waves)
        words = (max(start.lds, LEAST_LDS) + 3) // 4
        self.lds = np.full(words, POISON if options.poison else 0, np.uint32)
        self.view = View() if options.caches else None
        self.races = Races() if options.races else None
        for number, state in enumerate(waves):
            self._start(number, state, start, ranges, options)
        if self.view is not None:
            self._pointers = (ctypes.c_void_p * len(waves))(*(ctypes.addressof(state.wave) for state in waves))
            self.view.wave, self.view.nwaves = ctypes.addressof(self._pointers), len(waves)

    def _start(
        self, number: int, state: WaveState, start: Start, ranges: ctypes.Array[Range], options: LaunchOptions
    ) -> None:
        state.clear(options.poison)
        state.pc = start.entry
        state.sgpr[: len(start.user_sgprs)] = start.user_sgprs
        register = start.descriptor.user_sgpr_count
        for wanted, position in zip(start.descriptor.workgroup_ids, self.index, strict=True):
            if wanted:
                state.sgpr[register] = position
                register += 1
        state.vgpr[:LANES] = np.arange(number * LANES, (number + 1) * LANES) & 0x3FF  # v0: the thread's x
        state.point_to(self.lds, start.lds)
        wave = state.wave
        wave.mode, wave.icount = start.descriptor.mode, 0
        wave.hwid, wave.xcc = number & 15 | (number & 3) << 4, start.number(self.index) % XCCS
        wave.pend, wave.npend = (state.pending.ctypes.data if options.late else None), 0
        wave.view = None if self.view is None else ctypes.addressof(self.view)
        wave.races, wave.index = (None if self.races is None else ctypes.addressof(self.races)), number
        wave.ranges, wave.nranges = ctypes.cast(ranges, ctypes.POINTER(Range)), len(ranges)

    def running(self) -> list[int]:
        """The waves that are."""
        return [number for number, why in enumerate(self.stopped) if why is None]

    def pass_barrier(self) -> bool:
        """When no wave runs: let those run on that wait at the barrier; False where all have ended."""
        if Stop.BARRIER not in self.stopped:
            return False
        self.stopped = [None if why is Stop.BARRIER else why for why in self.stopped]
        if self.races is not None:
            self.races.barriers += 1
        return True
