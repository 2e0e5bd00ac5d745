"""The MX oracle against torch's fp8 cast, known bytes and hand-computed values and addresses."""

import math

import numpy as np
import pytest
import torch

from vllm_k3moe.reference import (
    dequantise_mxfp4,
    dequantise_mxfp8,
    quantise_mxfp4,
    quantise_mxfp8,
    scale_offset,
    scatter_scales,
)

pytestmark = pytest.mark.host
NAN, INF = float("nan"), float("inf")
BF16_MAX = torch.finfo(torch.bfloat16).max
QUANTISE = {"mxfp8": quantise_mxfp8, "mxfp4": quantise_mxfp4}
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def group(*values: float) -> torch.Tensor:
    """fp32 [1, 32]: the values, then zeros."""
    return torch.nn.functional.pad(torch.tensor(values), (0, 32 - len(values)))[None]


def all_bf16() -> torch.Tensor:
    return torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


@pytest.mark.parametrize(
    "mode, amax, byte",
    [
        *[("mxfp8", a, b) for a, b in [(0, 85), (1e-39, 85), (1, 119), (448, 127), (450, 128), (1e4, 132)]],
        *[("mxfp8", a, b) for a, b in [(65504, 135), (BF16_MAX, 247), (INF, 255), (-INF, 255), (NAN, 255)]],
        ("mxfp8", float(np.nextafter(np.float32(448), np.float32(449))), 128),
        *[("mxfp4", a, b) for a, b in [(0, 92), (0.5, 124), (1, 125), (3, 126), (4, 127), (6, 127), (7, 128)]],
        *[("mxfp4", a, b) for a, b in [(448, 134), (65504, 141), (BF16_MAX, 253), (INF, 255), (-INF, 255), (NAN, 255)]],
    ],
)
def test_known_scales(mode, amax, byte):
    for x in (group(0.0, amax), group(-amax)):
        assert QUANTISE[mode](x)[1].tolist() == [[byte]]


@pytest.mark.parametrize("mode, top", [("mxfp8", 448.0), ("mxfp4", 6.0)])
def test_scale_is_the_smallest_that_fits(mode, top):
    """fp64 logarithm instead of fp32 bits, for every finite bf16 above the floor."""
    x = all_bf16()
    x = x[x.isfinite() & (x.abs() > 1e-10)]
    scales = QUANTISE[mode](torch.nn.functional.pad(x[:, None], (0, 31)))[1].flatten()
    want = [math.ceil(math.log2(a / top)) + 127 for a in x.abs().double().tolist()]
    assert scales.tolist() == want


def test_e4m3_rounding_is_torchs():
    """Every finite bf16 of magnitude up to 448, and every tie and its fp32 neighbours, in groups of scale 1."""
    codes = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    ties = (codes[1:] + codes[:-1]) / 2
    x = torch.cat([all_bf16().float(), ties, ties.nextafter(ties + 1), ties.nextafter(ties - 1), -ties])
    x = x[x.abs() <= 448]
    x = torch.nn.functional.pad(x, (0, -len(x) % 31)).view(-1, 31)
    x = torch.cat([torch.full((len(x), 1), 448.0), x], dim=1)
    rows, scales = quantise_mxfp8(x)
    assert (scales == 127).all()
    assert torch.equal(rows, x.to(torch.float8_e4m3fn).view(torch.uint8))


def test_e2m1_rounding_by_hand():
    values = [0.25, 0.26, 0.75, 0.74, 1.25, 1.26, 1.75, 2.5, 2.51, 3.5, 3.49, 5.0, 5.01, 6.0, 1e-39, -0.25, -0.75, -5.0]
    codes = [0, 1, 2, 1, 2, 3, 4, 4, 5, 6, 5, 6, 7, 7, 0, 8, 10, 14]
    packed, scales = quantise_mxfp4(group(*values))
    assert scales.tolist() == [[127]]
    assert [b >> s & 15 for b in packed[0].tolist() for s in (0, 4)] == codes + [0] * 14


def test_low_nibble_is_the_even_column():
    packed, _ = quantise_mxfp4(group(6.0, -1.0, 0.5))
    assert packed[0, :3].tolist() == [0xA7, 0x01, 0x00]


def test_signed_zeros_keep_their_sign():
    x = group(-0.0, 0.0, 448.0, -1e-6)
    assert quantise_mxfp8(x)[0][0, :4].tolist() == [0x80, 0x00, 0x7E, 0x80]
    assert quantise_mxfp4(group(-0.0, 0.0, 6.0, -1e-6))[0][0, :2].tolist() == [0x08, 0x87]
    assert quantise_mxfp8(torch.full((1, 32), -0.0))[0].unique().tolist() == [0x80]


@pytest.mark.parametrize("bad", [NAN, -NAN, INF, -INF])
def test_nan_and_inf_take_their_group_and_no_other(bad):
    x = torch.randn(2, 96, generator=torch.Generator().manual_seed(0))
    clean = {mode: quantise(x) for mode, quantise in QUANTISE.items()}
    x[1, 40] = bad
    for mode, quantise in QUANTISE.items():
        (rows, scales), (clean_rows, clean_scales) = quantise(x), clean[mode]
        width = rows.shape[1] // 3
        special = {"mxfp8": 0x7F, "mxfp4": 0}[mode]
        assert rows[1, width : 2 * width].unique().tolist() == [special] and scales[1, 1] == 255
        rows[1, width : 2 * width], scales[1, 1] = clean_rows[1, width : 2 * width], clean_scales[1, 1]
        assert torch.equal(rows, clean_rows) and torch.equal(scales, clean_scales)
    for back in (dequantise_mxfp8(*quantise_mxfp8(x)), dequantise_mxfp4(*quantise_mxfp4(x))):
        assert back[1, 32:64].isnan().all() and back.isnan().sum() == 32


def test_one_huge_value_among_tiny_ones():
    x = group(-3e4, 1.0, 31.0)
    assert quantise_mxfp4(x)[0][0, :2].tolist() == [0x0F - 1, 0x00]  # scale 2^13: -3e4 -> -3.66 -> -4, the rest -> 0
    assert dequantise_mxfp8(*quantise_mxfp8(x))[0, :3].tolist() == [-30720.0, 1.0, 32.0]


def test_dequantise_every_code():
    codes = torch.arange(256, dtype=torch.uint8).view(1, 256)
    scales = torch.full((1, 8), 130, dtype=torch.uint8)
    want = codes.view(torch.float8_e4m3fn).float() * 8
    assert torch.equal(dequantise_mxfp8(codes, scales).nan_to_num(7.5), want.nan_to_num(7.5))
    nibbles = [v for high in range(16) for low in range(16) for v in (low, high)]
    signed = torch.tensor(E2M1 + [-v for v in E2M1])
    got = dequantise_mxfp4(codes, scales.repeat(1, 2))
    assert torch.equal(got, signed[nibbles][None] * 8)
    assert got.signbit()[0, 16]  # the low nibble of byte 8: -0.0


@pytest.mark.parametrize("byte, scale", [(0, 2.0**-127), (85, 2.0**-42), (127, 1.0), (254, 2.0**127)])
def test_dequantise_scales(byte, scale):
    one, e8m0 = torch.full((1, 32), 0x38, dtype=torch.uint8), torch.full((1, 1), byte, dtype=torch.uint8)
    assert dequantise_mxfp8(one, e8m0).unique().tolist() == [scale]
    assert dequantise_mxfp4(one[:, :16] - 0x16, e8m0).unique().tolist() == [scale]  # 0x22


@pytest.mark.parametrize("mode, error", [("mxfp8", 2**-4), ("mxfp4", 2**-2)])
def test_round_trip_of_any_width(mode, error):
    """Half a step of the largest element: 3584 = 7 * 512 columns, and the last group counts."""
    x = torch.randn(3, 3584, generator=torch.Generator().manual_seed(5)).to(torch.bfloat16)
    rows, scales = QUANTISE[mode](x)
    assert (rows.shape[1], scales.shape[1]) == ({"mxfp8": 3584, "mxfp4": 1792}[mode], 112)
    back = {"mxfp8": dequantise_mxfp8, "mxfp4": dequantise_mxfp4}[mode](rows, scales)
    amax = x.float().view(3, 112, 32).abs().amax(dim=2).repeat_interleave(32, dim=1)
    assert ((back - x.float()).abs() <= error * amax).all()
    assert (back[:, -32:] != 0).any()


@pytest.mark.parametrize("mode", QUANTISE)
def test_shapes(mode):
    with pytest.raises(ValueError, match="48"):
        QUANTISE[mode](torch.zeros(1, 48))
    assert QUANTISE[mode](torch.zeros(0, 64))[1].shape == (0, 2)
    wide = torch.randn(3, 200, generator=torch.Generator().manual_seed(6)).to(torch.bfloat16)
    a, b = QUANTISE[mode](wide[:, 8:72]), QUANTISE[mode](wide[:, 8:72].float().clone())
    assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


def test_address_by_hand():
    """K3: 112 padded groups, so a 32-row tile is 3584 bytes; within it 8 groups of 32 rows are 256 bytes."""
    assert scale_offset(0, 0, 112) == 0
    assert scale_offset(16, 0, 112) == 1
    assert scale_offset(0, 4, 112) == 2
    assert scale_offset(1, 0, 112) == 4
    assert scale_offset(0, 1, 112) == 64
    assert scale_offset(0, 8, 112) == 256
    assert scale_offset(32, 0, 112) == 3584
    assert scale_offset(53, 14, 112) == 3584 + 256 + 2 * 64 + 5 * 4 + 2 + 1  # row 32 + 16 + 5, group 8 + 4 + 2


@pytest.mark.parametrize("rows, groups", [(32, 8), (96, 16), (64, 112)])
def test_address_is_a_bijection(rows, groups):
    address = scale_offset(np.arange(rows)[:, None], np.arange(groups)[None, :], groups)
    assert np.array_equal(np.sort(address, axis=None), np.arange(rows * groups))


def test_address_as_a_shuffle():
    """The layout as a transposition: tile, row half, row | group tile, group half, group."""
    plain = np.arange(96 * 16).reshape(96, 16)
    shuffled = plain.reshape(3, 2, 16, 2, 2, 4).transpose(0, 3, 5, 2, 4, 1).ravel()
    for row, column in ((0, 0), (17, 5), (95, 15), (40, 9)):
        assert shuffled[scale_offset(row, column, 16)] == plain[row, column]


def test_scatter_writes_real_rows_only():
    scales = torch.arange(1, 19, dtype=torch.uint8).view(3, 6)
    pad = 2 << 24 | 3
    sorted_ids = torch.tensor([1 << 24 | 2, pad, 0, 1 << 24 | 0, pad], dtype=torch.int32)
    data, written = scatter_scales(scales, sorted_ids, 3, 32, 8)
    assert data.shape == written.shape == (256,) and written.sum() == 3 * 6
    for row, token in ((0, 2), (2, 0), (3, 0)):
        assert [int(data[scale_offset(row, g, 8)]) for g in range(6)] == scales[token].tolist()
        assert all(written[scale_offset(row, g, 8)] for g in range(6))
        assert not any(written[scale_offset(row, g, 8)] for g in (6, 7))
    assert not any(written[scale_offset(row, g, 8)] for row in (1, 4, 5, 31) for g in range(8))


@pytest.mark.parametrize("quantise, top", [(quantise_mxfp8, 448), (quantise_mxfp4, 6)])
def test_a_reciprocal_as_aiter_takes_it_gives_the_same_scales(quantise, top):
    """AITER scales by amax * fp32(1/top), rounded up; every positive finite bf16 as the amax of a group."""
    amax = torch.arange(0x7F80, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    quotient = amax.float().clamp(min=1e-10) * torch.tensor(1 / top, dtype=torch.float32)
    bits = quotient.view(torch.int32)
    want = (bits >> 23) + (bits & 0x7FFFFF != 0).int()
    rows = torch.nn.functional.pad(amax[:, None], (0, 31))
    assert torch.equal(quantise(rows)[1][:, 0].int(), want)
