"""SiTU and the down GEMM of the shared expert: rounding, every token count, every tensor parallel size."""

import pytest
import torch
import triton
import triton.language as tl

import cases
from vllm_k3moe.kernels.moe_sort import moe_sort
from vllm_k3moe.kernels.shared_expert import down, down_extension, down_program, launch_down, shared_expert
from vllm_k3moe.kernels.situ import MAX_TOKENS, activate, launch_situ, situ, situ_extension
from vllm_k3moe.reference import shared_hidden
from vllm_k3moe.reference import situ as situ_oracle
from vllm_k3moe.shapes import K3_TP8, SITU_BETA, SITU_LINEAR_BETA

S, H = K3_TP8.shared_inter, K3_TP8.hidden
BETAS = (SITU_BETA, SITU_LINEAR_BETA)
TOKENS = tuple(m for m in (*cases.TOKENS, *cases.VERIFY) if m <= MAX_TOKENS)
NAN, INF = float("nan"), float("inf")


def randn(*shape: int, rng: torch.Generator, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, generator=rng) * scale).to(torch.bfloat16)


def whole(*shape: int, rng: torch.Generator) -> torch.Tensor:
    """-1, 0 and 1: sums of products are exact in fp32, whatever their order."""
    return torch.randint(-1, 2, shape, generator=rng).to(torch.bfloat16)


def every_bf16() -> torch.Tensor:
    return torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def near(got: torch.Tensor, hidden: torch.Tensor, weight: torch.Tensor) -> None:
    """Within half a bf16 ulp of hidden @ weight^T, and of fp32 sums that err by an ulp of the largest at each step."""
    want = hidden.double() @ weight.double().T
    largest = hidden.double().abs() @ weight.double().abs().T
    bound = want.abs() * 2**-8 + largest * hidden.shape[1] * 2**-24
    assert ((got.double() - want).abs() <= bound).all()


@triton.jit
def _situ_in_fp32(g, u, out, BETA: tl.constexpr, LINEAR_BETA: tl.constexpr, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    value = situ(tl.load(g + at).to(tl.float32), tl.load(u + at).to(tl.float32), BETA, LINEAR_BETA)
    tl.store(out + at, value)


@pytest.mark.parametrize("betas", [BETAS, (SITU_BETA, None), (1.0, 0.7)])
@pytest.mark.parametrize("other", [1.0, -0.01, 40.0, "reversed"])
@pytest.mark.parametrize("which", ["gate", "up"])
def test_situ_of_every_bf16_is_within_8_ulp(which, other, betas, device):
    """In fp32, before the rounding to bf16. Below the smallest normal number the error is below 1e-35."""
    values = every_bf16()
    rest = values.flip(0) if other == "reversed" else torch.full_like(values, other)
    g, u = (values, rest) if which == "gate" else (rest, values)
    got = torch.empty(len(values), device=device)
    _situ_in_fp32[(64,)](g.to(device), u.to(device), got, *betas, len(values) // 64, num_warps=4)
    got, want = got.cpu().double(), situ_oracle(g.double(), u.double(), *betas)
    _, exponent = torch.frexp(want)
    ulp = torch.ldexp(torch.ones_like(want), exponent - 24)
    limit = torch.finfo(torch.float32).max
    right = (got == want) | ((got - want).abs() <= 8 * ulp + 1e-35) | (want.abs() > limit) & (got.abs() == INF)
    assert right[~want.isnan()].all()
    assert torch.equal(got.isnan(), want.isnan())


@pytest.mark.parametrize("betas", [BETAS, (SITU_BETA, None)])
@pytest.mark.tokens(interpreter=(1, 5), gfx950=TOKENS, gpu=TOKENS)
def test_activation(m, betas, device, rng):
    """bf16 of a number within 2^-20 of the exact one: the exact one's, but for near ties."""
    gate_up = randn(m, 2 * S, rng=rng, scale=6.0)
    got = activate(gate_up.to(device), *betas).cpu()
    exact = situ_oracle(*gate_up.double().chunk(2, dim=1), *betas)
    low, high = (exact * (1 - 2**-20)).to(torch.bfloat16), (exact * (1 + 2**-20)).to(torch.bfloat16)
    assert ((got == low) | (got == high)).all()
    assert (got != shared_hidden(gate_up, *betas)).sum() <= got.numel() // 1000


@pytest.mark.parametrize("inter", [16, 48, 256, 272, 384, 1536])
def test_activation_of_any_width(inter, device, rng):
    gate_up = randn(3, 2 * inter, rng=rng, scale=3.0)
    got = cases.Guarded((3, inter), torch.bfloat16, device)
    launch_situ(gate_up.to(device), got.tensor, *BETAS)
    torch.testing.assert_close(got.tensor.cpu(), shared_hidden(gate_up, *BETAS), rtol=2**-7, atol=0)
    assert got.intact()


def run_down(hidden: torch.Tensor, weight: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Into a poisoned buffer between guard bytes; behind `hidden` and `weight` lie NaNs."""
    m, width = len(hidden), len(weight)
    garbage = torch.full((160, hidden.shape[1]), NAN, dtype=torch.bfloat16)
    padded_hidden, padded_weight = torch.cat([hidden, garbage]).to(device), torch.cat([weight, garbage]).to(device)
    out = cases.Guarded((m, width), torch.bfloat16, device)
    launch_down(padded_hidden[:m], padded_weight[:width], out.tensor)
    assert out.intact()
    return out.tensor.cpu()


@pytest.mark.tokens(interpreter=(1, 3, 17, 33), gfx950=TOKENS, gpu=TOKENS)
def test_down_is_exact_on_whole_numbers(m, device, rng):
    hidden, weight = whole(m, S, rng=rng), whole(96, S, rng=rng)
    assert torch.equal(run_down(hidden, weight, device), (hidden.float() @ weight.float().T).to(torch.bfloat16))


@pytest.mark.tokens(interpreter=(2,), gfx950=(*cases.TRUE_SHAPE, 64, 128), gpu=TOKENS)
def test_down_at_the_true_shape(m, order, device, rng):
    width = H if device.type == "cuda" or m in (1, 17) else 256
    hidden, weight = randn(m, S, rng=rng), randn(width, S, rng=rng, scale=0.03)
    near(run_down(hidden, weight, device), hidden, weight)


@pytest.mark.parametrize("inter", [16, 48, 256, 272, 384, 1024, 1536, 3072, 6144])
@pytest.mark.parametrize("width", [16, 40, 136])
@pytest.mark.tokens(interpreter=(3,), gfx950=(3, 20, 65), gpu=(3, 20, 65))
def test_down_of_any_shape(m, width, inter, device, rng):
    hidden, weight = whole(m, inter, rng=rng), whole(width, inter, rng=rng)
    assert torch.equal(run_down(hidden, weight, device), (hidden.float() @ weight.float().T).to(torch.bfloat16))


@triton.jit
def _down_staged(hidden, weight, out, num_tokens, HIDDEN: tl.constexpr, INTER: tl.constexpr, TOKENS: tl.constexpr):
    down_program(tl.program_id(0), hidden, weight, out, num_tokens, HIDDEN, INTER, 64, TOKENS, 4, 4, 32)


@pytest.mark.parametrize("inter, width", [(48, 136), (384, 64), (768, 80)])
@pytest.mark.tokens(interpreter=(3,), gfx950=(3, 33), gpu=(3, 33))
def test_down_as_warps_of_32_lanes_compute_it(m, inter, width, device, rng):
    """The form that NVIDIA GPUs take, on every backend."""
    hidden, weight = whole(m, inter, rng=rng).to(device), whole(width, inter, rng=rng).to(device)
    out = cases.Guarded((m, width), torch.bfloat16, device)
    _down_staged[(-(-width // 64) * -(-m // 16),)](hidden, weight, out.tensor, m, width, inter, 16, num_warps=4)
    assert out.intact()
    assert torch.equal(out.tensor, (hidden.float() @ weight.float().T).to(torch.bfloat16))


@pytest.mark.parametrize("place", [(0, 0), (1, 300), (4, S - 1)])
@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_nan_stays_in_its_token(bad, place, device, rng):
    gate_up, weight = randn(5, 2 * S, rng=rng), randn(64, S, rng=rng)
    clean = shared_expert(gate_up.to(device), weight.to(device), SITU_BETA, None).cpu()
    gate_up[place[0], S + place[1]] = bad
    got = shared_expert(gate_up.to(device), weight.to(device), SITU_BETA, None).cpu()
    others = torch.arange(5) != place[0]
    assert torch.equal(got[others], clean[others])
    assert not got[place[0]].isfinite().any()


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16])
@pytest.mark.tokens(interpreter=(3,), gfx950=(1, 8, 33), gpu=(1, 8, 33, 128))
def test_tensor_parallel_shards_add_up(m, ranks, device, rng):
    """The sum over ranks is the unsharded block, but for the roundings of each rank's partial sum to bf16."""
    inter, width = 8 * S, 64
    gate, up, weight = randn(m, inter, rng=rng), randn(m, inter, rng=rng), randn(width, inter, rng=rng, scale=0.03)
    hidden = shared_hidden(torch.cat([gate, up], dim=1), *BETAS).double()
    total, bound = torch.zeros(m, width, dtype=torch.float64), torch.zeros(m, width, dtype=torch.float64)
    for rank in range(ranks):
        shard = slice(rank * inter // ranks, (rank + 1) * inter // ranks)
        gate_up = torch.cat([gate[:, shard], up[:, shard]], dim=1).to(device)
        total += shared_expert(gate_up, weight[:, shard].contiguous().to(device), *BETAS).cpu().double()
        bound += (hidden[:, shard] @ weight[:, shard].double().T).abs() * 2**-8
    bound += hidden.abs() @ weight.double().abs().T * 2**-12  # SiTU's near ties, fp32 sums
    assert ((total - hidden @ weight.double().T).abs() <= bound).all()


@pytest.mark.parametrize("m", [1, 16, 33])
@pytest.mark.on("gfx950", "gpu")
def test_same_input_same_bits(m, device, rng):
    """25 times, on gfx950 in other orders of workgroups and waves."""
    gate_up, weight = randn(m, 2 * S, rng=rng).to(device), randn(256, S, rng=rng).to(device)
    first = shared_expert(gate_up, weight, *BETAS).cpu()
    for _ in range(24):
        assert torch.equal(shared_expert(gate_up, weight, *BETAS).cpu(), first)


def test_no_tokens(device):
    gate_up = torch.empty(0, 2 * S, dtype=torch.bfloat16, device=device)
    weight = torch.empty(H, S, dtype=torch.bfloat16, device=device)
    assert activate(gate_up, *BETAS).shape == (0, S)
    assert shared_expert(gate_up, weight, *BETAS).shape == (0, H)


def test_either_rides_in_a_sort_of_any_router(device, rng):
    """Behind its programs: the bits are those of launches of their own, and the sort's."""
    ids, weights = cases.uniform(5, 64, 8, rng).to(device), torch.rand(5, 8, generator=rng).to(device)
    gate_up, weight = randn(5, 512, rng=rng).to(device), randn(64, 256, rng=rng).to(device)
    hidden, out = (cases.Guarded((5, n), torch.bfloat16, device) for n in (256, 64))
    alone = moe_sort(ids, weights, 64, 16)
    for extension in (
        situ_extension(gate_up, hidden.tensor, *BETAS),
        down_extension(hidden.tensor, weight, out.tensor),
    ):
        together = moe_sort(ids, weights, 64, 16, extension)
        rows = int(alone.num_valid_ids[0])
        assert torch.equal(together.sorted_ids[:rows], alone.sorted_ids[:rows])
        assert torch.equal(together.num_valid_ids, alone.num_valid_ids)
    assert torch.equal(hidden.tensor, activate(gate_up, *BETAS))
    assert torch.equal(out.tensor, down(hidden.tensor, weight))
    assert hidden.intact() and out.intact()
