"""The shared expert of one token in one launch: any width, both forms of it, and what bad numbers spoil."""

import pytest
import torch

import cases
from vllm_k3moe.kernels import shared_token as kernel
from vllm_k3moe.kernels.situ import activate
from vllm_k3moe.shapes import K3_TP8, SITU_BETA, SITU_LINEAR_BETA

S, H = K3_TP8.shared_inter, K3_TP8.hidden
BETAS = (SITU_BETA, SITU_LINEAR_BETA)
NAN, INF = float("nan"), float("inf")


def inputs(inter: int, width: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """gate_up [1, 2 inter] and weight [width, inter]."""
    gate_up, weight = torch.randn(1, 2 * inter, generator=rng) * 2, torch.randn(width, inter, generator=rng)
    return gate_up.to(torch.bfloat16), weight.to(torch.bfloat16)


def check(got: torch.Tensor, hidden: torch.Tensor, weight: torch.Tensor) -> None:
    """Within half a bf16 ulp of hidden @ weight^T, and of fp32 sums that err by an ulp of the largest at each step."""
    hidden, weight = hidden.cpu().double(), weight.cpu().double()
    want = hidden @ weight.T
    bound = want.abs() * 2**-8 + hidden.abs() @ weight.abs().T * hidden.shape[1] * 2**-24
    assert ((got.cpu().double() - want).abs() <= bound).all()


def run(gate_up: torch.Tensor, weight: torch.Tensor, betas: tuple[float, float | None], device: torch.device):
    """What is launched on the device, with guards round its output."""
    out = cases.Guarded((1, len(weight)), torch.bfloat16, device)
    kernel.launch_token(gate_up.to(device), weight.to(device), out.tensor, *betas)
    assert out.intact()
    return out.tensor


@pytest.mark.parametrize("betas", [BETAS, (1.0, None)])
@pytest.mark.parametrize("inter", [16, 48, 256, 272, 768, 1024, 6144])
@pytest.mark.parametrize("width", [16, 40, 136])
def test_any_shape(width, inter, betas, device, rng):
    gate_up, weight = inputs(inter, width, rng)
    check(run(gate_up, weight, betas, device), activate(gate_up.to(device), *betas), weight)


@pytest.mark.parametrize("inter, width", [(48, 136), (768, 80), (1024, 64)])
def test_as_warps_of_32_lanes_compute_it(inter, width, device, rng):
    """The form that NVIDIA GPUs take, on every backend."""
    gate_up, weight = (t.to(device) for t in inputs(inter, width, rng))
    out = cases.Guarded((1, width), torch.bfloat16, device)
    constants = (width, inter, *BETAS, kernel.ROWS, 32)
    kernel._shared_token[(-(-width // kernel.ROWS),)](gate_up, weight, out.tensor, constants, num_warps=kernel.WARPS)
    assert out.intact()
    check(out.tensor, activate(gate_up, *BETAS), weight)


@pytest.mark.on("gfx950", "gpu")
def test_true_shape(order, device, rng):
    gate_up, weight = inputs(S, H, rng)
    check(run(gate_up, weight, BETAS, device), activate(gate_up.to(device), *BETAS), weight)


@pytest.mark.parametrize("place", [0, 300, S - 1])
@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_bad_number_of_the_token_is_in_all_of_it(bad, place, device, rng):
    gate_up, weight = inputs(S, 64, rng)
    gate_up[0, S + place] = bad
    assert not run(gate_up, weight, (SITU_BETA, None), device).isfinite().any()


def test_a_bad_weight_is_in_its_row(device, rng):
    gate_up, weight = inputs(272, 64, rng)
    clean = run(gate_up, weight, BETAS, device).cpu()
    weight[33, 271] = NAN
    got = run(gate_up, weight, BETAS, device).cpu()
    others = torch.arange(64) != 33
    assert torch.equal(got[:, others], clean[:, others]) and got[0, 33].isnan()
