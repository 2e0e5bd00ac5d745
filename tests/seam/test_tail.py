"""The latent tail in vLLM's runner: ours beside stock's on the weights of a layer, and when it stays vLLM's.

One process plays rank 5 of 8: on a group of one the all-reduces change nothing. Two ranks: test_two_ranks.py.
"""

import pytest
import torch

from vllm_k3moe import runner as runners
from vllm_k3moe.counters import CALLS
from vllm_k3moe.envs import PARTS, read
from vllm_k3moe.parts import fusible
from vllm_k3moe.shapes import K3_TP8

pytestmark = pytest.mark.on("gfx950")
RANKS, RANK = 8, 5
SHARD = K3_TP8.hidden // RANKS
OWN = slice(RANK * SHARD, (RANK + 1) * SHARD)
U = 2.0**-8  # unit roundoff of bf16


@pytest.fixture
def runner(layer, environment, monkeypatch):
    """The layer's runner as one of eight, its tail prepared."""
    from vllm.models.kimi_k3.amd import latent_moe_runner as stock

    found = layer.runner
    monkeypatch.setattr(found, "_tail_shardable", True)
    monkeypatch.setattr(found, "_up_proj_shard_size", SHARD)
    monkeypatch.setattr(found, "_k3_settings", read())
    monkeypatch.setattr(found, "_k3_reasons", [])
    monkeypatch.setattr(found, "_k3_parts", frozenset(PARTS))
    for module in (stock, runners):
        monkeypatch.setattr(module, "get_tensor_model_parallel_rank", lambda: RANK)
    CALLS.tail_fused = 0
    CALLS.tail_fallback.clear()
    return found


@pytest.fixture
def prepare(runner, monkeypatch):
    """What the first call decides of the tail; no compiling, no canary."""
    monkeypatch.setattr(runners, "warm_up", lambda *arguments: 0)
    monkeypatch.setattr(runner, "_k3_canary", False)

    def run() -> bool:
        monkeypatch.setattr(runner, "_k3_settings", read())
        monkeypatch.setattr(runner, "_k3_method", None)
        runner._k3_prepare()
        assert runner._k3_reasons == []
        return "tail" in runner._k3_parts

    return run


def partials(m: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(m)
    latent, shared = torch.randn(m, K3_TP8.latent, generator=rng) * 3, torch.randn(m, K3_TP8.hidden, generator=rng)
    return latent.to(torch.bfloat16), shared.to(torch.bfloat16)


@torch.no_grad()
def stock_tail(runner, latent: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
    return super(runners.K3LatentMoERunner, runner)._shard_up_proj_tail(latent, shared.clone(), None)


def assert_is_the_tail(got: torch.Tensor, runner, latent: torch.Tensor, shared: torch.Tensor) -> None:
    """Within the rounding of both ways in this rank's columns; all others as they were."""
    want, norm = stock_tail(runner, latent, shared).double(), runner.routed_output_transform.norm
    n = latent.double() * torch.rsqrt(latent.double().square().mean(1, keepdim=True) + norm.variance_epsilon)
    sums = (n * norm.weight.double()).abs() @ runner.routed_output_transform.up_proj.weight[OWN].double().abs().T
    excess = (got.double() - want).abs()
    others = torch.ones(K3_TP8.hidden, dtype=torch.bool)
    others[OWN] = False
    assert torch.equal(got[:, others], shared[:, others])
    assert float((excess[:, OWN] - 1.02 * U * (2 * want[:, OWN].abs() + 3 * sums)).max()) <= 0
    assert not torch.equal(got[:, OWN], shared[:, OWN])


@pytest.mark.parametrize("m", [1, 5, 17])
@torch.no_grad()
def test_ours_is_stocks(runner, m):
    latent, shared = partials(m)
    given = shared.clone()
    got = runner._shard_up_proj_tail(latent, given, None)
    assert got is given  # in place, as stock
    assert (CALLS.tail_fused, dict(CALLS.tail_fallback)) == (1, {})
    assert_is_the_tail(got, runner, latent, shared)


@torch.no_grad()
def test_of_a_sharded_weight(runner, monkeypatch):
    """At TP8 vLLM holds this rank's rows alone."""
    latent, shared = partials(3)
    want = runner._shard_up_proj_tail(latent, shared.clone(), None)
    up_proj = runner.routed_output_transform.up_proj
    monkeypatch.setattr(up_proj.weight, "data", up_proj.weight.data[OWN].clone())
    monkeypatch.setattr(runner, "_up_proj_preshard", True)
    assert torch.equal(runner._shard_up_proj_tail(latent, shared.clone(), None), want)
    assert CALLS.tail_fused == 2


@pytest.mark.parametrize(
    "m, change, reason",
    [
        (65, lambda latent, shared: (latent, shared), "tail: more than 64 tokens"),
        (2, lambda latent, shared: (latent, shared.float()), "tail: out has dtype float32; accepted: bfloat16"),
        (2, lambda latent, shared: (latent.float(), shared), "tail: y has dtype float32; accepted: bfloat16"),
    ],
)
def test_a_batch_that_is_not_served_is_stocks(runner, monkeypatch, m, change, reason):
    monkeypatch.setattr(
        runners.ROCmLatentMoERunner, "_shard_up_proj_tail", lambda self, latent, shared, size: ("stock", size)
    )
    assert runner._shard_up_proj_tail(*change(*partials(m)), 7) == ("stock", 7)
    assert (CALLS.tail_fused, dict(CALLS.tail_fallback)) == (0, {reason: 1})


@torch.no_grad()
def test_a_layer_on_vllms_path_has_vllms_tail(runner, monkeypatch):
    monkeypatch.setattr(runner, "_k3_reasons", ["a reason"])
    latent, shared = partials(2)
    assert torch.equal(runner._shard_up_proj_tail(latent, shared.clone(), None), stock_tail(runner, latent, shared))
    assert CALLS.tail_fused == 0


@torch.no_grad()
def test_a_tail_that_cannot_be_read_is_vllms(runner, monkeypatch):
    """Another vLLM might name its parts otherwise."""
    monkeypatch.setattr(runners.ROCmLatentMoERunner, "_shard_up_proj_tail", lambda *arguments: "stock")
    monkeypatch.delattr(runner, "_up_proj_shard_size")
    assert runner._shard_up_proj_tail(*partials(1), None) == "stock"
    assert "tail" not in runner._k3_parts
    [(reason, count)] = CALLS.tail_fallback.items()
    assert reason.startswith("tail: failed in serving: AttributeError") and count == 1


@torch.no_grad()
def test_a_reason_but_for_the_size_is_logged(runner, monkeypatch, caplog):
    from vllm.logger import _print_warning_once

    _print_warning_once.cache_clear()
    monkeypatch.setattr(runners.ROCmLatentMoERunner, "_shard_up_proj_tail", lambda *arguments: "stock")
    latent, shared = partials(65)
    runner._shard_up_proj_tail(latent, shared, None)
    assert "tail" not in caplog.text
    runner._shard_up_proj_tail(latent[:1].float(), shared[:1], None)
    assert "tail: y has dtype float32; accepted: bfloat16" in caplog.text


@pytest.mark.parametrize("mode", ["auto", "strict"])
@torch.no_grad()
def test_a_launch_that_raises_has_no_second_way(runner, environment, monkeypatch, mode):
    """It adds in place, and may have run: stock's two steps after it would add twice."""
    environment.setenv("K3MOE", mode)
    monkeypatch.setattr(runner, "_k3_settings", read())

    def run_and_raise(self, latent, shared):
        launch(self, latent, shared)
        raise RuntimeError("hipErrorLaunchFailure")

    launch = runners.LatentTail.launch
    monkeypatch.setattr(runners.LatentTail, "launch", run_and_raise)
    with pytest.raises(RuntimeError, match="hipErrorLaunchFailure"):
        runner._shard_up_proj_tail(*partials(2), None)
    assert CALLS.tail_fused == 0


@pytest.mark.parametrize("fuse, fused", [("", True), ("tail", True), ("route,sort", False), ("none", False)])
def test_the_switch(prepare, environment, fuse, fused):
    environment.setenv("K3MOE_FUSE", fuse)
    assert prepare() is fused


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda w: w.float(), "latent tail: up has dtype float32; accepted: bfloat16"),
        (lambda w: w[:, :3000].contiguous(), "latent tail: L=3000 columns of up; accepted: a multiple of 512"),
    ],
)
def test_a_weight_that_is_never_served_is_said_at_the_first_call(runner, monkeypatch, change, reason):
    weight = runner.routed_output_transform.up_proj.weight
    monkeypatch.setattr(weight, "data", change(weight.data))
    parts, [other] = fusible(runner, PARTS)
    assert "tail" not in parts and other == f"tail is vLLM's: {reason}"


def test_a_quantised_up_projection_keeps_vllms_tail_alone(prepare, runner, monkeypatch):
    monkeypatch.setattr(runner.routed_output_transform.up_proj, "quant_method", object())
    assert prepare() is False


def test_a_layer_whose_tail_is_not_sharded(prepare, runner, monkeypatch):
    monkeypatch.setattr(runner, "_tail_shardable", False)
    assert prepare() is False


def test_warm_up_compiles_every_specialisation(prepare, runner, monkeypatch):
    """What it launches covers every batch."""
    from vllm_k3moe import tail
    from vllm_k3moe.kernels import latent_tail as kernel

    seen = []
    monkeypatch.setattr(runners, "warm_up", lambda *arguments: seen.append(arguments[-1]))
    assert prepare() and "tail" in seen[0]
    for cache in kernel._latent_tail.device_caches.values():
        cache[0].clear()  # what other tests compiled
    tail.warm_up(K3_TP8.latent, torch.device("cpu"))
    warm = compiled(kernel._latent_tail)
    for m in (1, 2, 16, 17, 32, 33, 64):
        latent, shared = partials(m)
        own = tail.of_layer(runner.routed_output_transform, RANK, SHARD)
        assert own.reasons(latent, shared) == []
        own.launch(latent, shared)
    assert compiled(kernel._latent_tail) == warm


def compiled(kernel) -> int:
    return sum(len(cache[0]) for cache in kernel.device_caches.values())
