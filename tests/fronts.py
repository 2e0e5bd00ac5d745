"""The front's launches and what the tests of all of them share: inputs, guarded buffers, the check with the oracle."""

from collections.abc import Callable

import torch

import cases
from vllm_k3moe import reference
from vllm_k3moe.kernels.front import Front
from vllm_k3moe.kernels.moe_sort import Sorted
from vllm_k3moe.kernels.route_sort import route_sort
from vllm_k3moe.kernels.route_sort_mid import route_sort_mid
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.shapes import MoEShape

MODES = ("none", "mxfp8", "mxfp4")
QUANTISE = {"mxfp8": reference.quantise_mxfp8, "mxfp4": reference.quantise_mxfp4}
LAUNCH: dict[str, Callable[..., None]] = {
    "one": route_sort,  # of one token
    "two": route_sort_mid,
}


def limit(launch: str, m: int) -> int:
    """`m` tokens, or as many as the launch takes."""
    return 1 if launch == "one" else m


def inputs(m: int, shape: MoEShape, rng: torch.Generator, device: torch.device):
    """x, logits, bias as a layer sees them."""
    x = (torch.randn(m, shape.latent, generator=rng) * 3).to(torch.bfloat16)
    logits, bias = torch.randn(m, shape.experts, generator=rng), torch.randn(shape.experts, generator=rng) * 0.1
    return x.to(device), logits.to(device), bias.to(device)


def guarded(plan: RoutePlan, m: int, device: torch.device) -> tuple[Front, list[cases.Guarded]]:
    """The plan's buffers, poisoned, each between guard bytes."""
    guards: list[cases.Guarded] = []

    def guard(tensor: torch.Tensor | None) -> torch.Tensor | None:
        if tensor is None:
            return None
        guards.append(cases.Guarded(tensor.shape, tensor.dtype, device))
        return guards[-1].tensor

    bare = plan.allocate(m, torch.device("meta"))
    inner = Sorted(*map(guard, bare.sorted))
    others = [name for name in bare._fields if name != "sorted"]
    return bare._replace(sorted=inner, **{name: guard(getattr(bare, name)) for name in others}), guards


def check(front: Front, plan: RoutePlan, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> None:
    """Every product against the oracle; every byte outside the valid region still poison."""
    x, logits, bias = x.cpu(), logits.cpu(), bias.cpu()
    m, shape = len(x), plan.shape
    ids, weights = front.ids.cpu(), front.weights.cpu()
    assert reference.routing_faults(ids, weights, logits, bias) == []

    want = reference.sort(ids, weights, shape.experts, plan.block)
    rows = int(want.num_valid_ids[0])
    for name, size in (("sorted_ids", rows), ("sorted_weights", rows), ("sorted_expert_ids", rows // plan.block)):
        got = getattr(front.sorted, name).cpu()
        assert torch.equal(got[:size], getattr(want, name)), name
        assert (got[size:].view(torch.uint8) == cases.POISON).all(), f"{name} past the valid region"
    assert front.sorted.num_valid_ids.tolist() == [rows, m]

    if plan.mode != "none":
        want_rows, want_scales = QUANTISE[plan.mode](x)
        assert torch.equal(front.rows.cpu(), want_rows)
        scales, written = reference.scatter_scales(want_scales, want.sorted_ids, m, *front.scales.shape)
        assert torch.equal(front.scales.cpu().view(-1)[written], scales[written])
        assert (front.scales.cpu().view(-1)[~written] == cases.POISON).all(), "scale bytes of no real row"
    if plan.zero:
        assert (front.zeroed.cpu().view(torch.int16) == 0).all()


def run(launch: str, plan: RoutePlan, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> Front:
    front, guards = guarded(plan, len(x), x.device)
    LAUNCH[launch](logits, bias, x, front, block=plan.block, mode=plan.mode, scaling=plan.scaling)
    assert all(g.intact() for g in guards)
    return front
