"""A kernel of a code object, ready to launch."""

import ctypes
import dataclasses
import functools
import struct
from collections.abc import Sequence
from typing import Any

from . import occupancy
from .code_object import CodeObject
from .grid import Grid
from .kernarg import SLACK, Kernarg, pack
from .native import core
from .options import LaunchOptions
from .program import Program
from .stats import Stats
from .wave import LANES
from .workgroup import Start

DEFAULTS = LaunchOptions()
PRELOAD_PROLOGUE = 256  # bytes of code that load what preloading hardware has loaded already


class Kernel:
    """Kernel `name` of `hsaco`, by default its first; workgroups of `num_warps` waves and `shared` bytes of LDS.

    signature: Triton's type of each run-time argument. global_scratch, profile_scratch: bytes a workgroup, alignment.
    """

    def __init__(
        self,
        hsaco: bytes,
        name: str | None = None,
        num_warps: int = 4,
        shared: int = 0,
        signature: Sequence[str] | None = None,
        global_scratch: tuple[int, int] = (0, 1),
        profile_scratch: tuple[int, int] = (0, 1),
    ) -> None:
        self.code = CodeObject(hsaco).kernel(name)
        self.num_warps, self.shared, self.signature = num_warps, shared, signature
        self.scratch = (global_scratch, profile_scratch)

    @functools.cached_property
    def program(self) -> Program:
        """Its instructions as far as they have been met."""
        return Program(self.code.code_object, core())

    @property
    def lds(self) -> int:
        """Bytes a workgroup."""
        return max(self.shared, self.code.descriptor.lds_size)

    def resources(self) -> dict[str, int]:
        used = occupancy.resources(self.code)
        return {**used, "lds_dynamic": self.shared, "num_warps": self.num_warps}

    def occupancy(self) -> dict[str, float]:
        return occupancy.occupancy(self.resources(), self.num_warps, self.lds)

    def launch(
        self,
        grid: Sequence[int],
        *arguments: Any,
        options: LaunchOptions = DEFAULTS,
        preload: bool = True,
        allow: Sequence[Any] = (),
        **changes: Any,
    ) -> Stats:
        """Run a grid of one to three dimensions. NumPy arrays and CPU tensors are read and written in place.

        arguments: what the kernel takes at run time, in order; a pointer may be None. changes: to `options`.
        preload: off, the kernel loads arguments itself that hardware with a new firmware has preloaded.
        allow: arrays and tensors, besides the arguments, that it may touch. Raises EmulatorError for wrong code.
        """
        x, y, z = (*grid, 1, 1)[:3]
        segment = pack(self.code, arguments, self.signature, (x, y, z), self.num_warps * LANES, self.scratch)
        return self._run((x, y, z), segment, allow, preload, dataclasses.replace(options, **changes))

    def launch_kernarg(
        self,
        grid: Sequence[int],
        kernarg: bytes,
        buffers: Sequence[Any] = (),
        options: LaunchOptions = DEFAULTS,
        preload: bool = True,
        **changes: Any,
    ) -> Stats:
        """The same for a kernel that Triton did not compile: a ready segment, and the arrays that it points to."""
        x, y, z = (*grid, 1, 1)[:3]
        size = max(len(kernarg), self.code.descriptor.kernarg_size) + SLACK
        segment = Kernarg(ctypes.create_string_buffer(bytes(kernarg), size), list(buffers))
        return self._run((x, y, z), segment, (), preload, dataclasses.replace(options, **changes))

    def _run(
        self, grid: tuple[int, int, int], segment: Kernarg, allow: Sequence[Any], preload: bool, options: LaunchOptions
    ) -> Stats:
        descriptor = self.code.descriptor
        if descriptor.has_workgroup_info:
            raise NotImplementedError("the workgroup_info SGPR")
        packet = ctypes.create_string_buffer(self._dispatch_packet(grid, segment), 64)
        ranges = segment.ranges(allow)
        if ranges is not None:
            ranges.append((ctypes.addressof(packet), ctypes.addressof(packet) + 64))
        preloads = preload and descriptor.preload_length > 0
        start = Start(
            grid=grid,
            waves=self.num_warps,
            entry=self.code.entry + (PRELOAD_PROLOGUE if preloads else 0),
            lds=self.lds,
            user_sgprs=self._user_sgprs(segment, ctypes.addressof(packet), preloads),
            descriptor=descriptor,
        )
        return Grid(self.program, self.code, start, ranges, options).run()

    def _dispatch_packet(self, grid: tuple[int, int, int], segment: Kernarg) -> bytes:
        """The packet of the queue that the launch would come from: AQL's, of sizes in threads."""
        threads, scratch = self.num_warps * LANES, self.code.descriptor.scratch_size
        sizes = (0, 3, threads, 1, 1, 0, grid[0] * threads, grid[1], grid[2], scratch, self.shared)
        return struct.pack("<HHHHHHIIIIIQQQQ", *sizes, 0, segment.address, 0, 0)

    def _user_sgprs(self, segment: Kernarg, packet: int, preload: bool) -> list[int]:
        """The first SGPRs of every wave; what is not emulated is zero."""
        descriptor = self.code.descriptor
        registers: list[int] = []
        for name, count in descriptor.user_sgprs:
            if name == "kernarg_segment_ptr":
                registers += [segment.address & 0xFFFFFFFF, segment.address >> 32]
            elif name == "dispatch_ptr":
                registers += [packet & 0xFFFFFFFF, packet >> 32]
            elif name == "private_segment_size":
                registers += [descriptor.scratch_size]
            else:
                registers += [0] * count
        if preload:
            count = descriptor.preload_length
            data = ctypes.string_at(segment.address + 4 * descriptor.preload_offset, 4 * count)
            registers += struct.unpack(f"<{count}I", data)
        return registers + [0] * (descriptor.user_sgpr_count - len(registers))
