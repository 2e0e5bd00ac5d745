"""From machine code to what the core runs: tinygrad decodes, the tables decode_* choose the core's function.

tinygrad is used for this alone: it knows AMD's encodings, and none of its own per-instruction code is run.
"""

import ctypes
from dataclasses import dataclass

from tinygrad.renderer.amd import decode_inst

from . import decode_memory, decode_scalar, decode_vector
from .errors import EmulatorError
from .instruction import Instruction
from .native import Core
from .structures import Insn

MOST_BYTES = 16
SCALED_MFMA = b"\xac\xd3"  # what bytes 2 and 3 of one hold


@dataclass(frozen=True)
class Decoded:
    """An instruction for the core, and as tinygrad sees it."""

    insn: Insn
    instruction: Instruction


def decode(address: int, core: Core) -> Decoded:
    """The instruction at an address of this process; EmulatorError where there is none, or none that is emulated."""
    code = ctypes.string_at(address, MOST_BYTES)
    # only the scaled MFMAs are 16 bytes long; given more than 8 bytes of anything else, tinygrad's decoder may take the
    # instruction behind it for the second half of one
    if code[2:4] != SCALED_MFMA:
        code = code[:8]
    try:
        instruction = Instruction(decode_inst(code, "cdna"))
    except ValueError as error:
        raise EmulatorError(f"no gfx950 instruction: {code.hex()}") from error
    insn = Insn(size=instruction.size, s0=-1, s1=-1, s2=-1, sdst=-1, lit=instruction.field("literal"))
    family = instruction.encoding.split("_")[0]
    if family in decode_scalar.FAMILIES:
        decode_scalar.fill(insn, instruction, family, core)
    elif family in decode_vector.FAMILIES:
        decode_vector.fill(insn, instruction, core)
    elif family in decode_memory.FAMILIES:
        decode_memory.fill(insn, instruction, family)
    else:
        raise instruction.unsupported()
    return Decoded(insn, instruction)
