"""MXFP8 / MXFP4 rows and scales, bit for bit against the oracle."""

import pytest
import torch

from vllm_k3moe.kernels.mx import quantise
from vllm_k3moe.reference import quantise_mxfp4, quantise_mxfp8
from vllm_k3moe.shapes import K3_TP8

L = K3_TP8.latent
ORACLE = {"mxfp8": quantise_mxfp8, "mxfp4": quantise_mxfp4}
MODES = tuple(ORACLE)
NAN, INF = float("nan"), float("inf")
BF16_MAX = torch.finfo(torch.bfloat16).max


def check(x: torch.Tensor, mode: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    rows, scales = (t.cpu() for t in quantise(x.to(device), mode))
    want_rows, want_scales = ORACLE[mode](x)
    assert torch.equal(scales, want_scales)
    assert torch.equal(rows, want_rows)
    return rows, scales


def groups(*firsts: float) -> torch.Tensor:
    """bf16 [1, 32 * n]: groups of zeros but for one value, so that value is the group's amax."""
    x = torch.zeros(len(firsts), 32)
    x[:, 7] = torch.tensor(firsts)
    return x.to(torch.bfloat16).view(1, -1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.tokens(interpreter=(1, 3), gfx950=(1, 2, 33), gpu=(1, 33, 512))
def test_random_rows(m, mode, order, device, rng):
    scale = torch.exp2(torch.randint(-20, 20, (m, L // 32), generator=rng).float()).repeat_interleave(32, dim=1)
    check((torch.randn(m, L, generator=rng) * scale).to(torch.bfloat16), mode, device)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [32, 64, 480, 512, 544, 1024, 2080, 3584])
def test_every_column_of_any_width(width, mode, device, rng):
    check(torch.randn(2, width, generator=rng).to(torch.bfloat16), mode, device)


@pytest.mark.parametrize("mode", MODES)
def test_every_bf16(mode, device):
    """All 65,536 bf16 values, each as the largest of a group beside smaller ones."""
    values = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    rows = values.view(-1, 1) * torch.tensor([1.0, 0.5, -0.75, 0.013, -0.0], dtype=torch.bfloat16)
    check(torch.nn.functional.pad(rows, (0, 27)).reshape(64, -1), mode, device)


@pytest.mark.parametrize("mode", MODES)
def test_every_rounding(mode, device):
    """All bf16 magnitudes of a group whose scale is 1: every code, every halfway point and its neighbours."""
    top = {"mxfp8": 448.0, "mxfp4": 6.0}[mode]
    values = torch.arange(1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    values = values[values <= top]
    values = torch.cat([values, -values])
    values = torch.nn.functional.pad(values, (0, -len(values) % 31)).view(-1, 31)
    x = torch.cat([torch.full((len(values), 1), top, dtype=torch.bfloat16), values], dim=1)
    x = torch.nn.functional.pad(x, (0, 0, 0, -len(x) % 16)).reshape(-1, 512)
    check(x, mode, device)


def test_known_mxfp8_scales(device):
    x = groups(0, 1e-39, 1, 448, 450, 1e4, 65504, BF16_MAX, INF, -INF)
    assert check(x, "mxfp8", device)[1].tolist() == [[85, 85, 119, 127, 128, 132, 135, 247, 255, 255]]


def test_known_mxfp4_scales(device):
    x = groups(0, 0.5, 1, 3, 4, 6, 7, 448, 65504, BF16_MAX, INF)
    assert check(x, "mxfp4", device)[1].tolist() == [[92, 124, 125, 126, 127, 127, 128, 134, 141, 253, 255]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [NAN, -NAN, INF, -INF])
def test_nan_and_inf_stay_in_their_group(bad, mode, device, rng):
    x = torch.randn(1, 96, generator=rng).to(torch.bfloat16)
    clean_rows, clean_scales = check(x, mode, device)
    x[0, 40] = bad
    rows, scales = check(x, mode, device)
    assert scales[0, 1] == 255
    outside = torch.ones(3, rows.shape[1] // 3, dtype=torch.bool)
    outside[1] = False
    assert torch.equal(rows[0][outside.view(-1)], clean_rows[0][outside.view(-1)])
    assert scales[0, [0, 2]].tolist() == clean_scales[0, [0, 2]].tolist()


@pytest.mark.parametrize("mode", MODES)
def test_one_huge_value_and_signed_zeros(mode, device, rng):
    x = torch.randn(1, 64, generator=rng) * 1e-3
    x[0, 13], x[0, 40], x[0, 41] = -3e4, 0.0, -0.0
    check(x.to(torch.bfloat16), mode, device)


@pytest.mark.parametrize("mode", MODES)
def test_row_stride(mode, device, rng):
    wide = torch.randn(3, 200, generator=rng).to(torch.bfloat16).to(device)
    x = wide[:, 8:72]
    rows, _ = quantise(x, mode)
    assert torch.equal(rows.cpu(), ORACLE[mode](x.cpu())[0])


def test_no_tokens(device):
    rows, scales = quantise(torch.empty(0, 64, dtype=torch.bfloat16, device=device), "mxfp4")
    assert (rows.shape, scales.shape) == ((0, 32), (0, 2))
