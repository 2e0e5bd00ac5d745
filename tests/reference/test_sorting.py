"""The sort oracle by hand, and its bound by brute force."""

from collections import Counter
from itertools import combinations, product

import pytest
import torch

from vllm_k3moe.reference import max_blocks, sort

pytestmark = pytest.mark.host


def test_by_hand():
    """Three tokens, experts 0..5, blocks of 2: expert 4 crosses a block, 1 and 3 are empty."""
    ids = torch.tensor([[4, 0], [5, 4], [2, 4]], dtype=torch.int32)
    weights = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    got = sort(ids, weights, 6, 2)
    pad, second = 2 << 24 | 3, 1 << 24
    assert got.sorted_ids.tolist() == [second | 0, pad, 2, pad, 0, second | 1, second | 2, pad, 1, pad]
    want = torch.tensor([0.2, 0, 0.5, 0, 0.1, 0.4, 0.6, 0, 0.3, 0])
    assert torch.equal(got.sorted_weights, want)
    assert got.sorted_expert_ids.tolist() == [0, 2, 4, 4, 5]
    assert got.num_valid_ids.tolist() == [10, 3]
    assert [t.dtype for t in vars(got).values()] == [torch.int32, torch.float32, torch.int32, torch.int32]


@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("m", [1, 17, 64, 129])
def test_contract(m, block):
    """What docs/contracts.md says of the layout, statement by statement."""
    rng = torch.Generator().manual_seed(m)
    ids = torch.rand(m, 896, generator=rng).argsort(dim=1)[:, :16].int()
    ids[:, 0] = torch.where((ids == 895).any(dim=1), ids[:, 0], 895)  # an expert that crosses every block size
    weights = torch.rand(m, 16, generator=rng)
    got = sort(ids, weights, 896, block)

    rows = int(got.num_valid_ids[0])
    assert rows % block == 0 and len(got.sorted_ids) == len(got.sorted_weights) == rows
    assert len(got.sorted_expert_ids) == rows // block <= max_blocks(m, 16, 896, block)
    row_expert = got.sorted_expert_ids.repeat_interleave(block).tolist()
    assert row_expert == sorted(row_expert)

    seen = []
    for expert, packed, weight in zip(row_expert, got.sorted_ids.tolist(), got.sorted_weights.tolist(), strict=True):
        slot, token = packed >> 24, packed & 0xFFFFFF
        if token == m:
            assert (slot, weight) == (16, 0)
        else:
            assert expert == ids[token, slot] and weight == weights[token, slot]
            seen.append((expert, token))
    assert seen == sorted(set(seen)) and len(seen) == m * 16
    counts = Counter(ids.flatten().tolist())
    assert rows == sum(-(-c // block) * block for c in counts.values())


def test_no_tokens():
    got = sort(torch.empty(0, 16, dtype=torch.int32), torch.empty(0, 16), 896, 32)
    assert got.num_valid_ids.tolist() == [0, 0]
    assert got.sorted_ids.numel() == got.sorted_weights.numel() == got.sorted_expert_ids.numel() == 0


@pytest.mark.parametrize("bad", [-1, 8])
def test_ids_outside_the_experts(bad):
    with pytest.raises(ValueError, match=f"{bad}"):
        sort(torch.tensor([[0, bad]], dtype=torch.int32), torch.ones(1, 2), 8, 16)


@pytest.mark.parametrize("e, k", [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (4, 3)])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
@pytest.mark.parametrize("block", [1, 2, 3, 4])
def test_max_blocks_against_every_routing(m, e, k, block):
    def blocks(routing: tuple[tuple[int, ...], ...]) -> int:
        return sum(-(-c // block) for c in Counter(i for row in routing for i in row).values())

    worst = max(map(blocks, product(combinations(range(e), k), repeat=m)))
    bound = max_blocks(m, k, e, block)
    assert worst <= bound
    further = max(m * k - e, 0) // block
    if further <= e * ((m - 1) // block):  # the cap of M pairs per expert is not in the way
        assert worst == bound


def test_max_blocks_of_k3():
    assert [max_blocks(m, 16, 896, 32) for m in (0, 1, 56, 57, 58, 512)] == [0, 16, 896, 896, 897, 896 + 7296 // 32]
