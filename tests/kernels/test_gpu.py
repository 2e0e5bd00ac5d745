"""What only a real GPU shows: graph replays, and the same bits every time. Results: benchmarks/results/."""

import pytest
import torch

import cases
from vllm_k3moe.kernels.front import Front
from vllm_k3moe.kernels.shared_expert import shared_expert
from vllm_k3moe.kernels.situ import MAX_TOKENS
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.shapes import K3_TP8, SITU_BETA, SITU_LINEAR_BETA
from vllm_k3moe.sort_plan import K3SortPlan

pytestmark = pytest.mark.gpu
MODES = ("none", "mxfp8", "mxfp4")
TOKENS = (1, 2, 5, 8, 9, 16, 32, 33, 64, 128, 256, 512)


def inputs(m: int, device: torch.device, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(m, K3_TP8.latent, generator=g, device=device).to(torch.bfloat16)
    bias = torch.randn(K3_TP8.experts, generator=g, device=device) * 0.1
    return x, torch.randn(m, K3_TP8.experts, generator=g, device=device), bias


def shared_inputs(m: int, device: torch.device, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """gate_up and the down weight."""
    g = torch.Generator(device).manual_seed(seed)
    sizes = (m, 2 * K3_TP8.shared_inter), (K3_TP8.hidden, K3_TP8.shared_inter)
    gate_up, weight = (torch.randn(*size, generator=g, device=device).to(torch.bfloat16) for size in sizes)
    return gate_up, weight


def valid(front, plan: RoutePlan) -> list[torch.Tensor]:
    """Bytes of every product that are defined; scale bytes of padding rows are not, so they are poisoned beforehand."""
    rows = int(front.sorted.num_valid_ids[0])
    s = front.sorted
    parts = [front.ids, front.weights, s.sorted_ids[:rows], s.sorted_weights[:rows], s.num_valid_ids]
    parts += [s.sorted_expert_ids[: rows // plan.block], front.zeroed]
    parts += [t for t in (front.rows, front.scales) if t is not None]
    return [t.contiguous().view(torch.uint8).clone() for t in parts]


def poison(front) -> None:
    for tensor in (*front.sorted, *front):
        if isinstance(tensor, torch.Tensor):
            cases.poison(tensor)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("m", TOKENS)
def test_100_replays_equal_eager(m, mode, device):
    """A captured plan, fed new logits and activations a hundred times, its buffers poisoned before each replay."""
    plan = RoutePlan(K3_TP8, mode, block=32)
    x, logits, bias = inputs(m, device, 0)
    plan(x, logits, bias)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = plan(x, logits, bias)
    for seed in range(1, 101):
        new_x, new_logits, _ = inputs(m, device, seed)
        x.copy_(new_x)
        logits.copy_(new_logits)
        poison(captured)
        graph.replay()
        eager = plan.allocate(m, device)
        poison(eager)
        plan.launch(x, logits, bias, eager)
        for a, b in zip(valid(captured, plan), valid(eager, plan), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("m", [m for m in TOKENS if m <= MAX_TOKENS])
def test_100_replays_with_the_shared_expert_equal_eager(m, device):
    """The same with the shared expert in the front's launches."""
    plan = RoutePlan(K3_TP8, "mxfp8", block=32)
    x, logits, bias = inputs(m, device, 0)
    gate_up, weight = shared_inputs(m, device, 0)

    def run() -> tuple[Front, torch.Tensor]:
        front = plan.allocate(m, device)
        poison(front)
        with K3SortPlan(gate_up, weight, SITU_BETA, SITU_LINEAR_BETA) as shared:
            plan.launch(x, logits, bias, front, shared)
        return front, shared.out

    run()  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured, captured_out = run()
    for seed in range(1, 101):
        for there, here in zip((x, logits), inputs(m, device, seed)[:2], strict=True):
            there.copy_(here)
        gate_up.copy_(shared_inputs(m, device, seed)[0])
        cases.poison(captured_out)
        graph.replay()
        eager, out = run()
        assert torch.equal(captured_out, out)
        assert torch.equal(out, shared_expert(gate_up, weight, SITU_BETA, SITU_LINEAR_BETA))
        for a, b in zip(valid(captured, plan), valid(eager, plan), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("m", TOKENS)
def test_25_repeats_are_bit_identical(m, mode, device):
    plan = RoutePlan(K3_TP8, mode, block=32)
    args = inputs(m, device, 7)
    front = plan.allocate(m, device)
    first = None
    for _ in range(25):
        poison(front)
        plan.launch(*args, front)
        got = valid(front, plan)
        first = first or got
        assert all(torch.equal(a, b) for a, b in zip(first, got, strict=True))


@pytest.mark.parametrize("m", [1, 9, 512])
def test_no_sync_inside(m, device):
    """Nothing between the launches waits for the device or reads from it."""
    plan = RoutePlan(K3_TP8, "mxfp8", block=32)
    args = inputs(m, device, 3)
    plan(*args)
    torch.cuda.set_sync_debug_mode("error")
    try:
        plan(*args)
    finally:
        torch.cuda.set_sync_debug_mode("default")
