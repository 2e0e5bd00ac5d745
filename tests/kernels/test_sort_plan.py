"""K3SortPlan: the shared expert taken along by the front's launches, to the bit what launches of its own compute."""

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import torch
import triton

import cases
from fronts import check, guarded, inputs
from vllm_k3moe.kernels.route_sort import route_sort
from vllm_k3moe.kernels.route_sort_mid import route_sort_mid
from vllm_k3moe.kernels.shared_expert import down_extension, shared_expert
from vllm_k3moe.kernels.shared_token import token_extension
from vllm_k3moe.kernels.situ import MAX_TOKENS, situ_extension
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.shapes import K3_TP8, SITU_BETA, SITU_LINEAR_BETA, MoEShape
from vllm_k3moe.sort_plan import K3SortPlan

SMALL = MoEShape(hidden=80, latent=64, experts=32, topk=4, inter=32, shared_inter=48)
BETAS = (SITU_BETA, SITU_LINEAR_BETA)
TOGETHER = ("route_quantise | situ", "sort_by_token | shared_down")


class Batch:
    """One call's inputs of front and shared expert."""

    def __init__(self, m: int, shape: MoEShape, rng: torch.Generator, device: torch.device) -> None:
        def randn(*size: int) -> torch.Tensor:
            return torch.randn(*size, generator=rng).to(torch.bfloat16).to(device)

        self.front: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = inputs(m, shape, rng, device)
        self.gate_up, self.weight = randn(m, 2 * shape.shared_inter), randn(shape.hidden, shape.shared_inter)

    def offer(self) -> K3SortPlan:
        return K3SortPlan(self.gate_up, self.weight, *BETAS)

    def shared(self) -> torch.Tensor:
        return shared_expert(self.gate_up, self.weight, *BETAS)


@pytest.fixture
def launched() -> Iterator[list[str]]:
    """Names of the kernels launched in this test."""
    names: list[str] = []

    def note(metadata: Any) -> None:
        names.append(metadata.get()["name"].lstrip("_"))

    triton.knobs.runtime.launch_enter_hook.add(note)
    yield names
    triton.knobs.runtime.launch_enter_hook.remove(note)


@pytest.mark.parametrize("mode", ["none", "mxfp8", "mxfp4"])
@pytest.mark.tokens(interpreter=(1, 3), gfx950=(1, 2, 8, 16, 17, 33, 65, 128), gpu=(1, 2, 8, 12, 16, 17, 33, 65, 128))
def test_riding_changes_no_bit(m, mode, device, rng):
    """Neither of the shared expert nor of the front."""
    batch, plan = Batch(m, SMALL, rng, device), RoutePlan(SMALL, mode, block=16)
    front, guards = guarded(plan, m, device)
    hidden, out = (cases.Guarded((m, n), torch.bfloat16, device) for n in (SMALL.shared_inter, SMALL.hidden))
    x, logits, bias = batch.front
    route_sort_mid(
        logits, bias, x, front, block=plan.block, mode=mode,
        beside_route=situ_extension(batch.gate_up, hidden.tensor, *BETAS),
        beside_sort=down_extension(hidden.tensor, batch.weight, out.tensor),
    )  # fmt: skip
    check(front, plan, *batch.front)
    assert torch.equal(out.tensor, batch.shared())
    assert all(guard.intact() for guard in (*guards, hidden, out))


@pytest.mark.parametrize("mode", ["none", "mxfp8", "mxfp4"])
def test_riding_beside_one_token_changes_no_bit(mode, device, rng):
    batch, plan = Batch(1, SMALL, rng, device), RoutePlan(SMALL, mode, block=16)
    front, guards = guarded(plan, 1, device)
    out = cases.Guarded((1, SMALL.hidden), torch.bfloat16, device)
    x, logits, bias = batch.front
    beside = token_extension(batch.gate_up, batch.weight, out.tensor, *BETAS)
    route_sort(logits, bias, x, front, block=plan.block, mode=mode, beside=beside)
    check(front, plan, *batch.front)
    assert torch.equal(out.tensor, batch.shared())
    assert all(guard.intact() for guard in (*guards, out))


@pytest.mark.on("gfx950", "gpu")
def test_one_token_takes_one_launch(launched, order, device, rng):
    batch, plan = Batch(1, K3_TP8, rng, device), RoutePlan(K3_TP8, "mxfp8", block=32)
    with batch.offer() as shared:
        plan(*batch.front, shared)
    assert launched == ["route_sort"]
    assert plan.launches(1, with_shared=True) == ("route_sort | shared_token",)
    assert torch.equal(shared.out, batch.shared())


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("m", [8, 12, 16])
def test_the_sort_took_the_gemm(m, order, launched, device, rng):
    """At Kimi-K3's shape: two launches where there were four."""
    batch, plan = Batch(m, K3_TP8, rng, device), RoutePlan(K3_TP8, "mxfp8", block=32)
    with batch.offer() as shared:
        plan(*batch.front, shared)
        assert launched == ["route_quantise", "sort_by_token"]
        with (
            pytest.raises(RuntimeError, match="shared expert of this call is taken; accepted: offered"),
            shared.take(m),
        ):
            pass
    assert launched == ["route_quantise", "sort_by_token"]
    assert plan.launches(m, with_shared=True) == TOGETHER
    assert torch.equal(shared.out, batch.shared())


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("m, launches", [(1, ["shared_token"]), (3, ["situ", "shared_down"])])
def test_untaken_it_runs_when_the_plan_closes(m, launches, launched, device, rng):
    batch = Batch(m, SMALL, rng, device)
    with batch.offer() as shared:
        assert launched == []
        with pytest.raises(RuntimeError, match="is offered; its output is there when it is done"):
            _ = shared.out
    assert launched == launches
    assert torch.equal(shared.out, batch.shared())


def refuses(plan: K3SortPlan, state: str) -> bool:
    """Entering, taking and asking for the output alike."""

    def enter() -> None:
        with plan:
            pass

    def take() -> None:
        with plan.take(2):
            pass

    for late in (enter, take, lambda: plan.out):
        with pytest.raises(RuntimeError, match=f"the shared expert of this call is {state}; "):
            late()
    return True


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("take", [False, True])
def test_an_exception_leaves_nothing_to_run(take, launched, device, rng):
    """Before it is taken, and between taking and launching."""
    shared = Batch(2, SMALL, rng, device).offer()

    def fail() -> None:
        with shared, shared.take(2) if take else nullcontext():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert launched == []
    assert refuses(shared, "failed")


@pytest.mark.on("gfx950", "gpu")
def test_a_launch_that_failed_is_not_an_output(launched, device, rng):
    """Also where who took it goes on."""
    shared = Batch(2, SMALL, rng, device).offer()
    with shared, suppress(ZeroDivisionError), shared.take(2):
        raise ZeroDivisionError
    assert launched == []
    assert refuses(shared, "failed")


def test_taken_outside_of_its_block_is_an_error(device, rng):
    shared = Batch(2, SMALL, rng, device).offer()
    with pytest.raises(RuntimeError, match="is new; accepted: offered"), shared.take(2):
        pass
    with shared:
        pass
    with pytest.raises(RuntimeError, match="is done; accepted: offered"), shared.take(2):
        pass
    with pytest.raises(RuntimeError, match="is done; accepted: new"), shared:
        pass


@pytest.mark.on("gfx950", "gpu")
def test_other_tokens_than_the_fronts(launched, device, rng):
    """The riders' masks are by the front's number of tokens."""
    front, other = Batch(3, SMALL, rng, device), Batch(5, SMALL, rng, device)
    with pytest.raises(ValueError, match="the shared expert has 5 tokens, who takes it 3"), other.offer() as shared:
        RoutePlan(SMALL, "none", block=16)(*front.front, shared)
    assert launched == []


def test_two_layers_interleaved_and_nested(device, rng):
    """Each front takes its own call's shared expert."""
    one, two, three = (Batch(m, SMALL, rng, device) for m in (2, 3, 1))
    plan = RoutePlan(SMALL, "none", block=16)
    with one.offer() as first, two.offer() as second:
        plan(*two.front, second)
        with three.offer() as inner:
            pass
        plan(*one.front, first)
    for batch, shared in ((one, first), (two, second), (three, inner)):
        assert torch.equal(shared.out, batch.shared())


def test_no_tokens(device, rng):
    batch = Batch(0, SMALL, rng, device)
    with batch.offer() as shared:
        RoutePlan(SMALL, "none", block=16)(*batch.front, shared)
    assert shared.out.shape == (0, SMALL.hidden)


def test_what_it_does_not_serve(device):
    gate_up = torch.zeros(2, 96, dtype=torch.bfloat16, device=device)
    weight = torch.zeros(80, 48, dtype=torch.bfloat16, device=device)
    with pytest.raises(ValueError, match=f"M={MAX_TOKENS + 1} tokens"):
        K3SortPlan(gate_up[:1].repeat(MAX_TOKENS + 1, 1), weight, *BETAS)
    with pytest.raises(ValueError, match=r"weight has shape \[80, 32\]; accepted: \[any, 48\]"):
        K3SortPlan(gate_up, weight[:, :32].contiguous(), *BETAS)
    with pytest.raises(TypeError, match="gate_up has dtype float32"):
        K3SortPlan(gate_up.float(), weight, *BETAS)
