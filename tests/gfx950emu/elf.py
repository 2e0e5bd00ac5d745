"""ELF64 as LLVM writes it for AMDGPU: headers, symbols and relocations of a shared object."""

import struct
from typing import NamedTuple

EM_AMDGPU = 0xE0
PT_LOAD, PT_NOTE = 1, 4
SHT_SYMTAB, SHT_RELA, SHT_DYNSYM = 2, 4, 11
ABS32_LO, ABS32_HI, ABS64, REL32, REL64, ABS32, RELATIVE64 = 1, 2, 3, 4, 5, 6, 13  # R_AMDGPU_*


class Segment(NamedTuple):
    """A program header."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    align: int


class Section(NamedTuple):
    """A section header."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class Symbol(NamedTuple):
    name: str
    address: int
    size: int
    section: int  # 0: defined elsewhere


class Relocation(NamedTuple):
    address: int
    kind: int
    symbol: Symbol | None
    addend: int

    def value(self, base: int) -> tuple[int, int]:
        """(value, bytes) of the place when the image lies at `base`; NotImplementedError for an unknown kind."""
        target = base + self.symbol.address if self.symbol else 0
        absolute = target + self.addend
        relative = absolute - base - self.address
        known = {
            RELATIVE64: (base + self.addend, 8),
            ABS64: (absolute, 8),
            ABS32: (absolute, 4),
            ABS32_LO: (absolute & 0xFFFFFFFF, 4),
            ABS32_HI: (absolute >> 32, 4),
            REL64: (relative, 8),
            REL32: (relative, 4),
        }
        if self.kind not in known:
            raise NotImplementedError(f"relocation type {self.kind}")
        return known[self.kind]


class Elf:
    """The parsed headers of `blob`; ValueError where it is no AMDGPU ELF."""

    def __init__(self, blob: bytes) -> None:
        if blob[:4] != b"\x7fELF" or struct.unpack_from("<H", blob, 18) != (EM_AMDGPU,):
            raise ValueError("not an AMDGPU ELF")
        self.blob = blob
        segments, sections = struct.unpack_from("<QQ", blob, 32)
        segment_count, _, section_count, names = struct.unpack_from("<HHHH", blob, 56)
        self.segments = [
            Segment(*struct.unpack_from("<IIQQQQQQ", blob, segments + 56 * i)) for i in range(segment_count)
        ]
        self._sections = [
            Section(*struct.unpack_from("<IIQQQQIIQQ", blob, sections + 64 * i)) for i in range(section_count)
        ]
        strings = self._sections[names].offset
        self.sections = {self._text(strings + section.name): section for section in self._sections}
        self._tables = {
            i: self._symbols(section)
            for i, section in enumerate(self._sections)
            if section.kind in (SHT_SYMTAB, SHT_DYNSYM)
        }

    def _text(self, offset: int) -> str:
        return self.blob[offset : self.blob.index(b"\0", offset)].decode()

    def _symbols(self, table: Section) -> list[Symbol]:
        strings, found = self._sections[table.link].offset, []
        for offset in range(table.offset, table.offset + table.size, 24):
            name, _, _, section, address, size = struct.unpack_from("<IBBHQQ", self.blob, offset)
            found.append(Symbol(self._text(strings + name), address, size, section))
        return found

    def symbols(self) -> dict[str, Symbol]:
        """Those with a name that are defined here."""
        return {s.name: s for table in self._tables.values() for s in table if s.section and s.name}

    def relocations(self) -> list[Relocation]:
        found = []
        for section in self._sections:
            if section.kind != SHT_RELA:
                continue
            for offset in range(section.offset, section.offset + section.size, 24):
                address, info, addend = struct.unpack_from("<QQq", self.blob, offset)
                symbol = self._tables[section.link][info >> 32] if info >> 32 else None
                found.append(Relocation(address, info & 0xFFFFFFFF, symbol, addend))
        return found
