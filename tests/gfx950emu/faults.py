"""Words for what the core stopped at."""

from collections.abc import Sequence

from .structures import Wave

SCRATCH_AND_LDS = 3  # fault kinds from here on have no address in argument memory
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
