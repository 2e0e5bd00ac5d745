"""The shared expert in vLLM's runner: in the sort's launches up to 128 tokens, vLLM's own beyond; gate_up runs once."""

from collections import Counter
from typing import Any

import pytest
import torch
import triton

from vllm_k3moe import runner as runners
from vllm_k3moe.counters import CALLS
from vllm_k3moe.envs import PARTS, read
from vllm_k3moe.kernels.shared_expert import shared_expert
from vllm_k3moe.parts import fusible
from vllm_k3moe.shapes import K3_TP8, SITU_BETA, SITU_LINEAR_BETA

pytestmark = pytest.mark.on("gfx950")
BF16 = 0.006  # SiTU and the product are rounded to bf16 once each, on both sides


@pytest.fixture
def runner(layer, environment, monkeypatch):
    """The layer's runner, prepared; its expert GEMMs leave the zeroed output as it is."""
    found = layer.runner
    monkeypatch.setattr(runners, "warm_up", lambda *arguments: 0)
    monkeypatch.setattr(found, "_k3_canary", False)
    monkeypatch.setattr(found, "_k3_method", None)
    monkeypatch.setattr(found, "_k3_parts", frozenset())
    monkeypatch.setattr(found, "_k3_reasons", [])
    prepare(found, monkeypatch)
    monkeypatch.setattr(type(found._k3_method.experts), "run", lambda self, rows, sorted, out: out)
    CALLS.fused = CALLS.shared_fused = 0
    CALLS.fallback.clear()
    CALLS.shared_fallback.clear()
    return found


def prepare(runner: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(runner, "_k3_settings", read())
    runner._k3_prepare()
    assert runner._k3_reasons == []


@pytest.fixture
def ran(runner, monkeypatch) -> Counter[str]:
    """How often each of the shared expert's modules was called in this test."""
    count: Counter[str] = Counter()
    mlp = runner._shared_experts._layer
    for name in ("gate_up_proj", "act_fn", "down_proj"):
        module = getattr(mlp, name)
        monkeypatch.setattr(module, "forward", counting(count, name, module.forward))
    return count


def counting(count: Counter[str], name: str, forward: Any) -> Any:
    def run(*arguments: Any) -> Any:
        count[name] += 1
        return forward(*arguments)

    return run


def batch(m: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Latent x, logits and the shared experts' input."""
    rng = torch.Generator().manual_seed(m)
    x, hidden = (torch.randn(m, n, generator=rng).to(torch.bfloat16) for n in (K3_TP8.latent, K3_TP8.hidden))
    return x, torch.randn(m, K3_TP8.experts, generator=rng), hidden


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.float() - want.float()).norm() / want.float().norm())


@pytest.mark.parametrize("m", [1, 8, 33])
@torch.no_grad()
def test_the_sort_takes_it_along(runner, ran, m):
    x, logits, hidden = batch(m)
    want, alone = runner._shared_experts._layer(hidden), runner._k3_method(x, logits)
    ran.clear()
    names: list[str] = []

    def note(metadata: Any) -> None:
        names.append(metadata.get()["name"])

    triton.knobs.runtime.launch_enter_hook.add(note)
    try:
        shared, routed = runner._forward_impl(x, logits, hidden)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(note)
    assert names == (["_route_sort"] if m == 1 else ["_route_quantise", "_sort_by_token"])
    assert ran == {"gate_up_proj": 1}
    assert error(shared, want) < BF16
    assert torch.equal(routed, alone)
    assert (CALLS.fused, CALLS.shared_fused, dict(CALLS.fallback)) == (1, 1, {})


@pytest.mark.parametrize("aside", [False, True])
@torch.no_grad()
def test_beyond_128_tokens_it_is_vllms(runner, ran, monkeypatch, aside):
    """On vLLM's side stream or before the routed experts: once, and its output is what is returned."""
    x, logits, hidden = batch(257)
    want, shared = runner._shared_experts._layer(hidden), runner._shared_experts
    waited = []

    def start(given: torch.Tensor) -> bool:
        shared._output[0] = shared._layer(given)
        return True

    if aside:
        monkeypatch.setattr(shared, "maybe_forward_async", start)
        monkeypatch.setattr(shared, "_determine_shared_experts_order", lambda given: None)
        monkeypatch.setattr(shared, "wait", lambda: waited.append(True))
    ran.clear()
    got, _ = runner._forward_impl(x, logits, hidden)
    assert torch.equal(got, want)
    assert ran == {"gate_up_proj": 1, "act_fn": 1, "down_proj": 1}
    assert (CALLS.fused, CALLS.shared_fused, len(waited)) == (1, 0, aside)


@torch.no_grad()
def test_a_fault_in_serving_is_vllms_activation_and_down(runner, ran, monkeypatch, caplog):
    """On the same gate_up; from then on all of the layer is vLLM's."""
    x, logits, hidden = batch(2)
    want = runner._shared_experts._layer(hidden)
    monkeypatch.setattr(type(runner._k3_method), "__call__", lambda *arguments: 1 / 0)
    monkeypatch.setattr(runner.routed_experts, "forward_modular", lambda **named: named["topk_ids"])
    ran.clear()
    shared, routed = runner._forward_impl(x, logits, hidden)
    assert ran == {"gate_up_proj": 1, "act_fn": 1, "down_proj": 1}
    assert torch.equal(shared, want) and routed.shape == (2, K3_TP8.topk)
    assert (CALLS.fused, CALLS.shared_fused) == (0, 0)
    assert runner._k3_reasons == ["failed in serving: ZeroDivisionError: division by zero"]
    assert "division by zero" in caplog.text


@pytest.mark.parametrize("mode", ["auto", "strict"])
@torch.no_grad()
def test_a_batch_that_is_not_served_is_vllms_alone(runner, ran, environment, monkeypatch, caplog, mode):
    """Its shared expert, not its routed ones, and not the next batch."""
    from vllm.logger import _print_warning_once

    _print_warning_once.cache_clear()
    environment.setenv("K3MOE", mode)
    monkeypatch.setattr(runner, "_k3_settings", read())
    x, logits, hidden = batch(2)
    weight, want = runner._shared_experts._layer.down_proj.weight, runner._shared_experts._layer(hidden)
    ran.clear()
    with monkeypatch.context() as moved:
        padded = torch.nn.functional.pad(weight.data, (0, 8))[:, : K3_TP8.shared_inter]
        moved.setattr(weight, "data", padded)
        shared, _ = runner._forward_impl(x, logits, hidden)
    assert torch.equal(shared, want) and ran == {"gate_up_proj": 1, "act_fn": 1, "down_proj": 1}
    [(reason, count)] = CALLS.shared_fallback.items()
    assert reason.startswith("shared: weight has strides (776, 1); accepted: contiguous") and count == 1
    assert (CALLS.fused, CALLS.shared_fused, runner._k3_reasons) == (1, 0, [])
    assert reason in caplog.text
    runner._forward_impl(x, logits, hidden)
    assert (CALLS.fused, CALLS.shared_fused) == (2, 1)


@torch.no_grad()
def test_as_many_tokens_as_the_routed_experts_have(runner, ran):
    """Sequence parallelism would hand the two different ones."""
    x, logits, hidden = batch(3)
    want = runner._shared_experts._layer(hidden[:2])
    shared, routed = runner._forward_impl(x, logits, hidden[:2])
    assert torch.equal(shared, want) and len(routed) == 3
    assert dict(CALLS.shared_fallback) == {"shared: 2 tokens beside 3 routed ones": 1}


@torch.no_grad()
def test_a_fault_of_vllms_own_experts_is_not_ours(runner, environment, monkeypatch):
    """K3MOE_FUSE=shared: they run once, and what they raise is raised."""
    environment.setenv("K3MOE_FUSE", "shared")
    prepare(runner, monkeypatch)
    calls = []

    def broken(**named):
        calls.append(named)
        raise ZeroDivisionError

    monkeypatch.setattr(runner.routed_experts, "forward_modular", broken)
    with pytest.raises(ZeroDivisionError):
        runner._forward_impl(*batch(2))
    assert len(calls) == 1 and runner._k3_reasons == []


def test_strict_raises_a_fault_in_serving(runner, environment, monkeypatch):
    environment.setenv("K3MOE", "strict")
    monkeypatch.setattr(runner, "_k3_settings", read())
    monkeypatch.setattr(type(runner._k3_method), "__call__", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runner._forward_impl(*batch(1))


@pytest.mark.parametrize(
    "fuse, calls, fused, shared_fused",
    [
        ("route,sort,shared", {"gate_up_proj": 1}, 1, 1),
        ("route,sort", {"gate_up_proj": 1, "act_fn": 1, "down_proj": 1}, 1, 0),
        ("shared", {"gate_up_proj": 1}, 0, 1),
    ],
)
@torch.no_grad()
def test_the_switch(runner, ran, environment, monkeypatch, fuse, calls, fused, shared_fused):
    environment.setenv("K3MOE_FUSE", fuse)
    prepare(runner, monkeypatch)
    monkeypatch.setattr(runner.routed_experts, "forward_modular", lambda **named: named["topk_ids"])
    x, logits, hidden = batch(3)
    want = runner._shared_experts._layer(hidden)
    ran.clear()
    shared, _ = runner._forward_impl(x, logits, hidden)
    assert ran == calls and error(shared, want) < BF16
    assert (CALLS.fused, CALLS.shared_fused) == (fused, shared_fused)


@pytest.mark.parametrize("fuse", ["none", "tail"])
def test_without_any_part_of_it_the_call_is_vllms(runner, environment, monkeypatch, fuse):
    environment.setenv("K3MOE_FUSE", fuse)
    prepare(runner, monkeypatch)
    monkeypatch.setattr(runners.ROCmLatentMoERunner, "_forward_impl", lambda self, *arguments: "stock")
    assert runner._forward_impl(*batch(1)) == "stock"
    assert dict(CALLS.fallback) == {runners.NOT_ASKED_FOR: 1}


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda w: w.float(), "weight has dtype float32; accepted: bfloat16"),
        (lambda w: w.t().contiguous().t(), "weight has stride 7168 in its last dimension; accepted: 1"),
        (lambda w: w[:, :384].contiguous(), "weight has shape [7168, 384]; served: [7168, 768]"),
    ],
)
def test_a_weight_that_is_not_served(runner, monkeypatch, change, reason):
    """Another shape would compile in serving: the warm-up has Kimi-K3's."""
    weight = runner._shared_experts._layer.down_proj.weight
    monkeypatch.setattr(weight, "data", change(weight.data))
    parts, [other] = fusible(runner, PARTS)
    assert parts == {"route", "sort"}
    assert other.startswith(f"shared is vLLM's: shared down: {reason}")


def test_the_oracle_of_these_tests_is_vllms_own(runner):
    """vLLM's modules on a CPU and our kernels agree on the layer's weights."""
    _, _, hidden = batch(4)
    mlp = runner._shared_experts._layer
    with torch.no_grad():
        gate_up, want = mlp.gate_up_proj(hidden)[0], mlp(hidden)
    got = shared_expert(gate_up, mlp.down_proj.weight.data, SITU_BETA, SITU_LINEAR_BETA)
    assert error(got, want) < BF16
