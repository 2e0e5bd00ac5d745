"""Litmus programs about one place, one counter or one cache line: see litmus.py.

Each function runs its program for one seed and says whether the *odd* outcome came about: the one that a reader who
thinks of one memory would rule out.
"""

import torch
import triton
import triton.language as tl

from litmus_access import B, Launch, N, get, put, until, zeros


@triton.jit
def coherence_kernel(x, y, how: tl.constexpr, then: tl.constexpr, TIMES: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    for i in range(TIMES):
        if tl.program_id(0) == 0:
            put(x + o, o * 0 + i + 1, how)
        else:
            tl.store(y + 2 * i * B + o, get(x + o, how))
            tl.store(y + (2 * i + 1) * B + o, get(x + o, then))


def coherence(launch: Launch, how: str, then: str) -> bool:
    """Coherence of one place: 0 counts it up, 1 reads it 16 times (`how`, `then` in turn). Odd: it goes backwards."""
    x, y = zeros(B), zeros(16 * B)
    launch(coherence_kernel, 2, x, y, how=how, then=then, TIMES=8, B=B)
    return bool((y.view(16, B).diff(dim=0) < 0).any())


@triton.jit
def own_kernel(x, y, how: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(x + o, o * 0 + 5)
    tl.store(y + o, get(x + o, how))


def own(launch: Launch, how: str) -> bool:
    """A workgroup writes a place plainly, then reads it past the caches. Odd: it misses its own write."""
    x, y = zeros(B), zeros(B)
    launch(own_kernel, 1, x, y, how=how, B=B)
    return bool((y != 5).any())


@triton.jit
def count_kernel(c, TIMES: tl.constexpr, how: tl.constexpr):
    for _ in range(TIMES):
        if how == "atomic":
            tl.atomic_add(c, 1, sem="relaxed")
        else:
            put(c, get(c, how) + 1, how)


def count(launch: Launch, how: str) -> bool:
    """N workgroups count to 8 each. Odd: counts are lost."""
    c = zeros(1)
    launch(count_kernel, N, c, TIMES=8, how=how)
    return int(c) != 8 * N


@triton.jit
def rounds_kernel(c, generation, y, how: tl.constexpr, write: tl.constexpr, read: tl.constexpr, N: tl.constexpr):
    for r in tl.static_range(2):
        t = tl.atomic_add(c, 1, sem="relaxed")
        if (t % N if how == "modulo" else t) == N - 1:
            tl.atomic_add(y + r, 1, sem="relaxed")
            if how == "plain" or how == "atomic":
                put(c, 0, how)
            tl.atomic_add(generation, 1, sem=write)
        if r == 0:
            until(generation, 1, read)


def rounds(launch: Launch, how: str, write: str = "relaxed", read: str = "relaxed") -> bool:
    """Two rounds of N arrivals; the last of the first resets the counter, all go on. Odd: the second has no last."""
    c, generation, y = zeros(1), zeros(1), zeros(2)
    launch(rounds_kernel, N, c, generation, y, how=how, write=write, read=read, N=N)
    return y.tolist() != [1, 1]


@triton.jit
def last_kernel(c, y, N: tl.constexpr):
    if tl.atomic_add(c, 1, sem="relaxed") == N - 1:
        tl.store(y, 1)
        tl.store(c, 0)


def last(launch: Launch) -> bool:
    """The last arriver resets the counter by a plain store, for the next launch. Odd: that one has no last, or no 0."""
    c, y = zeros(1), zeros(2)
    launch(last_kernel, N, c, y[:1], N=N)
    launch(last_kernel, N, c, y[1:], N=N)
    return [int(c), *y.tolist()] != [0, 1, 1]


@triton.jit
def bytes_kernel(x, y, how: tl.constexpr, B: tl.constexpr):
    p, o = tl.program_id(0), tl.arange(0, B)
    tl.store(y + p * 2 * B + tl.arange(0, 2 * B), tl.load(x + tl.arange(0, 2 * B)))  # each has the whole line
    tl.debug_barrier()  # another wave's store must not overtake that load
    value = (o * 0 + p + 1).to(x.dtype.element_ty)
    if p == 0:
        tl.store(x + 2 * o + p, value)
    else:
        put(x + 2 * o + p, value, how)


def neighbours(launch: Launch, dtype: torch.dtype, how: str) -> bool:
    """Same line, other bytes: 0 writes the even places of a 128-byte line, 1 the odd ones. Odd: a write is lost."""
    n = 128 // dtype.itemsize
    line = torch.zeros(2 * n, dtype=dtype)
    x = line[-line.data_ptr() % 128 // dtype.itemsize :][:n]
    launch(bytes_kernel, 2, x, torch.zeros(2 * n, dtype=dtype), how=how, B=n // 2)
    return x.tolist() != [1, 2] * (n // 2)
