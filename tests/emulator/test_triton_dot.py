"""Matrix products of Triton kernels on emulated gfx950: each type's MFMA, its layouts, LDS and software pipelines.

Operands are small integers, times a power of 2 for each row of A and column of B: sums are exact in any order, so a
result must equal the oracle's bit for bit. How MFMA rounds what is not exact is not known well enough to be tested.
"""

from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl

from launching import build, exact, run

pytestmark = pytest.mark.on("gfx950")


class Format(NamedTuple):
    dtype: torch.dtype
    largest: int  # integer of the operands
    exponents: int  # of the rows' powers of 2, either way


FORMATS = {
    "f64": Format(torch.float64, 2**20, 100),
    "f32": Format(torch.float32, 511, 20),
    "f16": Format(torch.float16, 255, 6),
    "bf16": Format(torch.bfloat16, 127, 20),
    "e4m3": Format(torch.float8_e4m3fn, 15, 4),
    "e5m2": Format(torch.float8_e5m2, 7, 10),
    "i8": Format(torch.int8, 128, 0),
}


def operand(name: str, rows: int, k: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """What is stored, and its values in f64."""
    if name == "e2m1":
        magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
        codes = torch.cat([magnitudes, -magnitudes])
        packed = torch.randint(0, 256, (rows, k // 2), generator=rng)
        return packed.to(torch.uint8), codes[torch.stack([packed & 15, packed >> 4], dim=-1)].view(rows, k)
    dtype, largest, exponents = FORMATS[name]
    integers = torch.randint(-largest, largest + (dtype != torch.int8), (rows, k), generator=rng).double()
    values = integers * torch.exp2(torch.randint(-exponents, exponents + 1, (rows, 1), generator=rng))
    assert torch.equal(values.to(dtype).double(), values)
    return values.to(dtype), values


@triton.jit
def dot_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr, ACC: tl.constexpr
):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    at_a = a + m[:, None] * K + k[None, :]
    at_b = b + (n[None, :] * K + k[:, None] if TRANSPOSED else k[:, None] * N + n[None, :])
    acc = tl.zeros((BM, BN), ACC)
    for _ in range(tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(at_a), tl.load(at_b), acc, out_dtype=ACC)
        at_a += BK
        at_b += BK if TRANSPOSED else BK * N
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty))


def check_dot(rng, mfma, name, shape, block, transposed=False, out=torch.float32, **options):
    """C[M, N] = A[M, K] B[K, N] by this instruction; returns the kernel. `transposed`: B lies in memory as [N, K]."""
    (M, N, K), (BM, BN, BK) = shape, block
    a, a_values = operand(name, M, K, rng)
    b, b_values = operand(name, N, K, rng)
    b = b if transposed else b.t().contiguous()
    c = torch.zeros(M, N, dtype=out)
    acc = {torch.int32: tl.int32, torch.float64: tl.float64}.get(out, tl.float32)
    blocks = {"BM": BM, "BN": BN, "BK": BK}
    kernel = build(dot_kernel, a, b, c, M, N, K, TRANSPOSED=transposed, ACC=acc, **blocks, **options)
    stats = kernel.launch((M // BM, N // BN), a, b, c, M, N, K)
    assert "v_mfma_" + mfma in stats.histogram
    exact(c, (a_values @ b_values.t()).to(out))
    return kernel


OF_16: dict[str, Any] = {"matrix_instr_nonkdim": 16}
OF_32: dict[str, Any] = {"matrix_instr_nonkdim": 32}
PIPELINED: dict[str, Any] = {"num_stages": 2, "num_warps": 4}
THREE_STAGES: dict[str, Any] = {"num_stages": 3, "num_warps": 4, "small": False}
TRANSPOSED: dict[str, Any] = {"transposed": True}
DOTS = {  # MFMA, operands, shape, block, options
    "bf16, 16x16": ("f32_16x16x32_bf16", "bf16", (32, 32, 128), (32, 32, 64), OF_16),
    "bf16, 32x32": ("f32_32x32x16_bf16", "bf16", (64, 64, 64), (64, 64, 32), OF_32),
    "bf16, transposed": (
        "f32_32x32x16_bf16",
        "bf16",
        (32, 64, 128),
        (32, 64, 64),
        {**TRANSPOSED, "out": torch.bfloat16},
    ),
    "bf16, pipelined": ("f32_32x32x16_bf16", "bf16", (128, 128, 256), (128, 128, 64), PIPELINED),
    "bf16, transposed, pipelined": (
        "f32_32x32x16_bf16",
        "bf16",
        (128, 128, 256),
        (128, 128, 64),
        TRANSPOSED | PIPELINED,
    ),
    "bf16, three stages": ("f32_32x32x16_bf16", "bf16", (128, 64, 256), (128, 64, 64), THREE_STAGES),
    "f16, 16x16": ("f32_16x16x32_f16", "f16", (32, 32, 64), (32, 32, 64), OF_16),
    "f16, 32x32": ("f32_32x32x16_f16", "f16", (32, 32, 64), (32, 32, 64), OF_32),
    "f32, 16x16": ("f32_16x16x4_f32", "f32", (32, 32, 32), (32, 32, 32), OF_16),
    "f32, 32x32": ("f32_32x32x2_f32", "f32", (32, 32, 32), (32, 32, 32), OF_32),
    "f64": ("f64_16x16x4_f64", "f64", (16, 16, 16), (16, 16, 16), {"out": torch.float64}),
    "e4m3, 16x16": ("f32_16x16x128_f8f6f4", "e4m3", (64, 64, 256), (64, 64, 128), OF_16),
    "e4m3, 32x32": ("f32_32x32x64_f8f6f4", "e4m3", (64, 64, 256), (64, 64, 128), OF_32),
    "e4m3, transposed": ("f32_32x32x64_f8f6f4", "e4m3", (64, 64, 128), (64, 64, 128), TRANSPOSED | OF_32),
    "i8, 16x16": ("i32_16x16x64_i8", "i8", (32, 32, 128), (32, 32, 128), {"out": torch.int32, **OF_16}),
    "i8, 32x32": ("i32_32x32x32_i8", "i8", (32, 32, 128), (32, 32, 128), {"out": torch.int32, **OF_32}),
}


@pytest.mark.parametrize("case", DOTS)
def test_dot(case, rng):
    *fixed, options = DOTS[case]
    check_dot(rng, *fixed, **options)


def test_accumulators_in_agprs(rng):
    """So many accumulators that the compiler puts some of them into AGPRs."""
    kernel = check_dot(rng, "f32_32x32x16_bf16", "bf16", (256, 256, 64), (256, 256, 32), num_warps=4)
    assert kernel.resources()["agpr"] > 0


@triton.jit
def scaled_kernel(
    a,
    a_scale,
    b,
    b_scale,
    c,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    BK: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
    A_PACK: tl.constexpr,
    B_PACK: tl.constexpr,
):
    m, n, group = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK // 32)
    at_a = a + m[:, None] * (K // A_PACK) + tl.arange(0, BK // A_PACK)[None, :]
    at_b = b + n[None, :] * (K // B_PACK) + tl.arange(0, BK // B_PACK)[:, None]
    acc = tl.zeros((M, N), tl.float32)
    for i in range(K // BK):
        va, vb = tl.load(at_a + i * (BK // A_PACK)), tl.load(at_b + i * (BK // B_PACK))
        sb = tl.load(b_scale + n[:, None] * (K // 32) + group[None, :] + i * (BK // 32))
        if A == "bf16":
            acc = tl.dot_scaled(va, None, A, vb, sb, B, acc)
        else:
            sa = tl.load(a_scale + m[:, None] * (K // 32) + group[None, :] + i * (BK // 32))
            acc = tl.dot_scaled(va, sa, A, vb, sb, B, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)


def scales(rows: int, k: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """E8M0 scales of groups of 32, and the factor of each element. A row's scales differ little, or sums round."""
    row, group = torch.randint(-20, 21, (rows, 1), generator=rng), torch.randint(-1, 2, (rows, k // 32), generator=rng)
    return (127 + row + group).to(torch.uint8), torch.exp2((row + group).double()).repeat_interleave(32, dim=1)


SCALED_DOTS = {  # MFMA, A, B, shape, block of K, options
    "e2m1, 16x16": ("scale_f32_16x16x128_f8f6f4", "e2m1", "e2m1", (32, 32, 256), 128, OF_16),
    "e2m1, 32x32": ("scale_f32_32x32x64_f8f6f4", "e2m1", "e2m1", (64, 64, 128), 128, OF_32),
    "e4m3, 16x16": ("scale_f32_16x16x128_f8f6f4", "e4m3", "e4m3", (32, 32, 256), 128, OF_16),
    "e4m3, 32x32": ("scale_f32_32x32x64_f8f6f4", "e4m3", "e4m3", (64, 64, 128), 128, OF_32),
    "e4m3 by e2m1": ("scale_f32_32x32x64_f8f6f4", "e4m3", "e2m1", (32, 32, 256), 128, {}),
    "e5m2 by e2m1": ("scale_f32_32x32x64_f8f6f4", "e5m2", "e2m1", (32, 32, 128), 128, {}),
    "bf16 by e2m1": ("f32_32x32x16_bf16", "bf16", "e2m1", (32, 32, 128), 128, {}),  # no scales of A; B is widened
    "e2m1, pipelined": ("scale_f32_32x32x64_f8f6f4", "e2m1", "e2m1", (64, 128, 1024), 256, {"num_stages": 2}),
}


@pytest.mark.parametrize("case", SCALED_DOTS)
def test_scaled_dot(case, rng):
    mfma, a_format, b_format, shape, block_k, options = SCALED_DOTS[case]
    M, N, K = shape
    a, a_values = operand(a_format, M, K, rng)
    b, b_values = operand(b_format, N, K, rng)
    a_scale, a_factor = scales(M, K, rng)
    b_scale, b_factor = scales(N, K, rng)
    if a_format == "bf16":
        a_factor = torch.ones_like(a_factor)
    c = torch.zeros(M, N)
    constants = {"M": M, "N": N, "K": K, "BK": block_k, "A": a_format, "B": b_format}
    packing = {"A_PACK": K // a.shape[1], "B_PACK": K // b.shape[1]}
    stats = run(scaled_kernel, (1,), a, a_scale, b, b_scale, c, **constants, **packing, **options)
    assert "v_mfma_" + mfma in stats.histogram
    exact(c, ((a_values * a_factor) @ (b_values * b_factor).t()).float())
