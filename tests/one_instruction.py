"""Single gfx950 instructions: Triton's LLVM assembles them, the emulator runs each in one wave.

A test puts operands into a State, lets `run` and its own NumPy oracle each change a copy, and compares the copies: a
register, LDS byte or memory byte that the instruction should not have touched shows as well as a wrong result.
"""

import ctypes
import functools
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

EMULATOR = str(Path(__file__).parent / "gfx950emu")
LANES, VGPRS, VCC, EXEC, SCC = 64, 32, 106, 126, 253
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
def assemble(programs: tuple[str, ...]) -> dict[str, tuple]:
    """Assemble all at once; a program is one instruction or more lines. Returns each one's decoded instructions."""
    from triton.backends.amd.compiler import HIPBackend

    if EMULATOR not in sys.path:
        sys.path.insert(0, EMULATOR)
    import cdna4_ext
    import run_gfx950
    from hsaco import CodeObject

    text = ['.amdgcn_target "amdgcn-amd-amdhsa--gfx950"', ".text"]
    for i, program in enumerate(programs):
        text += [f".p2align 8\n.globl p{i}\np{i}:", program, "s_endpgm"]
    options = SimpleNamespace(arch="gfx950")
    blob = HIPBackend.make_hsaco("\n".join(text) + "\n", {}, options)
    code = CodeObject(blob)
    program = cdna4_ext.Program(run_gfx950._tinygrad(), SimpleNamespace(obj=code))
    # the code object goes along because it owns the memory in which the code lies
    return {asm: (program, code.base + code.symbols[f"p{i}"].value, code) for i, asm in enumerate(programs)}


def is_native(instructions: tuple[str, ...]) -> dict[str, bool]:
    """Whether the C core has each of them, or the decoder refuses."""
    native = {}
    for asm, (program, entry, _) in assemble(instructions).items():
        import cdna4_ext

        try:
            program.add(entry)
            native[asm] = True
        except cdna4_ext.EmuError:
            native[asm] = False
    return native


@functools.cache
def _slot():
    import cdna4_ext

    return cdna4_ext._Slot(0)


def run(assembled: tuple, state: State) -> State:
    """What the emulator makes of `state`."""
    import cdna4_ext

    program, entry, _ = assembled
    out, slot = state.copy(), _slot()
    MEMORY[:] = state.memory
    slot.sgpr[:] = cdna4_ext._INLINE
    slot.sgpr[:128], slot.sgpr[SCC] = state.s, state.scc
    slot.vgpr[: VGPRS * LANES] = state.v.ravel()
    slot.sgpr[256], slot.sgpr[257] = entry & 0xFFFFFFFF, entry >> 32
    wave = slot.w
    wave.lds, wave.lds_size, wave.mode = out.lds.ctypes.data, LDS_BYTES, MODE
    ending = None
    while ending != cdna4_ext.R_END:
        ending = cdna4_ext.core().core_run(ctypes.byref(wave), program.table, program.base, program.size, 1000)
        if ending == cdna4_ext.R_DECODE:
            program.add(int(slot.sgpr[256]) | int(slot.sgpr[257]) << 32)
        elif ending != cdna4_ext.R_END:
            raise AssertionError(f"the emulator ended with {ending}")
    out.v[:], out.s[:] = slot.vgpr[: VGPRS * LANES].reshape(VGPRS, LANES), slot.sgpr[:128]
    out.scc, out.memory = int(slot.sgpr[SCC]), MEMORY.copy()
    return out
