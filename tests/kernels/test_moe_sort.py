"""The plain sort: AITER's layout byte for byte on the valid region, nothing after it."""

import pytest
import torch
import triton
import triton.language as tl

import cases
from vllm_k3moe.kernels import moe_sort as module
from vllm_k3moe.kernels.moe_sort import Sorted, SortExtension, max_blocks, moe_sort
from vllm_k3moe.reference import sort
from vllm_k3moe.shapes import K3_TP8

E, K = K3_TP8.experts, K3_TP8.topk


def check(ids: torch.Tensor, weights: torch.Tensor, e: int, block: int, device: torch.device) -> Sorted:
    got = Sorted(*(t.cpu() for t in moe_sort(ids.to(device), weights.to(device), e, block)))
    want = sort(ids, weights, e, block)
    rows = int(want.num_valid_ids[0])
    assert got.num_valid_ids.tolist() == want.num_valid_ids.tolist()
    assert torch.equal(got.sorted_ids[:rows], want.sorted_ids)
    assert torch.equal(got.sorted_weights[:rows], want.sorted_weights)
    assert torch.equal(got.sorted_expert_ids[: rows // block], want.sorted_expert_ids)
    return got


@pytest.mark.parametrize("block", cases.BLOCKS)
@pytest.mark.tokens(interpreter=(1, 3), gfx950=(*cases.TOKENS, *cases.VERIFY), gpu=(*cases.TOKENS, *cases.VERIFY))
def test_uniform(m, block, device, rng):
    check(cases.uniform(m, E, K, rng), torch.rand(m, K, generator=rng), E, block, device)


@pytest.mark.parametrize("name", cases.routings(1, E, K, torch.Generator()))
@pytest.mark.parametrize("block", cases.BLOCKS)
@pytest.mark.tokens(interpreter=(2,), gfx950=(17, 33, 65), gpu=(1, 15, 16, 17, 33, 64, 65, 129, 512))
def test_skewed(name, m, block, device, rng):
    """Counts that cross 16, 32, 64 and 128; experts at both ends."""
    check(cases.routings(m, E, K, rng)[name], torch.rand(m, K, generator=rng), E, block, device)


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("name", ["all tokens on the same experts", "a hot expert"])
def test_all_tokens_on_one_expert(name, device, rng):
    check(cases.routings(512, E, K, rng)[name], torch.rand(512, K, generator=rng), E, 16, device)


@pytest.mark.parametrize("e, k", [(1, 1), (2, 2), (7, 3), (8, 8), (33, 4), (64, 32), (257, 2), (1000, 8), (1024, 32)])
@pytest.mark.parametrize("m", [1, 40])
def test_any_router(e, k, m, device, rng):
    check(cases.uniform(m, e, k, rng), torch.rand(m, k, generator=rng), e, 16, device)


@pytest.mark.parametrize("m", [1, 7, 40])
def test_nothing_else_is_written(m, device, rng):
    """Poisoned, guarded buffers of the largest size: the valid region is written, and not a byte more."""
    ids, weights, block = cases.uniform(m, 64, 8, rng), torch.rand(m, 8, generator=rng), 32
    blocks = max_blocks(m, 8, 64, block)
    buffers = [
        cases.Guarded((blocks * block,), torch.int32, device),
        cases.Guarded((blocks * block,), torch.float32, device),
        cases.Guarded((blocks,), torch.int32, device),
        cases.Guarded((2,), torch.int32, device),
    ]
    masks = cases.Guarded((m, module.WORDS), torch.int32, device)
    ids, weights = ids.to(device), weights.to(device)
    module.write_masks(ids, masks.tensor, 64)
    module.sort_masked(ids, weights, masks.tensor, Sorted(*(b.tensor for b in buffers)), 64, block)
    want = sort(ids.cpu(), weights.cpu(), 64, block)
    for buffer, expected in zip(buffers, vars(want).values(), strict=True):
        assert buffer.intact()
        size = expected.numel() * 4
        assert torch.equal(buffer.bytes()[:size].view(expected.dtype), expected)
        assert (buffer.bytes()[size:] == cases.POISON).all()
    assert masks.intact()


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("fill", [-1, 0, 1, 5, 31, 59, 63, 64, 1 << 20, -(1 << 31)])
def test_stray_ids_stay_inside(fill, device):
    """Ids that no router gives (out of range, or one expert K times) leave the output undefined, and in bounds."""
    for m, k, e, block in ((9, 8, 64, 32), (2, 1, 1, 16), (3, 2, 2, 16), (40, 4, 60, 128)):
        ids = torch.full((m, k), fill, dtype=torch.int32, device=device)
        got = moe_sort(ids, torch.rand(m, k).to(device), e, block)
        assert int(got.num_valid_ids[0]) <= got.sorted_ids.numel()


def test_weights_keep_their_bits(device):
    ids = torch.tensor([[3, 1], [0, 2]], dtype=torch.int32)
    weights = torch.tensor([[-0.0, 1e-40], [float("inf"), float("nan")]])
    got = moe_sort(ids.to(device), weights.to(device), 4, 16).sorted_weights.cpu()
    assert (
        got[[0, 16, 32, 48]].view(torch.int32).tolist()
        == weights[[1, 0, 1, 0], [0, 1, 1, 0]].view(torch.int32).tolist()
    )


def test_no_tokens(device):
    got = moe_sort(torch.empty(0, K, dtype=torch.int32, device=device), torch.empty(0, K, device=device), E, 32)
    assert got.num_valid_ids.tolist() == [0, 0]
    assert [t.numel() for t in got[:3]] == [0, 0, 0]


@triton.jit
def _count_riders(index, num_tokens, args, CONSTANTS: tl.constexpr):
    tl.store(args[0] + index, index * CONSTANTS[0] + num_tokens)


@pytest.mark.parametrize("block", [16, 32])
def test_every_rider_runs(block, order, device, rng):
    ids, weights = cases.uniform(20, 64, 8, rng).to(device), torch.rand(20, 8, generator=rng).to(device)
    plain = moe_sort(ids, weights, 64, block)
    riders = torch.zeros(5, dtype=torch.int32, device=device)
    extended = moe_sort(ids, weights, 64, block, SortExtension(_count_riders, (riders,), (1000,), 5))
    rows = int(plain.num_valid_ids[0])
    for a, b, size in zip(plain, extended, (rows, rows, rows // block, 2), strict=True):
        assert torch.equal(a[:size], b[:size])
    assert riders.tolist() == [1000 * i + 20 for i in range(5)]
