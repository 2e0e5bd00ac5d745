"""RoutePlan's launches: as announced, none of no tokens, and none that compiles anew."""

import pytest
import torch
import triton

from fronts import LAUNCH, MODES, check, inputs, run
from vllm_k3moe.kernels import moe_sort as moe_sort_module
from vllm_k3moe.kernels import route_sort as route_sort_module
from vllm_k3moe.kernels import route_sort_mid as route_sort_mid_module
from vllm_k3moe.kernels import token_sort as token_sort_module
from vllm_k3moe.plan import ONE_LAUNCH_TOKENS, TOKEN_SORT_TOKENS, RoutePlan
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
    args = inputs(2, plan.shape, rng, device)
    for launch in LAUNCH:
        front = run(launch, plan, *args)
        assert front.zeroed is None
        check(front, plan, *args)


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("mode", MODES)
def test_launches_are_those_announced(mode, device, rng):
    plan, one = RoutePlan(K3_TP8, mode, block=32), ONE_LAUNCH_TOKENS[mode]
    launched: list[object] = []
    triton.knobs.runtime.launch_enter_hook.add(launched.append)
    try:
        for m, count in ((0, 0), (1, 1), (one, 1), (one + 1, 2)):
            launched.clear()
            plan(*inputs(m, K3_TP8, rng, device))
            assert len(launched) == len(plan.launches(m)) == count
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(launched.append)


def test_one_launch_stops_where_its_kernel_would_spill():
    wide = RoutePlan(MoEShape(64, 64, 1024, 32, 32, 32), "none", block=16)
    assert [route_sort_module.serves(m, 32) for m in (0, 1, 4, 5, 8, 9)] == [False, True, True, False, False, False]
    assert wide.launches(ONE_LAUNCH_TOKENS["none"]) == ("route_sort",)


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize(
    "launch, counts",
    [
        ("one", (3, 4)), ("two", (1, 2, 16, 17, 32)), ("two", (33, 48, 128)), ("two", (129, 200)),
        ("token", (1, 2, 16, 17, 32)), ("token", (33, 48, 128)),
    ],
)  # fmt: skip
def test_tokens_are_no_specialisation_key(launch, counts, device, rng):
    """Within a bucket (1, 2, 4, 8 tokens of one launch; 32, 128 and 512 of two) the first batch compiles all."""
    plan = RoutePlan(MoEShape(64, 64, 32, 4, 32, 32), "mxfp8", block=16)
    kernels = (
        route_sort_module._route_sort, route_sort_mid_module._route_quantise, moe_sort_module._sort,
        token_sort_module._sort_by_token,
    )  # fmt: skip

    def compiled() -> int:
        return sum(len(cache[0]) for kernel in kernels for cache in kernel.device_caches.values())

    run(launch, plan, *inputs(counts[0], plan.shape, rng, device))
    before = compiled()
    for m in counts[1:]:
        run(launch, plan, *inputs(m, plan.shape, rng, device))
    assert compiled() == before


@pytest.mark.parametrize("block", TOKEN_SORT_TOKENS)
def test_sort_of_each_batch(block):
    plan, most = RoutePlan(K3_TP8, "none", block), TOKEN_SORT_TOKENS[block]
    assert token_sort_module.serves(most)
    assert [plan.launches(m)[1] for m in (3, most, most + 1, 512)] == ["sort_by_token"] * 2 + ["sort"] * 2
