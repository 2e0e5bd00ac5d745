"""Atomics of Triton kernels on emulated gfx950: memory afterwards, and the value that each lane gets back."""

import pytest
import torch
import triton
import triton.language as tl

from launching import exact, run

pytestmark = pytest.mark.on("gfx950")
BUFFER_OR_GLOBAL = pytest.mark.parametrize("small", [True, False], ids=["buffer", "global"])


@triton.jit
def count_kernel(x, counts, places, latest, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    bucket = tl.load(x + o, mask=o < n, other=0)
    tl.store(places + o, tl.atomic_add(counts + bucket, 1, mask=o < n), mask=o < n)
    tl.atomic_max(latest + (bucket & 7), o, mask=o < n)


@BUFFER_OR_GLOBAL
def test_integers(small, rng):
    """Lanes of one instruction meet in a bucket, and workgroups do: each must get another old value."""
    n, buckets = 900, 64
    x = torch.randint(0, buckets, (n,), generator=rng)
    counts = torch.zeros(buckets, dtype=torch.int32)
    places, latest = torch.full((n,), -1, dtype=torch.int32), torch.full((8,), -5, dtype=torch.int32)
    run(count_kernel, (4,), x.int(), counts, places, latest, n, small=small, B=256)
    want = torch.bincount(x, minlength=buckets)
    exact(counts, want.int())
    for bucket in range(buckets):
        exact(places[x == bucket].sort().values, torch.arange(int(want[bucket]), dtype=torch.int32))
    assert latest.tolist() == [int((x & 7).eq(j).nonzero().max()) for j in range(8)]


@triton.jit
def sum_kernel(x, sums, once, old, n, B: tl.constexpr):
    p = tl.program_id(0)
    o = p * B + tl.arange(0, B)
    v = tl.load(x + o, mask=o < n, other=0)
    tl.atomic_add(sums + o % 16, v, mask=o < n)
    tl.atomic_add(sums + 16, tl.sum(v, 0))
    tl.store(old + p, tl.atomic_cas(once, 0, 5 + p))


@BUFFER_OR_GLOBAL
def test_floats_and_compare_and_swap(small, rng):
    """Small integers, so that sums are exact in any order. Of two that swap, the second finds the first's value."""
    n = 500
    x, sums = torch.randint(-8, 8, (n,), generator=rng).float(), torch.zeros(17)
    once, old = torch.zeros(1, dtype=torch.int32), torch.full((2,), -1, dtype=torch.int32)
    run(sum_kernel, (2,), x, sums, once, old, n, small=small, B=256)
    exact(sums, torch.stack([*(x[j::16].sum() for j in range(16)), x.sum()]))
    first = old.tolist().index(0)
    assert once.tolist() == [5 + first]
    assert old[1 - first] == once


@triton.jit
def bf16_kernel(x, sums, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.atomic_add(sums + o, tl.load(x + o))
    tl.atomic_add(sums + o, tl.load(x + o), mask=o < B // 2)


def test_bf16(rng):
    """Memory knows pairs of bf16 only: both halves of each, then a masked part."""
    B = 256
    x, sums = torch.randint(-8, 8, (B,), generator=rng).bfloat16(), torch.zeros(B, dtype=torch.bfloat16)
    run(bf16_kernel, (1,), x, sums, B=B)
    exact(sums, x * torch.tensor([2.0, 1.0]).repeat_interleave(B // 2).bfloat16())
