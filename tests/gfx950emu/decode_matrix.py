"""Matrix instructions, and conversions from and to floats of 8 bits and less."""

import re

from .instruction import Instruction
from .structures import Insn, Kind

CONVERSION = re.compile(r"v_cvt_(scalef32_|(pk|sr)_(fp8|bf8)_f32)")
FROM_F32 = re.compile(r"v_cvt_(pk|sr)_(fp8|bf8)_f32")
SCALED = re.compile(r"v_cvt_scalef32_(sr_)?(2xpk16_|pk32_|pk_)?(\w+?)_(\w+)")
MATRIX = re.compile(r"v_mfma_(scale_)?(f32|i32|f64)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_(\w+)")

# The core's numbers for formats
NARROW = {"fp8": 0, "bf8": 1, "fp6": 2, "bf6": 3, "fp4": 4}
WIDE = {"f32": 0, "f16": 1, "bf16": 2}
OPERANDS = {"f32": 0, "f16": 1, "bf16": 2, "i8": 3, "fp8": 4, "bf8": 5, "f64": 9}
RESULTS = {"f32": 0, "i32": 1, "f64": 2}
F8F6F4 = 4  # of its operands the first; cbsz and blgp count on from there
WIDENS, NARROWS, NARROWS_RANDOMLY = 0, 1, 2


def conversion(insn: Insn, instruction: Instruction, name: str) -> None:
    """x: direction, narrow format, wide format, how many values, whether there is a scale, the operand that holds it,
    whether the values come from two sources, whether from a pair of registers.
    """
    insn.kind = Kind.CVTS
    plain, scaled = FROM_F32.fullmatch(name), SCALED.fullmatch(name)
    if scaled and not {scaled[3], scaled[4]} <= {*NARROW, *WIDE}:
        raise instruction.unsupported()
    if plain:
        both = plain[1] == "pk"
        insn.x[0], insn.x[1], insn.x[2] = NARROWS if both else NARROWS_RANDOMLY, NARROW[plain[2]], WIDE["f32"]
        insn.x[3], insn.x[6] = 2 if both else 1, both
    elif scaled:
        randomly, packing, to, source = bool(scaled[1]), scaled[2], scaled[3], scaled[4]
        insn.x[3] = {"2xpk16_": 32, "pk32_": 32, "pk_": 2, None: 1}[packing]
        insn.x[4] = 1
        pair_of_f32 = source == "f32" and packing == "pk_"
        if source in NARROW:
            insn.x[0], insn.x[1], insn.x[2] = WIDENS, NARROW[source], WIDE[to]
        else:
            insn.x[0], insn.x[1], insn.x[2] = NARROWS_RANDOMLY if randomly else NARROWS, NARROW[to], WIDE[source]
            insn.x[6] = (pair_of_f32 and not randomly) or packing == "2xpk16_"
            insn.x[7] = pair_of_f32 and randomly
        insn.x[5] = 2 if (randomly and source in WIDE) or insn.x[6] else 1
    else:
        raise instruction.unsupported()


def matrix(insn: Insn, instruction: Instruction) -> None:
    """x: M, N, K, blocks; formats of A, B, result; whether A, B, C and D are AccVGPRs; whether there are scales, the
    operands that hold A's and B's, the byte of it for each, and whether 8-bit operands lie in two halves of K.
    """
    shape = MATRIX.fullmatch(instruction.mnemonic)
    if not shape:
        raise instruction.unsupported()
    field = instruction.field
    insn.kind = Kind.MFMA
    insn.x[0], insn.x[1], insn.x[2], insn.x[3] = int(shape[3]), int(shape[4]), int(shape[5]), int(shape[6] or 1)
    insn.x[6] = RESULTS[shape[2]]
    insn.x[7], insn.x[8], insn.x[9] = field("acc") & 1, field("acc") >> 1, field("acc_cd")
    if shape[7] == "f8f6f4":
        # that they lie in two halves is inferred, not documented: see the README's limits
        insn.x[4], insn.x[5], insn.x[15] = F8F6F4 + field("cbsz"), F8F6F4 + field("blgp"), 1
        if shape[1]:
            _scales(insn, instruction)
        return
    formats = shape[7].split("_")
    if not set(formats) <= set(OPERANDS):
        raise instruction.unsupported()
    if field("cbsz") or field("blgp") or field("abid"):
        raise instruction.unsupported("a broadcast")
    insn.x[4], insn.x[5] = OPERANDS[formats[0]], OPERANDS[formats[-1]]


def _scales(insn: Insn, instruction: Instruction) -> None:
    field = instruction.field
    if field("neg") or field("neg_hi"):
        raise instruction.unsupported("a sign modifier")
    low, high = field("opsel"), field("opsel_hi")
    insn.x[10], insn.x[11], insn.x[12] = 1, field("scale_src0"), field("scale_src1")
    insn.x[13], insn.x[14] = (low & 1) | (high & 1) << 1, (low >> 1 & 1) | (high >> 1 & 1) << 1
