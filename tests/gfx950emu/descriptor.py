"""The kernel descriptor: 64 bytes in a code object that tell the hardware how to start a kernel's waves."""

import struct
from dataclasses import dataclass

# User SGPRs in the order in which the hardware lays them down: name, bit of `properties`, how many
USER_SGPRS = (
    ("private_segment_buffer", 0, 4),
    ("dispatch_ptr", 1, 2),
    ("queue_ptr", 2, 2),
    ("kernarg_segment_ptr", 3, 2),
    ("dispatch_id", 4, 2),
    ("flat_scratch_init", 5, 2),
    ("private_segment_size", 6, 1),
)


@dataclass(frozen=True)
class Descriptor:
    """LLVM's amd_kernel_descriptor_t. Sizes are bytes, unless something else is said."""

    lds_size: int
    scratch_size: int  # per lane
    kernarg_size: int
    entry_offset: int  # from the descriptor's own address
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload_length: int  # dwords of the kernarg segment that start out in SGPRs
    preload_offset: int  # dwords

    @classmethod
    def parse(cls, data: bytes) -> "Descriptor":
        lds, scratch, kernarg, _, entry = struct.unpack_from("<IIIIq", data, 0)
        rsrc3, rsrc1, rsrc2 = struct.unpack_from("<III", data, 44)
        properties, preload = struct.unpack_from("<HH", data, 56)
        return cls(lds, scratch, kernarg, entry, rsrc1, rsrc2, rsrc3, properties, preload & 0x7F, preload >> 7)

    @property
    def user_sgpr_count(self) -> int:
        return (self.rsrc2 >> 1) & 0x1F

    @property
    def user_sgprs(self) -> list[tuple[str, int]]:
        """Those that this kernel asks for, in order: name and how many SGPRs."""
        return [(name, n) for name, bit, n in USER_SGPRS if self.properties >> bit & 1]

    @property
    def workgroup_ids(self) -> tuple[bool, ...]:
        """Whether an SGPR holds the workgroup's x, y and z."""
        return tuple(bool(self.rsrc2 >> bit & 1) for bit in (7, 8, 9))

    @property
    def has_workgroup_info(self) -> bool:
        return bool(self.rsrc2 >> 10 & 1)

    @property
    def accum_offset(self) -> int:
        """The VGPR at which AccVGPRs begin, where there are any."""
        return ((self.rsrc3 & 0x3F) + 1) * 4

    @property
    def mode(self) -> int:
        """The MODE register that waves start with: rounding, denormals, DX10_CLAMP, IEEE, FP16_OVFL."""
        return (
            (self.rsrc1 >> 12 & 0xFF)
            | (self.rsrc1 >> 21 & 1) << 8
            | (self.rsrc1 >> 23 & 1) << 9
            | (self.rsrc1 >> 26 & 1) << 23
        )
