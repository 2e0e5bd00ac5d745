"""How a litmus kernel writes, reads and waits, and what its host side shares: see litmus.py."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

Launch = Callable[..., None]  # launch(kernel, workgroups, *arguments, **constants): all workgroups at once, interleaved
B = 256  # places of a payload: a lane each of 4 waves, so that waves can run ahead of one another
N = 4  # workgroups that count
LOOKS = 6  # of a reader: some before the flag is up, the last after it


def zeros(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int32)


@triton.jit
def put(place, value, how: tl.constexpr):
    """Write `value` to `place`, the named way."""
    if how == "atomic" or how == "atomic, barrier":
        tl.atomic_xchg(place, value, sem="relaxed")
    elif how == "cg":
        tl.store(place, value, cache_modifier=".cg")
    elif how == "through" or how == "through, barrier" or how == "through, wait, barrier":
        tl.store(place, value, cache_modifier=".wt")
    else:
        tl.store(place, value)
    if how == "through, wait, barrier":  # every wave waits for its own stores, then for the other waves
        wait: tl.constexpr = "s_waitcnt vmcnt(0)\nv_mov_b32 $0, $1"
        tl.inline_asm_elementwise(wait, "=v,v", [value], dtype=tl.int32, is_pure=False, pack=1)
    if how == "atomic, barrier" or how == "through, barrier" or how == "through, wait, barrier":
        tl.debug_barrier()


@triton.jit
def get(place, how: tl.constexpr):
    """Read `place`, the way that goes with `put`."""
    if how == "atomic" or how == "atomic, barrier":
        value = tl.atomic_add(place, 0, sem="relaxed")
    elif how == "cg":
        value = tl.load(place, cache_modifier=".cg")
    elif how == "through" or how == "through, barrier" or how == "through, wait, barrier":
        value = tl.load(place, cache_modifier=".cv")
    else:
        value = tl.load(place)
    return value


@triton.jit
def until(flag, value, sem: tl.constexpr):
    """Wait until `flag` holds `value`."""
    while tl.atomic_add(flag, 0, sem=sem) != value:
        pass
