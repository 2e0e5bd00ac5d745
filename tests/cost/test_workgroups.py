"""The counts, on a planted kernel whose workgroups differ: none of the served ones has an atomic to count."""

import pytest
import torch
import triton
import triton.language as tl

import gfx950emu
from cost.workgroups import counts  # type: ignore[import-not-found]

pytestmark = pytest.mark.on("gfx950")


@triton.jit
def _planted(x, SEM: tl.constexpr):
    for _ in range(tl.program_id(0)):  # workgroup 0 executes least, the last one most
        tl.atomic_add(x, 1, sem=SEM)


@pytest.mark.parametrize("sem, cache_ops_each", [("relaxed", 0), ("acq_rel", 2)])
def test_planted_workgroups(sem, cache_ops_each):
    x = torch.zeros(1, dtype=torch.int32)
    compiled = _planted.warmup(x, SEM=sem, num_warps=1, grid=(4,))
    kernel, launches = gfx950emu.load(compiled), {}
    for grid in (1, 2, 4, 4):
        launches[grid] = counts("_planted", kernel, kernel.launch((grid,), x))
    assert [launch.workgroups for launch in launches.values()] == [1, 2, 4]
    assert launches[4].kernel == "planted" and launches[4].waves == 1
    assert launches[4].atomics == 0 + 1 + 2 + 3 and launches[4].cache_ops == cache_ops_each * 6
    assert launches[1].instructions == launches[1].instructions_largest_workgroup
    second = launches[2].instructions - launches[1].instructions
    assert launches[2].instructions_largest_workgroup == second
    assert launches[4].instructions_largest_workgroup > second
    assert x.item() == 0 + 1 + 6 + 6
