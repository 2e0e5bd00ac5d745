"""The plugin's inverse of AITER's shuffles against the addresses of `platform/aiter/stages.py`, byte by byte."""

import pytest
import torch
from aiter import stages

from vllm_k3moe.experts.layout import scale_rows, weight_rows

pytestmark = pytest.mark.on("gfx950")
BOTH = pytest.mark.parametrize("interleaved", [False, True])


def some_bytes(*size: int) -> torch.Tensor:
    return torch.randint(0, 256, size, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@BOTH
@pytest.mark.parametrize("rows, columns", [(768, 1792), (3584, 192), (64, 64)])
def test_weights(rows, columns, interleaved):
    plain = some_bytes(2, rows, columns)
    stored = stages.shuffle_weight_a16w4(plain, 16, interleaved)
    for expert in range(2):
        assert torch.equal(weight_rows(stored[expert], interleaved), plain[expert])
        assert not torch.equal(weight_rows(stored[expert], not interleaved), plain[expert])


@BOTH
@pytest.mark.parametrize("rows, groups", [(768, 112), (64, 8)])
def test_scales(rows, groups, interleaved):
    plain = some_bytes(2, rows, groups)
    stored = stages.shuffle_scale_a16w4(plain.view(-1, groups), 2, interleaved).view(2, -1)
    for expert in range(2):
        assert torch.equal(scale_rows(stored[expert], rows, interleaved), plain[expert])
        assert not torch.equal(scale_rows(stored[expert], rows, not interleaved), plain[expert])


def test_scales_of_stage_2_are_padded_to_eight_groups():
    plain = some_bytes(2 * 3584, 12)
    stored = stages.e8m0_shuffle(plain).view(2, -1)
    assert torch.equal(scale_rows(stored[1], 3584)[:, :12], plain[3584:])
