"""Which registers a decoded gfx950 instruction reads, and which it writes with a delay that others must wait for.

Register numbers are those of AMD's operand encoding: 0..105 SGPRs, 106 and 107 VCC, 126 and 127 EXEC, 256.. VGPRs.
Names, widths and fields are the decoder's; what the encoding leaves implicit is added here. Left out: SCC, EXEC as a
source of vector instructions (both written by scalar instructions, whose results no one waits for), the old value that
a DPP or SDWA instruction may keep, AccVGPRs.
"""

import re
from typing import Any

VCC = (106, 107)
EXEC = (126, 127)
SOURCES = ("src0", "src1", "src2", "vsrc0", "vsrc1", "ssrc0", "ssrc1", "sbase", "soffset", "srsrc", "saddr")
SOURCES_OF_MEMORY = ("addr", "vaddr", "data", "data0", "data1")
RESULTS = ("vdst", "sdst")
ACCUMULATES = re.compile(r"v_(fmac|pk_fmac|dot\d+c|writelane)")  # read their destination too


def name(instruction: Any) -> str:
    """AMD's mnemonic without the encoding's suffix."""
    return re.sub(r"_(e32|e64)$", "", instruction.op.name.lower())


def _registers(instruction: Any, fields: tuple[str, ...]) -> set[int]:
    widths, out = instruction.op_bits, set()
    for field in fields:
        bits = widths.get("src0" if field == "vsrc0" else field)  # vsrc0: the real source 0 of DPP and SDWA
        if bits is None or not hasattr(type(instruction), field):
            continue
        first = getattr(instruction, field).offset
        if first < 128 or first >= 256:  # between them are constants and markers
            out |= set(range(first, first + max(1, bits // 32)))
    return out


def reads(instruction: Any) -> frozenset[int]:
    """Registers that must be ready before it issues; a store's data too, but not the registers a load fills."""
    op, encoding = name(instruction), type(instruction).__name__
    fields: tuple[str, ...] = SOURCES + SOURCES_OF_MEMORY
    if op.startswith("buffer_store"):
        fields += ("vdata",)
    if encoding.startswith("SOPK"):
        fields += ("sdst",)  # compared or added to
    out = _registers(instruction, fields)
    if ACCUMULATES.match(op) or "_swap_" in op:
        out |= _registers(instruction, ("vdst",))
    implicit_carry = encoding.startswith("VOP2") and re.match(r"v_(cndmask|addc|subb|subbrev)_", op)
    if implicit_carry or op.startswith(("v_div_fmas", "s_cbranch_vcc")):
        out |= set(VCC)
    if op.startswith("s_cbranch_exec"):
        out |= set(EXEC)
    return frozenset(out)


def writes(instruction: Any) -> frozenset[int]:
    """Registers that a vector instruction makes; loads and scalar instructions have none here."""
    op, encoding = name(instruction), type(instruction).__name__
    if not op.startswith("v_"):
        return frozenset()
    out = _registers(instruction, RESULTS)
    if op.startswith(("v_readlane", "v_readfirstlane")):
        out = {number - 256 for number in out}  # encoded like a VGPR, but is an SGPR
    if encoding.startswith("VOPC") or (encoding.startswith("VOP2") and "_co_" in op):
        out |= set(VCC)
    if op.startswith("v_cmpx"):
        out |= set(EXEC)
    if "_swap_" in op:
        out |= _registers(instruction, ("src0",))
    return frozenset(out)
