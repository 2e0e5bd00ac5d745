"""The routing contract: order, ties, NaN, infinities, dtypes and strides, against the oracle."""

import pytest
import torch
import triton
import triton.language as tl

import cases
from vllm_k3moe.kernels.topk import sigmoid, topk
from vllm_k3moe.reference import route, routing_faults
from vllm_k3moe.shapes import K3_TP8

E, K = K3_TP8.experts, K3_TP8.topk
NAN, INF = float("nan"), float("inf")


def run(logits: torch.Tensor, bias: torch.Tensor, k: int, device: torch.device, scaling: float = 1.0):
    ids, weights = topk(logits.to(device), bias.to(device), k, scaling)
    return ids.cpu(), weights.cpu()


def check_exact(logits: torch.Tensor, bias: torch.Tensor, k: int, device: torch.device) -> None:
    """For scores that every implementation gets exactly: ids equal, in order; weights within 4 ulp."""
    ids, weights = run(logits, bias, k, device)
    want_ids, want_weights = route(logits, bias, k)
    assert torch.equal(ids, want_ids)
    torch.testing.assert_close(weights, want_weights, rtol=4 * 2**-24, atol=0)


@pytest.mark.tokens(interpreter=(1, 3), gfx950=(*cases.TRUE_SHAPE, 512), gpu=(*cases.TOKENS, *cases.VERIFY))
def test_random_logits(m, order, device, rng):
    logits, bias = torch.randn(m, E, generator=rng) * 2, torch.randn(E, generator=rng) * 0.1
    ids, weights = run(logits, bias, K, device)
    assert routing_faults(ids, weights, logits, bias) == []


ROUTERS = (
    (1, 1), (2, 1), (3, 3), (8, 2), (33, 32), (127, 1), (60, 6), (128, 8), (256, 32), (257, 9), (1000, 5), (1024, 32)
)  # fmt: skip


@pytest.mark.parametrize("e, k", ROUTERS)
def test_any_router(e, k, device, rng):
    logits, bias = torch.randn(4, e, generator=rng), torch.randn(e, generator=rng) * 0.1
    ids, weights = run(logits, bias, k, device, scaling=2.5)
    assert routing_faults(ids, weights, logits, bias, 2.5) == []


@pytest.mark.parametrize("e, k", ROUTERS)
def test_ties_of_any_router(e, k, device, rng):
    """Few different scores, all exact: ties across every border of lanes, registers and chunks; NaN and infinities."""
    values = torch.tensor([0.0, -100.0, NAN, INF, -INF])
    logits = torch.cat([values[torch.randint(0, 5, (2, e), generator=rng)], values[[0, 2]][:, None].expand(2, e)])
    check_exact(logits, torch.zeros(e), k, device)
    check_exact(logits[:1], torch.randint(-2, 2, (e,), generator=rng) / 16, k, device)


def special_rows(rng: torch.Generator) -> dict[str, torch.Tensor]:
    normal = torch.randn(E, generator=rng)
    mixed = normal.clone()
    mixed[torch.randperm(E, generator=rng)[:400]] = NAN
    few = torch.full((E,), NAN)
    few[[5, 700, 895]] = torch.tensor([1.0, -INF, INF])
    infinite = normal.clone()
    infinite[::3], infinite[1::3] = INF, -INF
    straddle = torch.full((E,), -4.0)
    straddle[100:115], straddle[[3, 500, 895]] = 4.0, 2.0  # 15 clear winners, then three for one place
    return {
        "all NaN": torch.full((E,), NAN),
        "negative NaN bits": torch.full((E,), -1, dtype=torch.int32).view(torch.float32),
        "400 NaN": mixed,
        "three that are not NaN": few,
        "+inf": torch.full((E,), INF),
        "-inf": torch.full((E,), -INF),
        "infinities mixed": infinite,
        "all equal": torch.zeros(E),
        "+0 and -0": torch.zeros(E).copysign(torch.randn(E, generator=rng)),
        "saturated": torch.tensor([40.0, 100.0]).repeat(E // 2),
        "below every normal sigmoid": torch.full((E,), -90.0),
        "tie at ranks 16 and 17": straddle,
    }


@pytest.mark.parametrize("name", special_rows(torch.Generator().manual_seed(0)))
def test_special_rows(name, device, rng):
    row = special_rows(rng)[name]
    ids, weights = run(row[None], torch.zeros(E), K, device)
    assert routing_faults(ids, weights, row[None], torch.zeros(E)) == []
    assert weights.isfinite().all()
    if name not in ("400 NaN", "infinities mixed"):  # the others have exact scores
        assert torch.equal(ids, route(row[None], torch.zeros(E), K)[0])


def test_all_equal_gives_the_lowest_ids(device):
    ids, weights = run(torch.zeros(2, E), torch.zeros(E), K, device)
    assert ids.tolist() == [list(range(K))] * 2
    assert weights.tolist() == [[1 / K] * K] * 2


def test_bias_alone_decides(device, rng):
    """Logit 0 everywhere: the scores are 0.5 + bias, exactly; negative ones, -inf, NaN and ties among them."""
    check_exact(torch.zeros(1, E), torch.randint(-80, -8, (E,), generator=rng) / 16, K, device)
    bias = torch.randint(-8, 8, (E,), generator=rng) / 16
    bias[200:400], bias[400:420] = -INF, NAN
    check_exact(torch.zeros(1, E), bias, K, device)
    bias = torch.full((E,), -INF)
    bias[641] = 0.25
    check_exact(torch.zeros(1, E), bias, K, device)


def test_one_ulp_apart(device):
    """The larger of two neighbouring floats wins, also where the ids speak for the smaller."""
    bias = torch.full((E,), -1.0)
    bias[10:20] = 0.25
    bias[800:810] = torch.nextafter(torch.tensor(0.75), torch.tensor(1.0)) - 0.5
    check_exact(torch.zeros(1, E), bias, K, device)


@pytest.mark.parametrize("logits_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias_dtype", [torch.float32, torch.bfloat16])
def test_dtypes_strides_and_alignment(logits_dtype, bias_dtype, device, rng):
    """Rows wider than E, and base pointers that no vector load may assume anything of."""
    wide = torch.randn(3, E + 37, generator=rng).to(logits_dtype).to(device)
    bias = (torch.randn(E + 1, generator=rng) * 0.1).to(bias_dtype).to(device)
    logits, bias = wide[:, 1 : E + 1], bias[1:]
    ids, weights = topk(logits, bias, K)
    assert routing_faults(ids.cpu(), weights.cpu(), logits.cpu(), bias.cpu()) == []


def test_no_tokens(device):
    ids, weights = run(torch.empty(0, E), torch.zeros(E), K, device)
    assert ids.shape == weights.shape == (0, K)
    assert (ids.dtype, weights.dtype) == (torch.int32, torch.float32)


@triton.jit
def _sigmoids(x, out, size):
    i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    tl.store(out + i, sigmoid(tl.load(x + i, mask=i < size, other=0.0)), mask=i < size)


def test_weights_of_adversarial_rows(device):
    """Rows whose sigmoids err one way and one whose errs the other: the worst that weights can be, within 4 ulp."""
    x = torch.linspace(-20, 8, 200_000)
    exact = torch.sigmoid(x.double())
    got = torch.empty_like(x).to(device)
    _sigmoids[(triton.cdiv(len(x), 1024),)](x.to(device), got, len(x))
    got = got.cpu()
    error = (got.double() - exact) / exact
    assert error.abs().max() < 1.2 * 2**-23
    low, high = x[error.argsort()[:15]], x[error.argsort()[-15:]]
    rows = torch.stack([torch.cat([low, high[-1:]]), torch.cat([high, low[:1]])])
    ids, weights = run(rows, torch.zeros(16), 16, device)
    assert routing_faults(ids, weights, rows, torch.zeros(16)) == []
