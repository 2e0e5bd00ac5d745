"""Scalar instructions: SOP1, SOP2, SOPC, SOPK, SOPP and SMEM."""

import re

from .instruction import Instruction, signed
from .native import Core
from .structures import Insn, Kind

FAMILIES = ("SOP1", "SOP2", "SOPC", "SOPK", "SOPP", "SMEM")
LITERAL = 255  # the operand that stands for Insn.lit

# Insn.op of a branch: which condition
BRANCHES = (
    "s_branch",
    "s_cbranch_scc0",
    "s_cbranch_scc1",
    "s_cbranch_vccz",
    "s_cbranch_vccnz",
    "s_cbranch_execz",
    "s_cbranch_execnz",
)
PCREL = ("s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_call_b64")
# they change nothing that is emulated
IDLE = (
    "s_nop",
    "s_sethalt",
    "s_sleep",
    "s_setprio",
    "s_sendmsg",
    "s_icache_inv",
    "s_incperflevel",
    "s_decperflevel",
    "s_ttracedata",
    "s_wakeup",
    "s_setkill",
)
IDX_ON, IDX_OFF, IDX_MODE, IDX_INDEX = range(4)


def fill(insn: Insn, instruction: Instruction, family: str, core: Core) -> None:
    if family == "SOPP":
        _program_control(insn, instruction)
    elif family == "SOPK":
        _with_constant(insn, instruction, core)
    elif family == "SMEM":
        _memory(insn, instruction)
    else:
        _arithmetic(insn, instruction, family, core)


def _program_control(insn: Insn, instruction: Instruction) -> None:
    name = instruction.mnemonic
    immediate = insn.imm = signed(instruction.field("simm16"), 16)
    if name in BRANCHES:
        insn.kind, insn.op = Kind.BRANCH, BRANCHES.index(name)
    elif name == "s_barrier":
        insn.kind = Kind.BARRIER
    elif name.startswith("s_endpgm"):
        insn.kind = Kind.END
    elif name == "s_waitcnt":  # vmcnt, which lies in two pieces
        insn.kind, insn.imm = Kind.WAIT, (immediate & 15) | (immediate >> 14 & 3) << 4
    elif name in IDLE:
        insn.kind = Kind.NOP
    elif name == "s_trap":
        insn.kind = Kind.TRAP
    elif name == "s_set_gpr_idx_off":
        insn.kind, insn.op = Kind.IDX, IDX_OFF
    elif name == "s_set_gpr_idx_mode":
        insn.kind, insn.op, insn.x[0] = Kind.IDX, IDX_MODE, immediate
    else:
        raise instruction.unsupported()


def _with_constant(insn: Insn, instruction: Instruction, core: Core) -> None:
    """x of s_setreg and s_getreg: hardware register, first bit, number of bits."""
    name, bits = instruction.mnemonic, instruction.field("simm16")
    immediate = signed(bits, 16)
    insn.sdst = instruction.field("sdst")
    compare = name.replace("s_cmpk_", "s_cmp_")
    if compare != name and compare in core.scalar_ops:
        insn.kind, insn.op = Kind.SALU, core.scalar_ops[compare]
        insn.s0, insn.s1 = insn.sdst, LITERAL
        insn.lit = (bits if name.endswith("u32") else immediate) & 0xFFFFFFFF
    elif name in core.scalar_ops:
        insn.kind, insn.op, insn.imm = Kind.SALU, core.scalar_ops[name], immediate
    elif name.startswith(("s_setreg", "s_getreg")):
        insn.x[0], insn.x[1], insn.x[2] = bits & 63, bits >> 6 & 31, (bits >> 11) + 1
        insn.kind = Kind.SETREG if name.startswith("s_setreg") else Kind.GETREG
        insn.op = int(name.startswith("s_setreg_imm32"))
    elif name in PCREL:
        insn.kind, insn.op, insn.imm = Kind.PCREL, PCREL.index(name), immediate
    else:
        raise instruction.unsupported()


def _arithmetic(insn: Insn, instruction: Instruction, family: str, core: Core) -> None:
    """x: whether source 0, source 1 are 64 bits wide."""
    name = instruction.mnemonic
    source0, source1 = instruction.field("ssrc0", -1), instruction.field("ssrc1", -1)
    insn.s0 = source0
    if name in PCREL:
        insn.kind, insn.op, insn.sdst = Kind.PCREL, PCREL.index(name), instruction.field("sdst")
    elif name == "s_set_gpr_idx_on":
        insn.kind, insn.op, insn.x[0] = Kind.IDX, IDX_ON, source1
    elif name == "s_set_gpr_idx_idx":
        insn.kind, insn.op = Kind.IDX, IDX_INDEX
    elif name == "s_setvskip":
        insn.kind, insn.s1 = Kind.VSKIP, source1
    elif name in core.scalar_ops:
        insn.kind, insn.op, insn.sdst = Kind.SALU, core.scalar_ops[name], instruction.field("sdst", -1)
        insn.x[0] = instruction.bits("s0") == 64
        if family != "SOP1":
            insn.s1, insn.x[1] = source1, instruction.bits("s1") == 64
    else:
        raise instruction.unsupported()


def _memory(insn: Insn, instruction: Instruction) -> None:
    """x: dwords, the SGPR with an offset or -1, whether the base is a buffer."""
    load = re.fullmatch(r"s_(buffer_)?load_dword(?:x(\d+))?", instruction.mnemonic)
    if load:
        immediate, register = instruction.field("imm"), instruction.field("soffset_en")
        insn.kind, insn.s0, insn.sdst = Kind.SMEM, instruction.field("sbase") * 2, instruction.field("sdata")
        insn.imm = signed(instruction.field("offset"), 21) if immediate else 0
        insn.x[0], insn.x[2] = int(load[2] or 1), bool(load[1])
        insn.x[1] = instruction.field("soffset") if register else -1
        if not immediate and not register:
            insn.x[1] = instruction.field("offset") & 127
    elif instruction.mnemonic.startswith("s_dcache"):  # stores by scalar instructions are not emulated
        insn.kind = Kind.NOP
    else:
        raise instruction.unsupported()
