"""RoutePlan's launches: as announced, none of no tokens, and none that compiles anew."""

import pytest
import torch
import triton

from fronts import LAUNCH, MODES, check, inputs, limit, run
from vllm_k3moe.kernels import route_sort_mid, token_sort
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.shapes import K3_TP8, MoEShape


@pytest.mark.parametrize("mode", MODES)
def test_no_tokens(mode, device):
    plan = RoutePlan(K3_TP8, mode, block=32)
    front = plan(*inputs(0, K3_TP8, torch.Generator(), device))
    assert plan.launches(0) == ()
    assert front.ids.shape == front.weights.shape == (0, 16)
    assert front.sorted.num_valid_ids.tolist() == [0, 0]
    assert [t.numel() for t in front.sorted[:3]] == [0, 0, 0]
    assert front.zeroed.shape == (0, K3_TP8.latent)
    assert (front.rows is None) == (front.scales is None) == (mode == "none")


def test_without_zeroing(device, rng):
    plan = RoutePlan(MoEShape(64, 64, 32, 4, 32, 32), "none", block=16, zero=False)
    for launch in LAUNCH:
        args = inputs(limit(launch, 2), plan.shape, rng, device)
        front = run(launch, plan, *args)
        assert front.zeroed is None
        check(front, plan, *args)


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("mode", MODES)
def test_launches_are_those_announced(mode, device, rng):
    plan = RoutePlan(K3_TP8, mode, block=32)
    launched: list[object] = []
    triton.knobs.runtime.launch_enter_hook.add(launched.append)
    try:
        for m, count in ((0, 0), (1, 1), (2, 2)):
            launched.clear()
            plan(*inputs(m, K3_TP8, rng, device))
            assert len(launched) == len(plan.launches(m)) == count
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(launched.append)


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("counts", [(1, 2, 15, 16), (17, 32), (33, 48, 128), (129, 200)])
def test_tokens_are_no_specialisation_key(counts, device, rng):
    """Within a bucket the first batch compiles all."""
    plan = RoutePlan(MoEShape(64, 64, 32, 4, 32, 32), "mxfp8", block=16)
    kernels = route_sort_mid._route_quantise, token_sort._sort_by_token

    def compiled() -> int:
        return sum(len(cache[0]) for kernel in kernels for cache in kernel.device_caches.values())

    run("two", plan, *inputs(counts[0], plan.shape, rng, device))
    before = compiled()
    for m in counts[1:]:
        run("two", plan, *inputs(m, plan.shape, rng, device))
    assert compiled() == before
