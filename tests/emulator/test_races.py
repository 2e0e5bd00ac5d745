"""Races inside a workgroup: two waves at one byte between the same two barriers, one of them writing."""

import pytest
import torch
import triton
import triton.language as tl

from launching import fault

pytestmark = pytest.mark.on("gfx950")
N = 256  # four waves, an element for each lane


@triton.jit
def hand_over_kernel(x, y, BARRIER: tl.constexpr, N: tl.constexpr):
    """Through memory: each lane stores, and reads what the lane 64 further on has stored."""
    o = tl.arange(0, N)
    tl.store(x + o, o)
    if BARRIER:
        tl.debug_barrier()
    tl.store(y + o, tl.load(x + (o + 64) % N))


@triton.jit
def overwrite_kernel(x, y, BARRIER: tl.constexpr, N: tl.constexpr):
    """Each lane reads what another one then overwrites."""
    o = tl.arange(0, N)
    v = tl.load(x + (o + 64) % N)
    tl.store(y + o, v)
    if BARRIER:
        tl.debug_barrier()
    tl.store(x + o, o + 1)


@triton.jit
def same_place_kernel(x, y, SAME: tl.constexpr, N: tl.constexpr):
    """All waves store to the same 64 places: the same values, or each its own."""
    o = tl.arange(0, N)
    tl.store(x + o % 64, o % 64 if SAME else o)
    tl.store(y + o, o)


@triton.jit
def atomic_kernel(x, y, PLAIN: tl.constexpr, N: tl.constexpr):
    """All waves count in the same 64 places; then, perhaps, read them plainly."""
    o = tl.arange(0, N)
    tl.atomic_add(x + o % 64, 1, sem="relaxed")
    if PLAIN:
        tl.store(y + o, tl.load(x + (o + 64) % N % 64))


def launch(kernel, **constants):
    x, y = torch.zeros(N, dtype=torch.int32), torch.zeros(N, dtype=torch.int32)
    kernel[(1,)](x, y, **constants, N=N, num_warps=4)
    return y


def test_what_another_wave_stored_needs_a_barrier():
    assert launch(hand_over_kernel, BARRIER=True).tolist() == [(i + 64) % N for i in range(N)]
    with fault("race inside a workgroup: workgroup (0, 0, 0), memory byte"):
        launch(hand_over_kernel, BARRIER=False)


def test_what_another_wave_has_yet_to_read_needs_a_barrier():
    launch(overwrite_kernel, BARRIER=True)
    with fault("reads it at"):
        launch(overwrite_kernel, BARRIER=False)


def test_copies_of_one_value_are_no_race():
    launch(same_place_kernel, SAME=True)
    with fault("writes it at"):
        launch(same_place_kernel, SAME=False)


def test_atomics_race_with_plain_accesses_only():
    launch(atomic_kernel, PLAIN=False)
    with fault("changes atomically it at"):
        launch(atomic_kernel, PLAIN=True)


def test_both_instructions_are_named():
    with fault("buffer_store_dword"):
        launch(hand_over_kernel, BARRIER=False)


@triton.jit
def reduce_kernel(x, y, BARRIER: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(y + o, tl.sum(tl.load(x + o)) + tl.cumsum(tl.load(x + o), 0))


def test_lds_without_its_barriers(pytestconfig):
    """A reduction across waves, its `s_barrier`s made `s_nop`s: Triton's own barriers are all there, and needed."""
    from gfx950emu import compile, load

    signature = {"x": "*i32", "y": "*i32"}
    kernel = load(compile(reduce_kernel, signature, {"N": N, "BARRIER": True}, aligned=("x", "y"), num_warps=4))
    x, y = torch.ones(N, dtype=torch.int32), torch.zeros(N, dtype=torch.int32)
    kernel.launch((1,), x, y)
    assert y.tolist() == [N + i + 1 for i in range(N)]
    machine_code = bytes(compile(reduce_kernel, signature, {"N": N, "BARRIER": True}, aligned=("x", "y")).asm["hsaco"])
    s_barrier, s_nop = bytes.fromhex("00008abf"), bytes.fromhex("000080bf")
    assert machine_code.count(s_barrier) > 0
    broken = load(machine_code.replace(s_barrier, s_nop), num_warps=4, shared=kernel.shared, signature=["*i32", "*i32"])
    with fault("LDS byte"):
        broken.launch((1,), x, y)


def test_off():
    from gfx950emu import compile, load

    kernel = load(compile(hand_over_kernel, {"x": "*i32", "y": "*i32"}, {"N": N, "BARRIER": False}, num_warps=4))
    x, y = torch.zeros(N, dtype=torch.int32), torch.zeros(N, dtype=torch.int32)
    kernel.launch((1,), x, y, races=False)
