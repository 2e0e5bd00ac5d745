"""The kernarg segment: a kernel's arguments as bytes in memory."""

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .code_object import KernelCode

SLACK = 64  # bytes behind the arguments: scalar loads may be wider than what is left of them
SCRATCH_POINTERS = 2  # Triton's last arguments: global and profile scratch
HIDDEN = "hidden_"  # how the kinds of arguments begin that a runtime adds


@dataclass
class Kernarg:
    """`buffer` is the segment; `memory`: what its pointers point to."""

    buffer: ctypes.Array[ctypes.c_char]
    memory: list[Any] = field(default_factory=list)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.buffer)

    def put(self, offset: int, data: bytes) -> None:
        ctypes.memmove(self.address + offset, data, len(data))

    def ranges(self, also: Sequence[Any]) -> list[tuple[int, int]] | None:
        """Memory that the kernel may touch, `also` included; None where a bare address says no size."""
        extents = [extent(one) for one in self.memory if one is not None and not (isinstance(one, int) and one == 0)]
        known = [one for one in (*extents, *map(extent, also)) if one is not None]
        if None in extents:
            return None
        return [*known, (self.address, self.address + ctypes.sizeof(self.buffer))]


def pointer(argument: Any) -> int:
    """The address that an array, tensor, None or int stands for."""
    if argument is None:
        return 0
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data
    if hasattr(argument, "data_ptr"):
        if hasattr(argument, "device") and argument.device.type != "cpu":
            raise TypeError(f"tensors must be on the CPU, this one is on {argument.device}")
        return argument.data_ptr()
    if isinstance(argument, int):
        return argument
    raise TypeError(f"not a pointer argument: {type(argument)}")


def extent(argument: Any) -> tuple[int, int] | None:
    """First address and the one behind the last, of all of an array's or tensor's storage; None for others."""
    if isinstance(argument, np.ndarray):
        while isinstance(argument.base, np.ndarray):
            argument = argument.base
        return np.lib.array_utils.byte_bounds(argument)
    if hasattr(argument, "untyped_storage"):
        storage = argument.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    return None


def scalar(argument: Any, size: int, type_: str | None) -> bytes:
    """A number as `size` bytes, of Triton's type or, where that is not known, of its own."""
    if isinstance(argument, np.generic) and argument.nbytes == size:
        return argument.tobytes()
    if type_ is None and isinstance(argument, float):
        type_ = "fp32" if size == 4 else "fp64"
    if type_ in ("fp32", "f32"):
        return struct.pack("<f", argument)
    if type_ == "fp64":
        return struct.pack("<d", argument)
    if type_ == "fp16":
        return struct.pack("<e", argument)
    if type_ == "bf16":
        (bits,) = struct.unpack("<I", struct.pack("<f", argument))
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        return (rounded & 0xFFFF).to_bytes(2, "little")
    return (int(argument) & (1 << 8 * size) - 1).to_bytes(size, "little")


def pack(
    kernel: KernelCode,
    arguments: Sequence[Any],
    signature: Sequence[str] | None,
    grid: tuple[int, int, int],
    threads: int,
    scratch: Sequence[tuple[int, int]],
) -> Kernarg:
    """The segment of a kernel that Triton compiled. scratch: bytes a workgroup and alignment of each scratch buffer."""
    explicit = [argument for argument in kernel.arguments if not argument[".value_kind"].startswith(HIDDEN)]
    wanted = len(explicit) - SCRATCH_POINTERS
    if len(arguments) != wanted:
        raise TypeError(f"{kernel.name} takes {wanted} run-time arguments, got {len(arguments)}")
    segment = Kernarg((ctypes.c_char * (max(kernel.descriptor.kernarg_size, 16) + SLACK))())
    values = [*arguments, *(_scratch(size, align, grid, segment) for size, align in scratch)]
    types = [*signature, "*i8", "*i8"] if signature else [None] * len(values)
    for argument, value, type_ in zip(explicit, values, types, strict=True):
        if argument[".value_kind"] == "by_value":
            data = scalar(value, argument[".size"], type_)
        else:
            data = struct.pack("<Q", pointer(value))
        segment.put(argument[".offset"], data)
    pointers = [v for a, v in zip(explicit, arguments, strict=False) if a[".value_kind"] != "by_value"]
    segment.memory.extend(pointers)
    _hidden(segment, kernel, grid, threads)
    return segment


def _scratch(size: int, align: int, grid: tuple[int, int, int], segment: Kernarg) -> int:
    """Address of a buffer for all workgroups, which the segment then keeps."""
    if not size:
        return 0
    buffer = np.zeros(size * math.prod(grid) + align, np.uint8)
    segment.memory.append(buffer)
    return (buffer.ctypes.data + align - 1) & ~(align - 1)


def _hidden(segment: Kernarg, kernel: KernelCode, grid: tuple[int, int, int], threads: int) -> None:
    """What the runtime adds; arguments that are not named here stay zero."""
    known = {f"block_count_{axis}": n for axis, n in zip("xyz", grid, strict=True)}
    known |= {"group_size_x": threads, "group_size_y": 1, "group_size_z": 1}
    known["grid_dims"] = 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1
    for argument in kernel.arguments:
        value = known.get(argument[".value_kind"].removeprefix(HIDDEN))
        if argument[".value_kind"].startswith(HIDDEN) and value is not None:
            segment.put(argument[".offset"], value.to_bytes(argument[".size"], "little"))
