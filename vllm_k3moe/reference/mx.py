"""MX quantisation: groups of 32 columns, one power-of-two scale (an e8m0 byte) each, and where AITER reads that byte.

Scale, "round up": the exponent bits of fp32 max(amax, 1e-10) / top, one more when the quotient's mantissa is not 0;
top is the largest element, 448 for e4m3fn and 6 for e2m1. Hence no element exceeds top. Element: x / scale, rounded to
the nearest value of the format, a tie to the even code, the sign of zero kept.

A group that holds an inf or a NaN has scale byte 255, which is e8m0's NaN. Its elements are fixed by us, so that bits
can be compared: 0x7F (NaN) in MXFP8, 0 in MXFP4, which has no NaN of its own.

AITER, by reading ROCm/aiter at e4048607a5; nothing of it was run:
- Scale: csrc/include/mx_quant_utils.h:136 multiplies amax by fp32(1 / top) instead; the bytes are the same. Its amax
  starts with HIP's max, which drops a NaN (csrc/kernels/quant_kernels.cu:1838): 255 for a NaN is our rule, not AITER's.
- a4w4's stage-1 quantiser is aiter/ops/quant.py:1152: one HIP kernel up to M = 8 * 256 / K, two above (:1112). Its
  elements come from v_cvt_scalef32_pk_fp4_f32 (csrc/include/opus/opus.hpp:1371), round to nearest even according to
  quant.py:957; so is its PyTorch reference (aiter/utility/fp4_utils.py:255). Low nibble = even column (:240).
- The Triton function of the same name (aiter/ops/triton/quant/fused_mxfp4_quant.py:601) rounds differently, scales to
  the nearest and ties away from zero. AITER's fused_moe imports the other one (aiter/fused_moe.py:20).
- Scale bytes of padding rows: the one kernel leaves them as they were (quant_kernels.cu:1804), the two kernels write 0
  at this width (:2115). So nothing may depend on them.
"""

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

GROUP = 32  # columns that share a scale
_FLOOR = np.float32(1e-10)  # of amax
Index = TypeVar("Index", int, NDArray[np.int64])


def _magnitudes(exponent_bits: int, mantissa_bits: int, bias: int) -> NDArray[np.float64]:
    """The value of every code of a small float without its sign, in ascending order."""
    code = np.arange(1 << (exponent_bits + mantissa_bits))
    exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    significand = np.where(exponent == 0, mantissa, mantissa + (1 << mantissa_bits))
    return np.ldexp(significand.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa_bits)


_E4M3 = _magnitudes(4, 3, bias=7)[:-1]  # 0 .. 448; the last code, 0x7F, is NaN
_E2M1 = _magnitudes(2, 1, bias=1)  # 0, 0.5, 1, 1.5, 2, 3, 4, 6


def _nearest(magnitude: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Codes of the nearest values; a tie goes to the even code, what lies above the last value to the last."""
    halfway = (values[:-1] + values[1:]) / 2
    below, above = np.searchsorted(halfway, magnitude, "left"), np.searchsorted(halfway, magnitude, "right")
    return np.where(below % 2 == 0, below, above)  # they differ on a tie only


def _quantise(
    x: torch.Tensor, values: NDArray[np.float64], special: int
) -> tuple[NDArray[np.uint8], NDArray[np.bool_], NDArray[np.uint8]]:
    """Codes without sign [M, L], `special` in groups of scale 255; signs [M, L]; scale bytes [M, L/32]."""
    m, width = x.shape
    if width % GROUP:
        raise ValueError(f"x has {width} columns; accepted: a multiple of {GROUP}")
    group = x.to(torch.float32).numpy().reshape(m, width // GROUP, GROUP)
    amax = np.maximum(np.abs(group).max(axis=2), _FLOOR)  # both maxima pass a NaN on
    bits = (amax / np.float32(values[-1])).view(np.int32)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    scale = np.where((mantissa != 0) & (exponent < 255), exponent + 1, exponent)

    bad = (scale == 255)[:, :, None]
    magnitude = np.where(bad, 0, np.abs(group)).astype(np.float64)
    code = np.where(bad, special, _nearest(np.ldexp(magnitude, 127 - scale[:, :, None]), values))
    sign = np.signbit(group) & ~bad
    return code.reshape(m, width).astype(np.uint8), sign.reshape(m, width), scale.astype(np.uint8)


def quantise_mxfp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x bf16|fp32 [M, L] -> e4m3fn codes uint8 [M, L], scale bytes uint8 [M, L/32]."""
    code, sign, scale = _quantise(x, _E4M3, special=0x7F)
    return torch.from_numpy(code | sign.astype(np.uint8) << 7), torch.from_numpy(scale)


def quantise_mxfp4(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x bf16|fp32 [M, L] -> e2m1 codes uint8 [M, L/2], the even column in the low nibble; scale bytes [M, L/32]."""
    code, sign, scale = _quantise(x, _E2M1, special=0)
    nibble = code | sign.astype(np.uint8) << 3
    return torch.from_numpy(nibble[:, 0::2] | nibble[:, 1::2] << 4), torch.from_numpy(scale)


def _dequantise(value: NDArray[np.float64], scales: torch.Tensor) -> torch.Tensor:
    byte = scales.numpy().astype(np.int64)
    scale = np.where(byte == 255, np.nan, np.ldexp(1.0, byte - 127))
    return torch.from_numpy(value * scale.repeat(GROUP, axis=-1)).to(torch.float32)


def dequantise_mxfp8(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """e4m3fn codes uint8 [..., L], scale bytes uint8 [..., L/32] -> fp32 [..., L]; NaN where a scale is 255."""
    code = codes.numpy()
    value = np.append(_E4M3, np.nan)[code & 0x7F]
    return _dequantise(np.where(code >> 7 == 1, -value, value), scales)


def dequantise_mxfp4(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Packed e2m1 uint8 [..., L/2], scale bytes uint8 [..., L/32] -> fp32 [..., L]; for rows and weights alike."""
    byte = packed.numpy()
    nibble = np.stack([byte & 15, byte >> 4], axis=-1).reshape(*byte.shape[:-1], -1)
    value = _E2M1[nibble & 7]
    return _dequantise(np.where(nibble >> 3 == 1, -value, value), scales)


def scale_offset(row: Index, group: Index, groups_padded: int) -> Index:
    """Byte from which AITER's GEMMs read the scale of a sorted row's column group.

    `groups_padded` is L/32 rounded up to 8. From csrc/include/mx_quant_utils.h:212 of ROCm/aiter.
    """
    return (
        (row // 32 * groups_padded) * 32
        + (group // 8) * 256
        + (group % 4) * 64
        + (row % 16) * 4
        + (group % 8) // 4 * 2
        + (row % 32) // 16
    )


def scatter_scales(
    scales: torch.Tensor, sorted_ids: torch.Tensor, num_tokens: int, rows_padded: int, groups_padded: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every real sorted row's scale bytes, where AITER wants them.

    scales uint8 [M, G] by token; sorted_ids int32 [R], R <= rows_padded, a multiple of 32.
    Returns bytes uint8 [rows_padded * groups_padded] and, of the same shape, which of them are written: neither those
    of padding rows nor those of the groups from G on.
    """
    token = sorted_ids.numpy().astype(np.int64) & 0xFFFFFF
    row = np.flatnonzero(token < num_tokens)
    address = scale_offset(row[:, None], np.arange(scales.shape[1])[None, :], groups_padded)
    data, written = (np.zeros(rows_padded * groups_padded, kind) for kind in (np.uint8, np.bool_))
    data[address] = scales.numpy()[token[row]]
    written[address] = True
    return torch.from_numpy(data), torch.from_numpy(written)
