"""The layer oracle: scalar formulas, both forms of the experts, tensor-parallel shards."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from vllm_k3moe.reference import (
    LatentMoEWeights,
    Sorted,
    dense_experts,
    dequantise_mxfp4,
    experts,
    experts_from_sorted,
    latent_moe,
    latent_partials,
    latent_tail,
    quantise_mxfp4,
    route,
    shared_expert,
    situ,
    sort,
)

pytestmark = pytest.mark.host
H, L, E, K, INTER, S, M = 48, 64, 12, 3, 16, 32, 9


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """For matrices this small, waiting for a second OpenMP thread on a busy machine takes 1000 times the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def randn(*shape: int, seed: int = 0, scale: float = 0.3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


W13, W2 = randn(E, 2 * INTER, L, seed=1), randn(E, L, INTER, seed=2)
WEIGHTS = LatentMoEWeights(
    gate=randn(E, H, seed=3),
    bias=randn(E, seed=4),
    latent_down=randn(L, H, seed=5),
    expert_weights=dense_experts(W13, W2),
    shared_gate_up=randn(2 * S, H, seed=6),
    shared_down=randn(H, S, seed=7),
    norm=1 + randn(L, seed=8),
    latent_up=randn(H, L, seed=9),
)
X = randn(M, H, seed=10, scale=2.0).to(torch.bfloat16)


def routing(m: int = M) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """z, ids, weights."""
    return randn(m, L, seed=11, scale=2.0), *route(randn(m, E, seed=12, scale=3.0), torch.zeros(E), K)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * float(b.abs().max()))


def situ_scalar(g: float, u: float) -> float:
    return 4 * math.tanh(g / 4) / (1 + math.exp(-g)) * 25 * math.tanh(u / 25)


@pytest.mark.parametrize("g, u", [(0.0, 1.0), (1.0, 1.0), (-3.0, 40.0), (30.0, -200.0), (2.5, 0.1)])
def test_situ(g, u):
    gate, up = torch.tensor([g, u], dtype=torch.float64)
    assert float(situ(gate, up)) == pytest.approx(situ_scalar(g, u), rel=1e-12, abs=1e-12)
    without = 2 * math.tanh(g / 2) / (1 + math.exp(-g)) * u
    assert float(situ(gate, up, beta=2.0, linear_beta=None)) == pytest.approx(without, rel=1e-12, abs=1e-12)


def test_experts_by_scalars():
    """One token, every index written out; gate rows come before up rows."""
    z, ids, weights = routing(1)
    want = torch.zeros(1, L, dtype=torch.float64)
    for e, w in zip(ids[0].tolist(), weights[0].tolist(), strict=True):
        hidden = [sum(float(W13[e, i, c]) * float(z[0, c]) for c in range(L)) for i in range(2 * INTER)]
        a = [situ_scalar(hidden[i], hidden[INTER + i]) for i in range(INTER)]
        want[0] += torch.tensor([w * sum(float(W2[e, c, i]) * a[i] for i in range(INTER)) for c in range(L)])
    close(experts(z, ids, weights, WEIGHTS.expert_weights), want.float())


@pytest.mark.parametrize("block", [1, 4, 16])
def test_experts_from_sorted_products(block):
    z, ids, weights = routing()
    want = experts(z, ids, weights, WEIGHTS.expert_weights)
    got = sort(ids, weights, E, block)
    close(experts_from_sorted(z, got, M, K, WEIGHTS.expert_weights), want)


def test_experts_read_the_valid_region_only():
    """Buffers as a device has them, larger than needed and full of garbage behind."""
    z, ids, weights = routing()
    valid = sort(ids, weights, E, 4)
    junk = Sorted(
        torch.cat([valid.sorted_ids, torch.full((8,), -1, dtype=torch.int32)]),
        torch.cat([valid.sorted_weights, torch.full((8,), float("nan"))]),
        torch.cat([valid.sorted_expert_ids, torch.full((2,), 999, dtype=torch.int32)]),
        valid.num_valid_ids,
    )
    close(experts_from_sorted(z, junk, M, K, WEIGHTS.expert_weights), experts(z, ids, weights, WEIGHTS.expert_weights))


def test_experts_from_wrong_products():
    """Another expert for a block changes the result; a pair that is missing or double is refused."""
    z, ids, weights = routing()
    good = sort(ids, weights, E, 4)
    want = experts(z, ids, weights, WEIGHTS.expert_weights)
    wrong = experts_from_sorted(
        z, replace(good, sorted_expert_ids=good.sorted_expert_ids.flip(0)), M, K, WEIGHTS.expert_weights
    )
    assert (wrong - want).norm() > 0.1 * want.norm()
    twice = good.sorted_ids.clone()
    twice[twice == (1 << 24 | 4)] = 1 << 24 | 5
    with pytest.raises(ValueError, match=r"token 4 slot 1 .* 0 times"):
        experts_from_sorted(z, replace(good, sorted_ids=twice), M, K, WEIGHTS.expert_weights)


def test_only_chosen_experts_are_asked_for():
    z, ids, weights = routing(1)
    asked = []

    def expert_weights(e: int) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(e)
        return W13[e], W2[e]

    experts(z, ids, weights, expert_weights)
    experts_from_sorted(z, sort(ids, weights, E, 16), 1, K, expert_weights)
    assert asked == sorted(ids[0].tolist()) * 2


def test_experts_of_mxfp4_weights():
    """Quantised weights of one expert at a time are the dense ones of all."""
    packed = [quantise_mxfp4(w) for w in W13]
    dense = torch.stack([dequantise_mxfp4(*p) for p in packed])
    assert 0 < (dense - W13).norm() < 0.2 * W13.norm()
    z, ids, weights = routing()
    got = experts(z, ids, weights, lambda e: (dequantise_mxfp4(*packed[e]), W2[e]))
    assert torch.equal(got, experts(z, ids, weights, dense_experts(dense, W2)))


def test_zero_weight_and_no_tokens():
    z, ids, weights = routing()
    assert (experts(z, ids, torch.zeros_like(weights), WEIGHTS.expert_weights) == 0).all()
    none = torch.empty(0, L), torch.empty(0, K, dtype=torch.int32), torch.empty(0, K)
    assert experts(*none, WEIGHTS.expert_weights).shape == (0, L)
    empty = sort(none[1], none[2], E, 4)
    assert experts_from_sorted(none[0], empty, 0, K, WEIGHTS.expert_weights).shape == (0, L)


def gate_up_shard(w: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """A rank's rows of [..., 2n, D]: its part of the gate's, then its part of the up's."""
    gate, up = w.chunk(2, dim=-2)
    return torch.cat([gate.chunk(ranks, dim=-2)[rank], up.chunk(ranks, dim=-2)[rank]], dim=-2)


@pytest.mark.parametrize("ranks", [2, 4])
def test_tensor_parallel_shards_add_up(ranks):
    """Partials of the ranks sum to the whole layer's; each rank's tail is its columns of the result."""
    shards = [
        replace(
            WEIGHTS,
            expert_weights=dense_experts(gate_up_shard(W13, r, ranks), W2.chunk(ranks, dim=2)[r]),
            shared_gate_up=gate_up_shard(WEIGHTS.shared_gate_up, r, ranks),
            shared_down=WEIGHTS.shared_down.chunk(ranks, dim=1)[r],
            latent_up=WEIGHTS.latent_up.chunk(ranks, dim=0)[r],
        )
        for r in range(ranks)
    ]
    partials = [latent_partials(X, shard, K) for shard in shards]
    y, shared = (torch.stack(part).sum(dim=0) for part in zip(*partials, strict=True))
    whole = latent_partials(X, WEIGHTS, K)
    close(y, whole[0])
    close(shared, whole[1])
    assert (partials[0][0] - y).norm() > 0.1 * y.norm()
    columns = shared.chunk(ranks, dim=1)
    tail = [latent_tail(y, columns[r], WEIGHTS.norm, shards[r].latent_up, 1e-5) for r in range(ranks)]
    close(torch.cat(tail, dim=1), latent_moe(X, WEIGHTS, K))


def test_shared_expert_is_an_expert_that_everyone_takes():
    as_routed = experts(
        X, torch.zeros(M, 1, dtype=torch.int32), torch.ones(M, 1),
        dense_experts(WEIGHTS.shared_gate_up[None], WEIGHTS.shared_down[None]),
    )  # fmt: skip
    close(shared_expert(X, WEIGHTS.shared_gate_up, WEIGHTS.shared_down), as_routed)


def test_tail_by_hand():
    y, shared = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0]])
    rms = math.sqrt(12.5 + 0.5)
    got = latent_tail(y, shared, torch.tensor([2.0, 0.5]), torch.tensor([[1.0, 10.0]]), eps=0.5)
    assert float(got) == pytest.approx(1 + 3 * 2 / rms + 4 * 0.5 * 10 / rms, rel=1e-6)


def test_layer_against_pytorch_pieces():
    """The five steps written once more with torch's own topk, rms_norm and dense experts."""
    x = X.float()
    s = torch.sigmoid(x @ WEIGHTS.gate.T)
    ids = torch.topk(s + WEIGHTS.bias, K).indices
    w = torch.zeros_like(s).scatter(1, ids, s.gather(1, ids))
    w = w / w.sum(dim=1, keepdim=True) * 1.5
    z = (x @ WEIGHTS.latent_down.T).to(torch.bfloat16).float()
    gate, up = torch.einsum("ml,eil->mei", z, W13).chunk(2, dim=2)
    y = torch.einsum("me,mei,eli->ml", w, 4 * (gate / 4).tanh() * gate.sigmoid() * 25 * (up / 25).tanh(), W2)
    gate, up = (x @ WEIGHTS.shared_gate_up.T).chunk(2, dim=1)
    shared = 4 * (gate / 4).tanh() * gate.sigmoid() * 25 * (up / 25).tanh() @ WEIGHTS.shared_down.T
    want = shared + torch.nn.functional.rms_norm(y, (L,), WEIGHTS.norm, 1e-5) @ WEIGHTS.latent_up.T
    close(latent_moe(X, WEIGHTS, K, scaling=1.5), want)
    close(latent_partials(X, WEIGHTS, K, scaling=1.5)[0], y)  # the norm hides the scaling


def test_modes_quantise_the_rows():
    whole = latent_partials(X, WEIGHTS, K)[0]
    error = {
        mode: float((latent_partials(X, WEIGHTS, K, mode=mode)[0] - whole).norm() / whole.norm())
        for mode in ("mxfp8", "mxfp4")
    }
    assert 0.003 < error["mxfp8"] < 0.06 < error["mxfp4"] < 0.3
    with pytest.raises(ValueError, match="int8"):
        latent_partials(X, WEIGHTS, K, mode="int8")
