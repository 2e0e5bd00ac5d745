"""MXFP8 and MXFP4 row quantisation, and the one place that knows where AITER wants a scale byte.

One program quantises one token's slice of SLICE columns: a [groups, 32] tile, one scale per group of 32.

in   x bf16 [M, L], row stride any, L a multiple of 32
out  rows uint8 [M, L] (e4m3fn) or [M, L/2] (e2m1, low nibble first); scales uint8 (e8m0) [M, L/32] in plain order

Scale: the smallest power of two that brings the largest magnitude of the group, at least 1e-10, to the format's
maximum (448 or 6) or below. So no element ever saturates, and the quotient by a power of two is exact.
A group that holds an inf or NaN has scale 255, e8m0's NaN; its elements are then 0x7F (NaN) in MXFP8, 0 in MXFP4.

Rounding is to nearest even by one fp32 addition: adding 2^(23+q) to a magnitude leaves it counted in units of 2^q in
the low mantissa bits. No conversion instruction is used, so the bits are the same on every device and in the
interpreter (whose own fp8 cast rounds halfway cases up and small values down).
"""

import torch
import triton
import triton.language as tl

from . import checks

NONE, MXFP8, MXFP4 = "none", "mxfp8", "mxfp4"
MODES = (NONE, MXFP8, MXFP4)
GROUP = 32  # columns that share a scale
_GROUP = tl.constexpr(GROUP)
_FP8 = tl.constexpr(MXFP8)
_FLOOR = tl.constexpr(0x2EDBE6FF)  # 1e-10
_INF = tl.constexpr(0x7F800000)
_MANTISSA = tl.constexpr(0x7FFFFF)


@triton.jit
def scale_offset(row, group, GROUPS_PADDED: tl.constexpr):
    """Byte that AITER's GEMMs read the scale of (sorted row, column group) from; both int32, broadcast together.

    32 rows x 8 groups are one tile of 256 bytes; a dword of it serves rows x, x+16 and groups y, y+4.
    """
    tile = (row // 32) * (GROUPS_PADDED * 32) + (group // 8) * 256
    return tile + (group % 4) * 64 + (row % 16) * 4 + (group % 8) // 4 * 2 + (row % 32) // 16


@triton.jit
def group_scales(x, MODE: tl.constexpr):
    """e8m0 bytes int32 [groups] of fp32 values [groups, 32]."""
    magnitude = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)  # as integers, so that NaN is the largest
    amax = tl.maximum(magnitude, _FLOOR)
    # 448 = 1.75 * 2^8, 6 = 1.5 * 2^2: round the exponent up when the mantissa of amax exceeds the format's
    if MODE == _FP8:
        byte = (amax >> 23) - 8 + ((amax & _MANTISSA) > 0x600000).to(tl.int32)
    else:
        byte = (amax >> 23) - 2 + ((amax & _MANTISSA) > 0x400000).to(tl.int32)
    return tl.where(magnitude >= _INF, 255, byte)


@triton.jit
def _minifloat(value, MANTISSA_BITS: tl.constexpr, EMIN: tl.constexpr):
    """Round fp32, finite and in range, to a small float of exponent >= EMIN; its code without the sign, int32."""
    magnitude = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    exponent = tl.maximum(magnitude >> 23, 127 + EMIN)
    unit = (exponent + (23 - MANTISSA_BITS)) << 23
    total = magnitude.to(tl.float32, bitcast=True) + unit.to(tl.float32, bitcast=True)
    return ((exponent - (127 + EMIN)) << MANTISSA_BITS) + (total.to(tl.int32, bitcast=True) - unit)


@triton.jit
def encode_groups(x, scale, MODE: tl.constexpr):
    """Quantise fp32 values [groups, 32] by their scale bytes [groups]: uint8 [groups, 32] or, packed, [groups, 16]."""
    special = (scale == 255)[:, None]
    reciprocal = tl.where(special, 0, (254 - scale)[:, None] << 23).to(tl.float32, bitcast=True)
    value = tl.where(special, 0.0, x) * reciprocal
    sign = (x.to(tl.int32, bitcast=True) >> 31) & 1
    if MODE == _FP8:
        code = _minifloat(value, 3, -6) | (sign << 7)
        return tl.where(special, 0x7F, code).to(tl.uint8)
    else:
        code = tl.where(special, 0, _minifloat(value, 1, 0) | (sign << 3))
        low, high = tl.split(tl.reshape(code, (code.shape[0], _GROUP // 2, 2)))
        return (low | (high << 4)).to(tl.uint8)


@triton.jit
def load_groups(x, row_stride, token, first_group, WIDTH: tl.constexpr, GROUPS: tl.constexpr):
    """fp32 [GROUPS, 32] of one token's row of WIDTH columns from a group on; 0 past the row's end."""
    group = first_group + tl.arange(0, GROUPS)[:, None]
    column = group * _GROUP + tl.arange(0, _GROUP)[None, :]
    return tl.load(x + token.to(tl.int64) * row_stride + column, mask=column < WIDTH, other=0.0).to(tl.float32)


@triton.jit
def quantise_slice(
    x, row_stride, rows, scales, token, first_group,
    MODE: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Quantise GROUPS groups of one token; `scales` None: write the rows alone."""
    value = load_groups(x, row_stride, token, first_group, WIDTH, GROUPS)
    scale = group_scales(value, MODE)
    code = encode_groups(value, scale, MODE)
    group = first_group + tl.arange(0, GROUPS)
    live = group < WIDTH // _GROUP
    ROW: tl.constexpr = code.shape[1]  # bytes of a group
    offset = token.to(tl.int64) * (WIDTH // _GROUP * ROW) + group[:, None] * ROW + tl.arange(0, ROW)[None, :]
    tl.store(rows + offset, code, mask=live[:, None])
    if scales is not None:
        tl.store(scales + token.to(tl.int64) * (WIDTH // _GROUP) + group, scale.to(tl.uint8), mask=live)


@triton.jit
def _quantise(
    x, row_stride, rows, scales, MODE: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr
):  # fmt: skip
    quantise_slice(x, row_stride, rows, scales, tl.program_id(0), tl.program_id(1) * GROUPS, MODE, WIDTH, GROUPS)


def row_bytes(width: int, mode: str) -> int:
    """Bytes of one quantised row of `width` columns."""
    return width if mode == MXFP8 else width // 2


def groups_padded(width: int) -> int:
    """Column groups of a row as AITER lays its scales out: a multiple of 8."""
    return triton.cdiv(width // GROUP, 8) * 8


def check_mode(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}; accepted: {', '.join(MODES)}")


def check_width(width: int) -> None:
    checks.integer("columns", width)
    if width <= 0 or width % GROUP:
        raise ValueError(f"rows of {width} columns; accepted: a multiple of {GROUP}, the size of a scale group")


def check_rows(x: torch.Tensor) -> None:
    """The demands of every kernel here that quantises; raises ValueError or TypeError."""
    checks.tensor("x", x, (torch.bfloat16,), (None, None))
    checks.runnable("x", x)
    check_width(x.shape[1])


def quantise(x: torch.Tensor, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise rows: (uint8 [M, L] or [M, L/2], e8m0 uint8 [M, L/32]) of x [M, L]; mode "mxfp8" or "mxfp4"; any M."""
    check_mode(mode)
    check_rows(x)
    if mode == NONE:
        raise ValueError(f"mode={mode!r} quantises nothing; accepted: {MXFP8}, {MXFP4}")
    m, width = x.shape
    rows = torch.empty((m, row_bytes(width, mode)), dtype=torch.uint8, device=x.device)
    scales = torch.empty((m, width // GROUP), dtype=torch.uint8, device=x.device)
    if m:
        groups = 16
        _quantise[(m, triton.cdiv(width // GROUP, groups))](
            x, x.stride(0), rows, scales, MODE=mode, WIDTH=width, GROUPS=groups, num_warps=4
        )
    return rows, scales
