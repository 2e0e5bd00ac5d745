"""Words for what the core stopped at."""

from collections.abc import Callable, Sequence

from .structures import Conflict, Wave

SCRATCH_AND_LDS = 3  # fault kinds from here on have no address in argument memory
SPACES, ACCESSES = ("LDS", "memory"), ("reads", "writes", "changes atomically")
ACCESS = {1: "load from", 2: "store or atomic at", 3: "LDS access at", 4: "scratch access at"}


def describe(wave: Wave, ranges: Sequence[tuple[int, int]]) -> str:
    """An access outside of what it may touch, and how far outside."""
    where = f"{wave.fault_addr:#x}"
    if wave.fault_kind < SCRATCH_AND_LDS:
        where += _near(wave.fault_addr, ranges)
    access = f"{ACCESS[wave.fault_kind]} {where} ({wave.fault_size} bytes, lane {wave.fault_lane})"
    return f"{access} is out of bounds"


def _near(address: int, ranges: Sequence[tuple[int, int]]) -> str:
    """Its place relative to the nearest end of an argument's memory."""
    places = []
    for low, high in ranges:
        memory = f"argument memory {low:#x}..{high:#x}"
        places.append((abs(address - low), f"{address - low:+d} from the start of {memory}"))
        if address >= high:
            places.append((address - high, f"{address - high} bytes past the end of {memory}"))
    return f" ({min(places)[1]})" if places else ""


def describe_conflict(conflict: Conflict, instruction_at: Callable[[int], object], entry: int) -> str:
    """Two waves at one byte. pc: from the start of the code, where the kernel begins at `entry`."""

    def access(wave: int, kind: int, pc: int) -> str:
        return f"wave {wave} {ACCESSES[kind]} it at +{pc - entry:#x} ({instruction_at(pc)!r})"

    first = access(conflict.other_wave, conflict.other_kind, conflict.other_pc)
    second = access(conflict.wave, conflict.kind, conflict.pc)
    place = f"{SPACES[conflict.space]} byte {conflict.address:#x}"
    return f"{place} after {conflict.barriers} barriers: {first}, {second}, and no barrier is between"
