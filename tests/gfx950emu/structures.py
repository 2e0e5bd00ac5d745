"""The structures and enumerations of the C core, as ctypes sees them. Order and widths are core/'s."""

import ctypes
from enum import IntEnum
from typing import Any

I32, U32, U64, POINTER = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p


class Kind(IntEnum):
    """Which function of the core runs an instruction: Insn.kind."""

    NONE = 0
    VALU = 1
    VOPC = 2
    VOP3P = 3
    SALU = 4
    SMEM = 5
    BRANCH = 6
    BARRIER = 7
    END = 8
    NOP = 9
    LANE = 10
    VMEM = 11
    DS = 12
    MFMA = 13
    CVTS = 14
    SETREG = 15
    GETREG = 16
    PCREL = 17
    TRAP = 18
    ACC = 19
    WAIT = 20
    IDX = 21
    VSKIP = 22
    CACHE = 23


class Stop(IntEnum):
    """Why the core returned: its R_*."""

    END = 0
    BARRIER = 1
    DECODE = 2  # an instruction that is not in the table yet
    LIMIT = 3  # executed as many as it was told to
    FAULT = 4  # Wave.fault_* say what
    TRAP = 5
    BADOP = 6


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class Insn(ctypes.Structure):
    """A decoded instruction. What x[] holds depends on the kind: decode_*.py say it and fill it in, core/ reads it."""

    _fields_ = [
        *_fields(I32, "kind op size dst s0 s1 s2 sdst"),
        ("lit", U32),
        *_fields(I32, "abs neg omod clamp opsel opsel_hi neg_hi imm"),
        *_fields(I32, "dpp row_mask bank_mask bc"),  # dpp: its control + 1, or 0
        *_fields(I32, "sdwa sel0 sel1 dsel dunused sext0 sext1"),
        ("x", I32 * 20),
        ("count", U64),  # how often it was executed
    ]


class Range(ctypes.Structure):
    """Memory that a kernel may touch: addresses from lo up to hi."""

    _fields_ = _fields(U64, "lo hi")


class Wave(ctypes.Structure):
    """What the core runs: pointers to a wave's registers and memory, and its state."""

    _fields_ = [
        *_fields(POINTER, "sgpr vgpr acc lds"),
        ("lds_size", U64),
        ("scratch", POINTER),
        ("scratch_stride", U64),
        ("ranges", ctypes.POINTER(Range)),
        ("nranges", U64),  # 0: no check
        *_fields(U64, "mode hwid xcc icount"),
        *_fields(U64, "fault_addr fault_lane fault_size fault_kind"),
        ("pend", POINTER),  # None: memory operations finish at once
        ("npend", U64),
        ("view", POINTER),  # None: one memory that all see at once
        ("races", POINTER),  # None: nobody looks for them
        *_fields(U64, "index pc"),  # which wave of its workgroup; where it is, from the start of the code
    ]


class View(ctypes.Structure):
    """A workgroup's view of memory: the lines that it caches. The core allocates and frees them."""

    _fields_ = [
        ("line", POINTER),
        *_fields(U64, "cap n"),
        ("wave", POINTER),
        *_fields(U64, "nwaves nposted"),
    ]


RACES_KEPT = 16


class Conflict(ctypes.Structure):
    """Two accesses of one byte by two waves with no barrier between, at least one of them a write."""

    _fields_ = _fields(U64, "space address barriers wave pc kind other_wave other_pc other_kind")


class Races(ctypes.Structure):
    """What the waves of a workgroup have accessed since their last barrier, and the conflicts found."""

    _fields_ = [
        ("line", POINTER),
        *_fields(U64, "capacity used barriers found"),
        ("conflict", Conflict * RACES_KEPT),
    ]
