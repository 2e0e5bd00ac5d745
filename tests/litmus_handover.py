"""Litmus programs in which workgroups hand over data by a flag or a counter: see litmus.py.

Each function runs its program for one seed and says whether the *odd* outcome came about: the one that a reader who
thinks of one memory would rule out.
"""

import torch
import triton
import triton.language as tl

from litmus_access import LOOKS, B, Launch, N, get, put, until, zeros


@triton.jit
def message_kernel(
    x,
    flag,
    ticket,
    y,
    FIRST,
    how: tl.constexpr,
    write: tl.constexpr,
    read: tl.constexpr,
    LOOKS: tl.constexpr,
    B: tl.constexpr,
):
    o = tl.arange(0, B)
    if tl.program_id(0) + FIRST == 0:
        put(x + o, o + 1, how)
        tl.store(ticket, tl.atomic_add(flag, 1, sem=write))  # who uses the result waits for it only afterwards
    else:
        for i in range(LOOKS):
            if i == LOOKS - 1:
                until(flag, 1, read)
            tl.store(y + 2 * i * B + o, tl.atomic_add(flag + o * 0, 0, sem=read))  # each wave on its own
            tl.store(y + (2 * i + 1) * B + o, get(x + o, how))


def message(launch: Launch, how: str, write: str, read: str) -> bool:
    """Message passing: workgroup 0 writes, then raises the flag; 1 sees it, then reads. Odd: it reads old values."""
    return _message(launch, [0], how, write, read)


def launches(launch: Launch) -> bool:
    """The same in two launches, plain and relaxed."""
    return _message(launch, [0, 1], "plain", "relaxed", "relaxed")


def _message(launch: Launch, firsts: list[int], how: str, write: str, read: str) -> bool:
    x, flag, ticket, y = zeros(B), zeros(1), zeros(1), zeros(LOOKS * 2 * B)
    for first in firsts:
        launch(
            message_kernel,
            2 // len(firsts),
            x,
            flag,
            ticket,
            y,
            first,
            how=how,
            write=write,
            read=read,
            LOOKS=LOOKS,
            B=B,
        )
    flags, values = y.view(LOOKS, 2, B).unbind(1)
    assert flags[-1].all()
    return bool(((flags == 1) & (values != torch.arange(1, B + 1))).any())


@triton.jit
def buffering_kernel(x, c, y, how: tl.constexpr, sem: tl.constexpr, B: tl.constexpr):
    p, o = tl.program_id(0), tl.arange(0, B)
    tl.store(y + (2 + p) * B + o, get(x + (1 - p) * B + o, how))
    put(x + p * B + o, o * 0 + 1, how)
    if sem != "none":
        tl.atomic_add(c, 1, sem=sem)
    tl.store(y + p * B + o, get(x + (1 - p) * B + o, how))


def buffering(launch: Launch, how: str, sem: str) -> bool:
    """Store buffering: both write their own place, then read the other's. Odd: neither sees the other's write."""
    x, c, y = zeros(2 * B), zeros(1), zeros(4 * B)
    launch(buffering_kernel, 2, x, c, y, how=how, sem=sem, B=B)
    return bool(((y[:B] == 0) & (y[B : 2 * B] == 0)).any())


@triton.jit
def sequence_kernel(x, flag, y, write: tl.constexpr, middle: tl.constexpr, B: tl.constexpr):
    p, o = tl.program_id(0), tl.arange(0, B)
    if p == 0:
        tl.store(x + o, o * 0 + 1)
        tl.atomic_xchg(flag, 1, sem=write)
    elif p == 1:
        tl.store(x + B + o, o * 0 + 1)
        until(flag, 1, "relaxed")
        if middle == "store":
            tl.store(flag, 2, cache_modifier=".wt")
        else:
            tl.atomic_add(flag, 1, sem=middle)
    else:
        tl.store(y + 2 * B + o, tl.load(x + o) + tl.load(x + B + o))
        until(flag, 2, "acquire")
        tl.store(y + o, tl.load(x + o))
        tl.store(y + B + o, tl.load(x + B + o))


def sequence(launch: Launch, write: str, middle: str, whose: str) -> bool:
    """Release sequence: 0 writes, flag = 1; 1 writes, makes the flag 2; 2 acquires that and reads. Odd: old values."""
    x, flag, y = zeros(2 * B), zeros(1), zeros(3 * B)
    launch(sequence_kernel, 3, x, flag, y, write=write, middle=middle, B=B)
    return bool((y[:B] if whose == "head" else y[B : 2 * B]).eq(0).any())


@triton.jit
def zeroing_kernel(
    x, flag, ticket, y, how: tl.constexpr, write: tl.constexpr, read: tl.constexpr, LOOKS: tl.constexpr, B: tl.constexpr
):
    p, o = tl.program_id(0), tl.arange(0, B)
    if p == 0:
        put(x + o, o * 0, how)
        tl.store(ticket, tl.atomic_add(flag, 1, sem=write))
    else:
        total = o * 0
        for i in range(LOOKS):
            if i == LOOKS - 1:
                until(flag, 1, read)
            seen = tl.atomic_add(flag + o * 0, 0, sem=read)
            tl.atomic_add(x + o, seen, sem="relaxed")
            total += seen
        tl.store(y + p * B + o, total)


def zeroing(launch: Launch, how: str, write: str, read: str) -> bool:
    """0 zeroes a buffer, then raises the flag; the others, once they see it, add 1 atomically. Odd: a sum is wrong."""
    x, y = torch.full((B,), 7, dtype=torch.int32), zeros((N + 1) * B)
    launch(zeroing_kernel, N + 1, x, zeros(1), zeros(1), y, how=how, write=write, read=read, LOOKS=LOOKS, B=B)
    return bool((x != y.view(N + 1, B).sum(0)).any())
