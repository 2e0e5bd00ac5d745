"""Registers and scratch of one wave, and how they start."""

import numpy as np

from .native import Core
from .structures import Wave

LANES, REGISTERS = 64, 256
# Of the scalar file: 0..105 SGPRs, then VCC, M0, EXEC and the like as in the encoding of operands; 128..248 the inline
# constants, so that an operand is read without asking what it is; the program counter behind them
SGPRS, EXEC, PC, SCALARS = 106, 126, 256, 260
POISON = 0x7FEDBEEF  # a NaN as f32, and an unlikely index
POISON_BYTE = 0xEE


def _constants() -> np.ndarray:
    scalars = np.zeros(SCALARS, np.uint32)
    scalars[128:193] = np.arange(65)
    scalars[193:209] = -np.arange(1, 17)
    floats = [0.5, -0.5, 1, -1, 2, -2, 4, -4, 1 / (2 * np.pi)]
    scalars[240:249] = np.array(floats, np.float32).view(np.uint32)
    return scalars


CONSTANTS = _constants()


class WaveState:
    """`scratch` bytes a lane. `wave` is what the core runs; it points into the arrays here."""

    def __init__(self, scratch: int, core: Core) -> None:
        self.sgpr = np.empty(SCALARS, np.uint32)
        self.vgpr = np.empty(REGISTERS * LANES, np.uint32)  # register * 64 + lane
        self.acc = np.empty(REGISTERS * LANES, np.uint32)
        self.scratch = np.zeros(max(scratch, 1) * LANES, np.uint8)
        self.pending = np.empty(core.pending_bytes, np.uint8)
        self.wave = Wave(
            sgpr=self.sgpr.ctypes.data,
            vgpr=self.vgpr.ctypes.data,
            acc=self.acc.ctypes.data,
            scratch=self.scratch.ctypes.data,
            scratch_stride=scratch,
        )

    @property
    def pc(self) -> int:
        return int(self.sgpr[PC]) | int(self.sgpr[PC + 1]) << 32

    @pc.setter
    def pc(self, address: int) -> None:
        self.sgpr[PC], self.sgpr[PC + 1] = address & 0xFFFFFFFF, address >> 32

    @property
    def exec(self) -> int:
        return int(self.sgpr[EXEC]) | int(self.sgpr[EXEC + 1]) << 32

    def clear(self, poison: bool) -> None:
        """As a wave starts: garbage or zeros everywhere, all lanes active."""
        self.sgpr[:] = CONSTANTS
        self.sgpr[:SGPRS] = POISON if poison else 0
        self.sgpr[EXEC : EXEC + 2] = 0xFFFFFFFF
        self.vgpr.fill(POISON if poison else 0)
        self.acc.fill(POISON if poison else 0)
        self.scratch.fill(POISON_BYTE if poison else 0)

    def point_to(self, lds: np.ndarray, size: int) -> None:
        """Let it use `size` bytes of LDS."""
        self.wave.lds, self.wave.lds_size = lds.ctypes.data, size
