"""Vector instructions on registers: VOP1, VOP2, VOP3, VOPC, VOP3P. Matrices and narrow floats: decode_matrix.py."""

import re

from . import decode_matrix
from .instruction import Instruction
from .native import Core
from .structures import Insn, Kind

FAMILIES = ("VOP1", "VOP2", "VOP3", "VOP3SD", "VOPC", "VOP3P", "VOP3PX2")
VGPR = 256  # in the encoding of operands the first VGPR
VCC = 106

# Insn.op of what moves data between lanes
LANE_OPS = (
    "v_readfirstlane_b32",
    "v_readlane_b32",
    "v_writelane_b32",
    "v_permlane16_swap_b32",
    "v_permlane32_swap_b32",
    "v_swap_b32",
)
# Comparisons by the bits less, equal, greater and unordered. For integers `ne` has no unordered
RELATIONS = {
    "f": 0, "lt": 1, "eq": 2, "le": 3, "gt": 4, "lg": 5, "ge": 6, "o": 7,
    "u": 8, "nge": 9, "nlg": 10, "ngt": 11, "nle": 12, "neq": 13, "ne": 13, "nlt": 14, "tru": 15, "t": 15,
}  # fmt: skip
# the core's letter for each type that is compared
TYPES = {"f32": "f", "f64": "F", "f16": "h", "i32": "i", "u32": "u", "i64": "I", "u64": "U", "i16": "s", "u16": "w"}
FLOATS = "fFh"  # as letters of the core's signatures, where a result leads
CLAMPED_INTEGERS = re.compile(r"_(add|sub|subrev)_[iu](16|32)$")


def fill(insn: Insn, instruction: Instruction, core: Core) -> None:
    if instruction.encoding in ("VOP3P", "VOP3P_MFMA", "VOP3PX2"):
        _packed(insn, instruction, core)
        return
    _operands(insn, instruction)
    name = re.sub(r"_dpp|_sdwa", "", instruction.mnemonic)
    compare = re.fullmatch(r"v_cmp(x?)_(\w+?)_([fiu]\d\d)", name)
    if compare:
        _comparison(insn, instruction, bool(compare[1]), compare[2], compare[3])
    elif name in LANE_OPS:
        if insn.dpp or insn.sdwa:
            raise instruction.unsupported("DPP or SDWA")
        insn.kind, insn.op = Kind.LANE, LANE_OPS.index(name)
        if name.startswith("v_permlane"):
            insn.x[0], insn.x[1] = insn.opsel & 1, insn.opsel >> 1 & 1
    elif name == "v_accvgpr_mov_b32":
        insn.kind, insn.x[0] = Kind.ACC, 2
    elif name in ("v_nop", "v_clrexcp"):
        insn.kind = Kind.NOP
    elif decode_matrix.CONVERSION.match(name):
        decode_matrix.conversion(insn, instruction, name)
    elif name in core.vector_ops:
        _arithmetic(insn, instruction, name, core)
    else:
        raise instruction.unsupported()


def _operands(insn: Insn, instruction: Instruction) -> None:
    """Sources, destinations and modifiers, which differ by encoding."""
    field, encoding = instruction.field, instruction.encoding
    insn.s0 = field("src0")
    if encoding.endswith("DPP16"):
        insn.dpp, insn.s0 = field("dpp") + 1, VGPR + field("vsrc0")
        insn.row_mask, insn.bank_mask, insn.bc = field("row_mask"), field("bank_mask"), field("bc")
    elif "SDWA" in encoding:
        insn.sdwa, insn.s0 = 1, field("vsrc0") + (0 if field("s0") else VGPR)
        insn.sel0, insn.sel1, insn.dsel = field("src0_sel"), field("src1_sel"), field("dst_sel", 6)
        insn.dunused, insn.sext0, insn.sext1 = field("dst_unused"), field("src0_sext"), field("src1_sext")
        insn.omod, insn.clamp = field("omod"), field("clmp")
    if insn.dpp or insn.sdwa:
        insn.abs = field("src0_abs") | field("src1_abs") << 1
        insn.neg = field("src0_neg") | field("src1_neg") << 1
    if instruction.has("vsrc1"):
        insn.s1 = field("vsrc1") + (0 if insn.sdwa and field("s1") else VGPR)
    elif instruction.has("src1"):
        insn.s1 = field("src1")
    insn.s2, insn.dst, insn.sdst = field("src2", -1), field("vdst"), VCC
    if encoding.startswith("VOP3"):
        insn.neg, insn.omod, insn.clamp = field("neg"), field("omod"), field("clmp")
        if encoding == "VOP3SD":
            insn.sdst = field("sdst")
        else:
            insn.abs, insn.opsel = field("abs"), field("opsel")


def _comparison(insn: Insn, instruction: Instruction, writes_exec: bool, relation: str, type_: str) -> None:
    """x: type, relation, whether it is v_cmp_class, whether EXEC is written too."""
    insn.kind = Kind.VOPC
    insn.x[0], insn.x[2], insn.x[3] = ord(TYPES[type_]), relation == "class", writes_exec
    if relation != "class":
        insn.x[1] = RELATIONS["lg"] if relation == "ne" and type_[0] != "f" else RELATIONS[relation]
    if instruction.encoding.startswith("VOP3"):
        insn.sdst = instruction.field("vdst")
    elif insn.sdwa and instruction.field("sd"):
        insn.sdst = instruction.field("sdst")


def _arithmetic(insn: Insn, instruction: Instruction, name: str, core: Core) -> None:
    insn.kind, insn.op = Kind.VALU, core.vector_ops[name]
    signature = core.signatures[insn.op]
    result = signature[0]
    if name.startswith("v_bitop3"):  # its truth table lies where others have their modifiers
        insn.x[0] = insn.omod << 6 | insn.abs << 3 | insn.neg
        insn.abs = insn.neg = insn.omod = 0
    takes_mask = "m" in signature or "c" in signature[1:]
    if takes_mask and not instruction.encoding.startswith("VOP3"):
        insn.s2 = VCC
    if insn.clamp and result not in FLOATS and not CLAMPED_INTEGERS.search(name):
        raise instruction.unsupported("clamp")
    if insn.omod and result not in FLOATS:
        raise instruction.unsupported("omod")
    if insn.sdwa and result in "UF":
        raise instruction.unsupported("SDWA and a 64-bit result")


def _packed(insn: Insn, instruction: Instruction, core: Core) -> None:
    field, name = instruction.field, instruction.mnemonic
    insn.dst, insn.s0 = field("vdst"), field("src0")
    if name.startswith("v_accvgpr_"):
        insn.kind, insn.x[0] = Kind.ACC, "write" in name
        return
    insn.s1, insn.s2 = field("src1"), field("src2")
    if name.startswith("v_mfma"):
        decode_matrix.matrix(insn, instruction)
    elif name in core.packed_ops:
        insn.kind, insn.op = Kind.VOP3P, core.packed_ops[name]
        insn.neg, insn.neg_hi, insn.clamp = field("neg"), field("neg_hi"), field("clmp")
        insn.opsel, insn.opsel_hi = field("opsel"), field("opsel_hi") | field("opsel_hi2") << 2
    else:
        raise instruction.unsupported()
