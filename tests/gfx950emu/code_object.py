"""A code object (.hsaco) in memory: mapped, relocated, its kernels found. Needs no tinygrad, Triton or GPU."""

import ctypes
import mmap
from dataclasses import dataclass
from typing import Any

from .descriptor import Descriptor
from .elf import PT_LOAD, PT_NOTE, Elf
from .metadata import metadata

PAGE = 4096


class CodeObject:
    """`base` is the address at which its virtual address 0 lies; it owns the memory there, `size` bytes."""

    def __init__(self, blob: bytes) -> None:
        elf = Elf(blob)
        loaded = [segment for segment in elf.segments if segment.kind == PT_LOAD]
        self.size = max(segment.address + segment.memory_size for segment in loaded)
        # a page more than needed: the decoder looks ahead of the last instruction
        self._memory = mmap.mmap(-1, (self.size + PAGE - 1) // PAGE * PAGE + PAGE)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for segment in loaded:
            self._write(segment.address, blob[segment.offset : segment.offset + segment.file_size])
        for relocation in elf.relocations():
            value, size = relocation.value(self.base)
            self._write(relocation.address, (value & (1 << 8 * size) - 1).to_bytes(size, "little"))
        self.symbols = elf.symbols()
        self.metadata: dict[str, Any] = {}
        for segment in elf.segments:
            if segment.kind == PT_NOTE:
                self.metadata |= metadata(blob[segment.offset : segment.offset + segment.file_size])
        self._text = elf.sections.get(".text")

    def _write(self, address: int, data: bytes) -> None:
        self._memory[address : address + len(data)] = data

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at a virtual address."""
        return self._memory[address : address + size]

    def kernel_names(self) -> list[str]:
        return [name.removesuffix(".kd") for name in self.symbols if name.endswith(".kd")]

    def kernel(self, name: str | None = None) -> "KernelCode":
        """The kernel of that name, by default the first; KeyError where there is none."""
        name = name or self.kernel_names()[0]
        symbol = self.symbols[name + ".kd"]
        descriptor = Descriptor.parse(self.read(symbol.address, 64))
        of_all = self.metadata.get("amdhsa.kernels", [])
        own: dict[str, Any] = next((one for one in of_all if one[".symbol"] == name + ".kd"), {})
        entry = symbol.address + descriptor.entry_offset
        size = self.symbols[name].size if name in self.symbols else 0
        if not size and self._text:  # hand-written code need not say its size
            size = self._text.address + self._text.size - entry
        return KernelCode(self, name, descriptor, own, self.base + entry, size)


@dataclass(frozen=True)
class KernelCode:
    """A kernel of a code object."""

    code_object: CodeObject
    name: str
    descriptor: Descriptor
    metadata: dict[str, Any]  # its entry of the metadata note
    entry: int  # address of the first instruction, in this process
    size: int  # bytes of code

    @property
    def arguments(self) -> list[dict[str, Any]]:
        """Offset, size and kind of every argument, hidden ones included."""
        return self.metadata.get(".args", [])
