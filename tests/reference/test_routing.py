"""The routing oracle by hand, and its comparator by planted faults."""

import math

import numpy as np
import pytest
import torch

from vllm_k3moe.reference import route, routing_faults

pytestmark = pytest.mark.host
E, K = 896, 16
NAN, INF = float("nan"), float("inf")


def ids_of(logits: list[float], bias: list[float] | None = None, k: int = 3) -> list[int]:
    return route(torch.tensor([logits]), torch.tensor(bias or [0.0] * len(logits)), k)[0][0].tolist()


def randn(m: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(m)
    return (torch.randn(m, E, generator=rng) * 2).to(dtype), torch.randn(E, generator=rng) * 0.1


def test_by_hand():
    """The bias chooses, and the weight does not see it."""
    ids, weights = route(torch.tensor([[0.0, math.log(3), -5.0, 2.0]]), torch.tensor([0.5, 0.0, 2.0, -9.0]), 3, 2.5)
    assert ids.tolist() == [[2, 0, 1]]  # scores 2.007, 1.0, 0.75
    s = [1 / (1 + math.exp(5)), 0.5, 0.75]
    torch.testing.assert_close(weights, torch.tensor([[v / sum(s) * 2.5 for v in s]]), rtol=1e-7, atol=0)
    assert (ids.dtype, weights.dtype) == (torch.int32, torch.float32)


def test_against_plain_python():
    """Sorting (score, id) tuples in Python, with a sigmoid of another make."""
    logits, bias = randn(20)
    ids, weights = route(logits, bias, K)
    for row in range(20):
        s = [np.float32(1 / (1 + math.exp(-x))) for x in logits[row].tolist()]
        score = [v + b for v, b in zip(s, bias.numpy(), strict=True)]
        want = sorted(range(E), key=lambda i: (-score[i], i))[:K]
        assert ids[row].tolist() == want
        total = sum(float(s[i]) for i in want)
        np.testing.assert_allclose(weights[row], [float(s[i]) / total for i in want], rtol=2e-7)


def test_ties_go_to_the_lower_id():
    assert ids_of([0.0] * 5) == [0, 1, 2]
    assert ids_of([0.0, -0.0, 0.0, -0.0]) == [0, 1, 2]
    assert ids_of([100.0, 40.0, INF, 100.0]) == [0, 1, 2]  # sigmoids all 1.0f
    assert ids_of([-INF, -1e30, -100.0, -90.0]) == [0, 1, 2]  # sigmoids all 0
    assert ids_of([0.0] * 4, [-0.5, 0.5, -0.5, -0.5]) == [1, 0, 2]
    assert ids_of([0.0, 0.0, -100.0], [-0.5, -0.5, -0.0]) == [0, 1, 2]  # 0 + -0.0 is no less than 0.5 - 0.5


def test_a_sigmoid_below_the_smallest_normal_is_zero():
    """ln(2^-126) = -87.3365: the logits on either side of it."""
    assert ids_of([-87.3366, -87.3365, -87.337]) == [1, 0, 2]
    assert ids_of([-87.337, -87.3366, -1000.0]) == [0, 1, 2]
    weights = route(torch.tensor([[-88.0, -87.0, -88.0]]), torch.zeros(3), 2)[1]
    assert weights.tolist() == [[1.0, 0.0]]


def test_one_ulp_decides():
    up = math.nextafter(0.25, 1)  # rounds back to 0.25 in fp32
    ulp = float(np.nextafter(np.float32(0.75), np.float32(1))) - 0.5
    assert ids_of([0.0] * 4, [0.25, 0.0, up, ulp]) == [3, 0, 2]


def test_nan_ranks_below_minus_infinity():
    assert ids_of([NAN, 1.0, NAN, 0.0], k=4) == [1, 3, 0, 2]
    assert ids_of([0.0, NAN, 0.0], [-INF, 0.0, -INF]) == [0, 2, 1]
    assert ids_of([0.0, 0.0, 0.0], [NAN, -INF, 1.0]) == [2, 1, 0]
    negative_nan = torch.full((1, 4), -1, dtype=torch.int32).view(torch.float32)
    ids, weights = route(negative_nan, torch.zeros(4), 3)
    assert ids.tolist() == [[0, 1, 2]] and weights.tolist() == [[0.0, 0.0, 0.0]]


def test_weights_that_would_be_nan_are_zero():
    ids, weights = route(torch.tensor([[0.0, NAN, 0.0], [-INF, -INF, -INF]]), torch.zeros(3), 3)
    assert ids.tolist() == [[0, 2, 1], [0, 1, 2]]
    assert weights.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    # a NaN bias spoils the score, not the weight
    assert route(torch.zeros(1, 2), torch.tensor([NAN, 0.0]), 2)[1].tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes_and_strides(dtype):
    wide = torch.randn(3, 50, generator=torch.Generator().manual_seed(1)).to(dtype)
    bias = torch.randn(40, generator=torch.Generator().manual_seed(2)).to(dtype)
    a, b = route(wide[:, 5:45], bias, 4), route(wide[:, 5:45].float().clone(), bias.float(), 4)
    assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


def test_no_tokens():
    ids, weights = route(torch.empty(0, 8), torch.zeros(8), 2)
    assert ids.shape == weights.shape == (0, 2)
    assert routing_faults(ids, weights, torch.empty(0, 8), torch.zeros(8)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_oracle_passes_its_comparator(dtype):
    logits, bias = randn(512, dtype)
    ids, weights = route(logits, bias, K, 2.0)
    assert routing_faults(ids, weights, logits, bias, 2.0) == []
    special = torch.tensor([NAN, INF, -INF, 40.0, 100.0, 0.0, -0.0, -90.0])[torch.arange(2 * E) % 7].view(2, E)
    bias[::5] = torch.tensor([NAN, -INF, INF]).repeat(60)
    assert routing_faults(*route(special, bias, K), special, bias) == []


def test_bits_of_another_sigmoid_pass():
    """fp32 throughout: a few ulp off, some rows reordered."""
    logits, bias = randn(512)
    s = 1 / (1 + torch.exp(-logits))
    ids = (s + bias).argsort(dim=1, descending=True, stable=True)[:, :K]
    weights = s.gather(1, ids)
    weights = weights / weights.sum(dim=1, keepdim=True)
    assert routing_faults(ids.int(), weights, logits, bias) == []


def planted(change) -> list[str]:
    """Faults of the oracle's own routing of 20 tokens after `change(ids, weights)`."""
    logits, bias = randn(20)
    ids, weights = route(logits, bias, K)
    change(ids, weights)
    return routing_faults(ids, weights, logits, bias)


def swap_slots(ids, weights):
    for t in (ids, weights):
        t[3, [4, 5]] = t[3, [5, 4]]


def swap_border(ids, weights):
    ids[3, 15] = route(*randn(20), K + 1)[0][3, 16]
    weights[:] = torch.from_numpy(recompute(ids))


def recompute(ids: torch.Tensor) -> np.ndarray:
    s = torch.sigmoid(randn(20)[0].double()).gather(1, ids.long())
    return (s / s.sum(dim=1, keepdim=True)).float().numpy()


@pytest.mark.parametrize(
    "change, message",
    [
        (swap_slots, "order: token 3 slot 4"),
        (swap_border, "order: token 3 slot 15"),
        (lambda ids, weights: ids[7, 2].fill_(int(ids[7, 0])), "distinct: token 7 slot 2"),
        (lambda ids, weights: ids[7, 15].fill_(int(ids[7, 14])), "distinct: token 7 slot 15"),
        (lambda ids, weights: ids[7, 2].fill_(E), "range: token 7 slot 2: got expert 896"),
        (lambda ids, weights: ids[0, 0].fill_(-1), "range: token 0 slot 0: got expert -1"),
        (lambda ids, weights: weights[19, 15].mul_(1 + 6 * 2**-23), "weight: token 19 slot 15"),
        (lambda ids, weights: weights[2, 1].fill_(NAN), "weight: token 2 slot 1: got nan"),
        (lambda ids, weights: weights[2, 1].fill_(INF), "weight: token 2 slot 1: got inf"),
    ],
)
def test_planted_faults_are_named(change, message):
    faults = planted(change)
    assert len(faults) == 1
    assert faults[0].startswith(message.replace("nan", "np.float32(nan)").replace("inf", "np.float32(inf)")), faults


@pytest.mark.parametrize("ulps, ok", [(4, True), (12, False)])
def test_any_order_inside_a_small_gap(ulps, ok):
    """Scores 0.5 + bias, the second a few ulp larger: the wrong order is a fault above 8 of them only."""
    bias = torch.tensor([0.25, 0.25 + ulps * 2**-24, -1.0])
    want, weights = route(torch.zeros(1, 3), bias, 2)
    assert want.tolist() == [[1, 0]]
    ids = torch.tensor([[0, 1]], dtype=torch.int32)
    assert (routing_faults(ids, weights, torch.zeros(1, 3), bias) == []) is ok
    border = torch.tensor([[0]], dtype=torch.int32)
    assert (routing_faults(border, torch.ones(1, 1), torch.zeros(1, 3), bias) == []) is ok


def test_equal_inputs_tie_on_every_device():
    """Same logit and bias: no rounding can part them, so the lower id comes first, at the border too."""
    logits, bias = torch.tensor([[0.3, 0.3, 0.3, 5.0]]), torch.zeros(4)
    for got in ([3, 1], [3, 2], [0, 3]):
        _, weights = route(logits[:, got], torch.zeros(2), 2)
        if got[1] == 3:
            weights = weights.flip(1)
        assert routing_faults(torch.tensor([got], dtype=torch.int32), weights, logits, bias)[0].startswith("order")
    for logits, bias in (
        (torch.full((1, 3), NAN), torch.zeros(3)),
        (torch.tensor([[1.0, 2.0, 3.0]]), torch.full((3,), -INF)),
        (torch.tensor([[1.0, NAN, 3.0]]), torch.full((3,), NAN)),
    ):
        assert len(routing_faults(*swapped(logits, bias), logits, bias)) == 1


def swapped(logits: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    ids, weights = route(logits, bias, 2)
    return ids.flip(1), weights.flip(1)


def test_nan_before_a_number_is_a_fault():
    logits, bias = torch.tensor([[NAN, 1.0, -INF]]), torch.tensor([0.0, 0.0, -INF])
    ids, weights = torch.tensor([[1, 0]], dtype=torch.int32), torch.tensor([[1.0, 0.0]])
    assert "expected expert 2 (score np.float32(-inf))" in routing_faults(ids, weights, logits, bias)[0]


@pytest.mark.parametrize("gap, ok", [(2e-7, True), (-2e-7, True), (1e-6, False), (-1e-6, False)])
def test_a_cancelled_score_is_as_uncertain_as_its_sigmoid(gap, ok):
    """Scores 0.5 - 0.49 and 0.01 + 0: 8 ulp are 4.8e-7 of the first sigmoid, 7.5e-9 of the second."""
    s = torch.sigmoid(torch.tensor([0.0, -4.595]))
    logits, bias = torch.tensor([[0.0, -4.595]]), torch.stack([s[1] - s[0] + gap, torch.tensor(0.0)])
    assert (routing_faults(*swapped(logits, bias), logits, bias) == []) is ok


def test_wrong_shapes_and_dtypes_are_faults():
    logits, bias = randn(2)
    ids, weights = route(logits, bias, K)
    assert routing_faults(ids[:1], weights[:1], logits, bias)[0].startswith("shapes")
    assert routing_faults(ids.long(), weights, logits, bias)[0].startswith("dtypes")
