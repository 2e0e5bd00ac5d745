"""Launches of many workgroups on emulated gfx950: who waits for whom, what they see of one another.

docs/memory.md says what a workgroup may see; test_memory_litmus.py holds the emulator to it, two workgroups at a time.
Here is the pattern that kernels use: each workgroup leaves a part, and the last to arrive works on all of them.
And what no workgroup may do: reach past the end of its arguments, wait for ever.
"""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from launching import build, fault, run

pytestmark = pytest.mark.on("gfx950")


@triton.jit
def copy_kernel(x, y, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(y + o, tl.load(x + o))


@pytest.mark.parametrize("small", [True, False], ids=["buffer", "global"])
@pytest.mark.parametrize("access", ["load from", "store or atomic at"])
def test_out_of_bounds(access, small):
    """A tensor six elements short: the message names the first lane of the four waves that is past its end.

    There is memory there, so that an emulator that lets it pass fails this test rather than crashes.
    """
    whole, short = torch.zeros(256), torch.from_numpy(np.zeros(256, np.float32)[:250])
    x, y = (short, whole) if access == "load from" else (whole, short)
    with fault(
        f"copy_kernel: {access} {short.data_ptr() + 1000:#x} (0 bytes past the end of argument memory"
    ) as raised:
        run(copy_kernel, (1,), x, y, B=256, small=small)
    assert "(4 bytes, lane 58) is out of bounds; workgroup (0, 0, 0), wave 3," in str(raised.value)


@triton.jit
def relay_kernel(flag, y, N, B: tl.constexpr):
    """Workgroup p waits until all that come after it have run: the last to start is the first to go on."""
    p = tl.program_id(0)
    while tl.atomic_add(flag, 0, sem="acquire") != N - 1 - p:
        pass
    tl.store(y + p, tl.load(y + p + 1) + B)
    tl.debug_barrier()
    tl.atomic_add(flag, 1, sem="release")


def relay(n: int, **options) -> torch.Tensor:
    flag, y = torch.zeros(1, dtype=torch.int32), torch.zeros(n + 1, dtype=torch.int32)
    build(relay_kernel, flag, y, n, B=1).launch((n,), flag, y, n, **options)
    return y


def test_workgroups_that_wait_for_one_another():
    assert relay(8, resident=8, max_instr=3_000_000).tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_workgroups_that_wait_for_one_that_never_starts():
    """One resident workgroup at a time: the first waits for ever."""
    with fault("relay_kernel: more than 20000 instructions"):
        relay(8, resident=1, max_instr=20_000)


PARTS, B, SEEDS = 6, 256, 12


@triton.jit
def last_kernel(x, counter, y, N, sem: tl.constexpr, how: tl.constexpr, B: tl.constexpr):
    """Each workgroup leaves B values in x; the last to arrive copies all to y, and resets the counter."""
    p, o = tl.program_id(0), tl.arange(0, B)
    if how == "stale":  # every workgroup has looked at all places before
        for i in range(N):
            tl.store(y + i * B + o, tl.load(x + i * B + o))
    if how == "swap":
        tl.atomic_xchg(x + p * B + o, p * B + o, sem="relaxed")
    elif how == "through":
        tl.store(x + p * B + o, p * B + o, cache_modifier=".wt")
    else:
        tl.store(x + p * B + o, p * B + o)
    if tl.atomic_add(counter, 1, sem=sem) == N - 1:
        for i in range(N):
            if how == "swap":
                v = tl.atomic_add(x + i * B + o, 0, sem="relaxed")
            elif how == "through":
                v = tl.load(x + i * B + o, cache_modifier=".cv")
            else:
                v = tl.load(x + i * B + o)
            tl.store(y + i * B + o, v)
        tl.store(counter, 0)


def whole(sem: str, how: str, **options) -> int:
    """For how many seeds the last workgroup had all values. Odd seeds interleave the workgroups."""
    want = torch.arange(PARTS * B, dtype=torch.int32)
    x, y, counter = want.clone(), want.clone(), want[:1].clone()
    kernel = build(last_kernel, x, counter, y, PARTS, sem=sem, how=how, B=B)
    good = 0
    for seed in range(SEEDS):
        resident = PARTS if seed % 2 else 1
        x[:], y[:], counter[:] = -1, 0, 0
        kernel.launch((PARTS,), x, counter, y, PARTS, seed=seed, resident=resident, **options)
        good += torch.equal(y, want) and counter.tolist() == [0]
    return good


@pytest.mark.parametrize("how", ["plain", "stale", "swap", "through"])
def test_release_and_acquire_hand_over_everything(how):
    assert whole("acq_rel", how) == SEEDS


@pytest.mark.parametrize(
    "sem, how, at_most",
    [
        ("relaxed", "plain", 0),
        ("relaxed", "stale", 0),
        ("relaxed", "swap", SEEDS - 1),  # the counter may overtake the values, and need not
        ("relaxed", "through", SEEDS - 1),
        ("acquire", "plain", 0),  # never written back
        ("release", "stale", SEEDS - 1),  # a workgroup that began early has old lines
    ],
)
def test_less_shows(sem, how, at_most):
    assert whole(sem, how) <= at_most


def test_one_memory_would_hide_it():
    """Nothing else is wrong with the relaxed kernel, then."""
    assert whole("relaxed", "plain", caches=False) == SEEDS
