"""Single gfx950 instructions: Triton's LLVM assembles them, the emulator runs each in one wave.

A test puts operands into a State, lets `run` and its own NumPy oracle each change a copy, and compares the copies: a
register, LDS byte or memory byte that the instruction should not have touched shows as well as a wrong result.
"""

import ctypes
import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
from triton.backends.amd.compiler import HIPBackend

import gfx950emu.native
import gfx950emu.program
import gfx950emu.wave
from gfx950emu.structures import Stop

LANES, VGPRS, VCC, EXEC, SCC = 64, 48, 106, 126, 253
# The MODE register of every kernel of ours: nearest even, denormals kept, IEEE and DX10_CLAMP set
MODE = 0x3F0
LDS_BYTES = MEMORY_BYTES = 8192
MEMORY = np.zeros(MEMORY_BYTES, np.uint8)  # where State.memory lies while the emulator runs


class State:
    """What one instruction can read and write: VGPRs, SGPRs, SCC, LDS and one buffer of global memory."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.v = rng.integers(0, 1 << 32, (VGPRS, LANES), dtype=np.uint32)
        self.s = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
        self.scc = int(rng.integers(2))
        self.lds = rng.integers(0, 256, LDS_BYTES, dtype=np.uint8)
        self.memory = rng.integers(0, 256, MEMORY_BYTES, dtype=np.uint8)

    def copy(self) -> "State":
        other = State.__new__(State)
        other.__dict__ = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in self.__dict__.items()}
        return other

    def pair(self, register: int) -> int:
        """A 64-bit scalar."""
        return int(self.s[register]) | int(self.s[register + 1]) << 32

    def set_pair(self, register: int, value: int) -> None:
        self.s[register], self.s[register + 1] = value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF

    def lanes(self, register: int) -> np.ndarray:
        """A 64-bit scalar as one bool per lane."""
        return np.array([self.pair(register) >> lane & 1 for lane in range(LANES)], bool)

    def set_lanes(self, register: int, lanes: np.ndarray) -> None:
        self.set_pair(register, sum(1 << int(lane) for lane in np.flatnonzero(lanes)))

    @property
    def exec(self) -> np.ndarray:
        return self.lanes(EXEC)

    def differences(self, other: "State", floats: bool) -> list[str]:
        """Every place that is not the same in both; NaNs of floats are all one, their payload is nobody's contract."""
        wrong = self.v != other.v
        if floats:
            wrong &= ~(np.isnan(self.v.view(np.float32)) & np.isnan(other.v.view(np.float32)))
        found = [f"v{r} lane {n}: {self.v[r, n]:#x}, not {other.v[r, n]:#x}" for r, n in np.argwhere(wrong)]
        found += [f"s{r}: {self.s[r]:#x}, not {other.s[r]:#x}" for r in np.flatnonzero(self.s != other.s)]
        found += [f"scc: {self.scc}, not {other.scc}"] if self.scc != other.scc else []
        for name in ("lds", "memory"):
            mine, others = getattr(self, name), getattr(other, name)
            found += [f"{name}[{i}]: {mine[i]:#x}, not {others[i]:#x}" for i in np.flatnonzero(mine != others)]
        return found


@functools.cache
def assemble(programs: tuple[str, ...]) -> dict[str, tuple[Any, int]]:
    """Assemble all at once; a program is one instruction or more lines. Returns the Program and each one's address."""
    text = ['.amdgcn_target "amdgcn-amd-amdhsa--gfx950"', ".text"]
    for i, lines in enumerate(programs):
        text += [f".p2align 8\n.globl p{i}\np{i}:", lines, "s_endpgm"]
    code = gfx950emu.CodeObject(HIPBackend.make_hsaco("\n".join(text) + "\n", {}, SimpleNamespace(arch="gfx950")))
    program = gfx950emu.program.Program(code, gfx950emu.native.core())
    return {asm: (program, code.base + code.symbols[f"p{i}"].address) for i, asm in enumerate(programs)}


def is_native(instructions: tuple[str, ...]) -> dict[str, bool]:
    """Whether the emulator has each of them."""
    native = {}
    for asm, (program, entry) in assemble(instructions).items():
        try:
            program.add(entry)
            native[asm] = True
        except gfx950emu.EmulatorError:
            native[asm] = False
    return native


@functools.cache
def _wave_state() -> Any:
    return gfx950emu.wave.WaveState(scratch=0, core=gfx950emu.native.core())


def run(assembled: tuple[Any, int], state: State, core: Any = None) -> State:
    """What the emulator makes of `state`, or another core than its own (of the same operations)."""
    program, entry = assembled
    core = core or program.core
    out, registers = state.copy(), _wave_state()
    MEMORY[:] = state.memory
    registers.sgpr[:] = gfx950emu.wave.CONSTANTS
    registers.sgpr[:128], registers.sgpr[SCC] = state.s, state.scc
    registers.vgpr[: VGPRS * LANES] = state.v.ravel()
    registers.pc = entry
    registers.point_to(out.lds, LDS_BYTES)
    registers.wave.mode = MODE
    stop = Stop.DECODE
    while stop != Stop.END:
        stop = Stop(core.run(ctypes.byref(registers.wave), program.table, program.base, program.size, 1000))
        if stop == Stop.DECODE:
            program.add(registers.pc)
        elif stop != Stop.END:
            raise AssertionError(f"the emulator stopped with {stop.name}")
    out.v[:], out.s[:] = registers.vgpr[: VGPRS * LANES].reshape(VGPRS, LANES), registers.sgpr[:128]
    out.scc, out.memory = int(registers.sgpr[SCC]), MEMORY.copy()
    return out
