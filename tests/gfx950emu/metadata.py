"""The metadata of an AMDGPU code object: a note, in the subset of msgpack that LLVM writes."""

import struct
from typing import Any

NT_AMDGPU_METADATA = 32


def _aligned(n: int) -> int:
    return (n + 3) & ~3


def metadata(notes: bytes) -> dict[str, Any]:
    """The AMDGPU metadata among the ELF notes of one PT_NOTE segment; {} where there is none."""
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        name = notes[at + 12 : at + 12 + name_size].rstrip(b"\0")
        start = at + 12 + _aligned(name_size)
        if name == b"AMDGPU" and kind == NT_AMDGPU_METADATA:
            return _Reader(notes[start : start + size]).value()
        at = start + _aligned(size)
    return {}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(">" + code, self.take(struct.calcsize(code)))[0]

    def text(self, n: int) -> str:
        return self.take(n).decode()

    def array(self, n: int) -> list:
        return [self.value() for _ in range(n)]

    def map(self, n: int) -> dict:
        return {self.value(): self.value() for _ in range(n)}

    def value(self) -> Any:
        """The next value; ValueError for a type that is not in the subset."""
        tag = self.take(1)[0]
        # small values, with their size or themselves in the tag
        if tag <= 0x7F:
            return tag
        if tag <= 0x8F:
            return self.map(tag & 15)
        if tag <= 0x9F:
            return self.array(tag & 15)
        if tag <= 0xBF:
            return self.text(tag & 31)
        if tag >= 0xE0:
            return tag - 256
        # constants, and numbers by width
        if tag in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[tag]
        if 0xCA <= tag <= 0xD3:
            return self.number("fdBHIQbhiq"[tag - 0xCA])
        # what is preceded by its size
        if 0xC4 <= tag <= 0xC6:
            return self.take(self.number("BHI"[tag - 0xC4]))
        if 0xD9 <= tag <= 0xDB:
            return self.text(self.number("BHI"[tag - 0xD9]))
        if tag in (0xDC, 0xDD):
            return self.array(self.number("HI"[tag - 0xDC]))
        if tag in (0xDE, 0xDF):
            return self.map(self.number("HI"[tag - 0xDE]))
        raise ValueError(f"msgpack type {tag:#x}")
