"""What an emulated launch executes, workgroup by workgroup: what the cost table says of it."""

from dataclasses import dataclass
from typing import Any

ATOMIC = ("buffer_atomic", "global_atomic", "flat_atomic")


@dataclass(frozen=True)
class Launch:
    """Counts of one launch. They are wave instructions, not time."""

    kernel: str
    workgroups: int
    waves: int  # per workgroup
    instructions: int
    instructions_largest_workgroup: int
    cache_ops: int  # buffer_wbl2 sc1 and buffer_inv sc1
    atomics: int  # on memory; those on LDS cost no more than any other access to it


def counts(name: str, kernel: Any, stats: Any) -> Launch:
    """Of the launch that just ended, from what the emulator's `on_launch` is given."""
    return Launch(
        kernel=name.lstrip("_"),
        workgroups=len(stats.workgroups),
        waves=kernel.num_warps,
        instructions=stats.instructions,
        instructions_largest_workgroup=max(stats.workgroups.values()),
        cache_ops=stats.cache_ops,
        atomics=sum(n for op, n in stats.histogram.items() if op.startswith(ATOMIC)),
    )
