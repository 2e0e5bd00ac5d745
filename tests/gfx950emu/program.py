"""The decoded instructions of a code object, kept between launches."""

import ctypes
from collections import Counter
from dataclasses import dataclass, field

from .code_object import CodeObject
from .decode import Decoded, decode
from .errors import EmulatorError
from .native import Core
from .structures import Kind


@dataclass
class Program:
    """`table` holds for each dword of the code a pointer to its Insn, or null: what the core runs through."""

    code: CodeObject
    core: Core
    instructions: dict[int, Decoded] = field(default_factory=dict)  # by address

    def __post_init__(self) -> None:
        self.base, self.size = self.code.base, (self.code.size + 3) & ~3
        self.table = (ctypes.c_void_p * (self.size // 4))()

    def add(self, address: int) -> Decoded:
        """Decode what lies there; EmulatorError where nothing does that is emulated."""
        if address % 4 or not self.base <= address < self.base + self.size:
            raise EmulatorError(f"jump to {address:#x}, outside of the code")
        try:
            decoded = decode(address, self.core)
        except EmulatorError as error:
            raise EmulatorError(f"at +{address - self.base:#x} of the code object: {error}") from error
        self.instructions[address] = decoded
        self.table[(address - self.base) // 4] = ctypes.addressof(decoded.insn)
        return decoded

    def at(self, address: int) -> Decoded:
        return self.instructions.get(address) or self.add(address)

    def clear_counts(self) -> None:
        for decoded in self.instructions.values():
            decoded.insn.count = 0

    def histogram(self) -> Counter[str]:
        """Executions since `clear_counts`, by mnemonic."""
        counts: Counter[str] = Counter()
        for decoded in self.instructions.values():
            if decoded.insn.count:
                counts[decoded.instruction.mnemonic] += decoded.insn.count
        return counts

    def executed(self, kind: Kind) -> int:
        """Executions since `clear_counts` of one kind."""
        return sum(decoded.insn.count for decoded in self.instructions.values() if decoded.insn.kind == kind)
