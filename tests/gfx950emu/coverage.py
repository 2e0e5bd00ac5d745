"""Which instructions of a kernel the emulator has, from end to end and without running it."""

import ctypes
from collections import Counter
from typing import Any

from .decode import decode
from .errors import EmulatorError
from .kernel import Kernel

# the first byte but three of instructions of 8 bytes: SMEM, DS, VMEM and VOP3 by their top six bits
LONG = {0x30, 0x34, 0x36, 0x37, 0x38}


def _size(code: bytes) -> int:
    """Bytes of an instruction that was not decoded, as far as its encoding says."""
    return 8 if code[3] >> 2 in LONG else 4


def coverage(kernel: Kernel) -> dict[str, Any]:
    """How many instructions it consists of, how many are emulated, and how often each of those that are not occurs."""
    core, address = kernel.program.core, kernel.code.entry
    end = address + kernel.code.size
    static, missing = 0, Counter[str]()
    while address < end:
        static += 1
        try:
            address += decode(address, core).instruction.size
        except EmulatorError as error:
            missing[str(error)] += 1
            address += _size(ctypes.string_at(address, 4))
    return {"static": static, "emulated": static - missing.total(), "not_emulated": dict(missing)}
