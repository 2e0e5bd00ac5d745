"""An instruction's form: its mnemonic with the modifiers that change what it does, without registers and offsets.

`v_add_u32_dpp v4, v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf` and the same on other registers are one form.
"""

import re
from typing import NamedTuple

NUMBERED = ("offset", "offset0", "offset1", "bitop3")  # any value: a test covers many of them, or one like another


class Parsed(NamedTuple):
    name: str
    operands: list[str]
    modifiers: list[str]


def parse(asm: str) -> Parsed:
    """Split one line of LLVM's assembly."""
    name, _, rest = asm.split("//")[0].split(";")[0].strip().partition(" ")
    operands = [part.strip() for part in rest.split(", ")] if rest else []
    modifiers = []
    if operands and not name.startswith(("s_waitcnt", "s_cbranch", "s_branch")):
        operands[-1], *modifiers = operands[-1].split()
    return Parsed(name, operands, modifiers)


def sign(operand: str) -> str:
    """`-`, `|`, `-|` or `sext` as written around a register."""
    return "".join(re.findall(r"^-(?=[vs|])|(?<=-)\||^\||^sext", operand))


def form(asm: str) -> str:
    name, operands, modifiers = parse(asm)
    parts = [name]
    if any(sign(operand) for operand in operands):
        parts.append("signs:" + ",".join(sign(operand) or "." for operand in operands[1:]))
    for modifier in modifiers:
        key = modifier.partition(":")[0]
        parts.append(key if key in NUMBERED else modifier)
    return " ".join(parts)


def forms(assembly: str) -> list[str]:
    """Every instruction of a kernel's assembly, as its form."""
    return [form(line) for line in re.findall(r"^\t([a-z]\w+.*)$", assembly, re.MULTILINE)]
