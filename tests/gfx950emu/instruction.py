"""A machine instruction as tinygrad's decoder sees it, under AMD's names."""

import re
from typing import Any

from .errors import EmulatorError


def signed(value: int, bits: int) -> int:
    """Two's complement."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


class Instruction:
    """`decoded` is tinygrad's; nothing else of tinygrad is used than what is read here (and by who traces a launch)."""

    def __init__(self, decoded: Any) -> None:
        self.decoded = decoded
        self.mnemonic: str = re.sub(r"_(e32|e64)$", "", decoded.op.name.lower())
        self.encoding: str = type(decoded).__name__  # such as VOP2_SDWA
        self.size: int = decoded.size()  # bytes

    def has(self, field: str) -> bool:
        return hasattr(type(self.decoded), field)

    def field(self, name: str, default: int = 0) -> int:
        """The bits of a field; the default where the encoding has none of that name."""
        field = getattr(type(self.decoded), name, None)
        return default if field is None else self.decoded._raw >> field.lo & field.mask

    def bits(self, operand: str) -> int:
        """Width of the scalar source `s0` or `s1`."""
        return self.decoded.canonical_op_bits[operand]

    def unsupported(self, what: str = "") -> EmulatorError:
        """The error to raise where there is no code for it."""
        which = f"{self.mnemonic} ({self.encoding})" + (f" with {what}" if what else "")
        # in hex: tinygrad cannot spell all operands that it can decode
        return EmulatorError(
            f"{which} is not emulated: {self.decoded.to_bytes().hex()}. To add it: tests/gfx950emu/decode_*.py says "
            "which function of tests/gfx950emu/core/ runs an instruction"
        )
