"""Triton kernels whose lanes and waves exchange values on emulated gfx950: DPP, permlane, LDS, barriers."""

import pytest
import torch
import triton
import triton.language as tl

from launching import exact, near, run

pytestmark = pytest.mark.on("gfx950")


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


@triton.jit
def softmax_kernel(x, y, n, B: tl.constexpr):
    r, o = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + r * n + o, mask=o < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + r * n + o, e / tl.sum(e, 0), mask=o < n)


@pytest.mark.parametrize("n, num_warps", [(60, 1), (781, 4), (3000, 8)])
def test_softmax(n, num_warps, rng):
    x, y = torch.randn(3, n, generator=rng), torch.zeros(3, n)
    run(softmax_kernel, (3,), x, y, n, B=triton.next_power_of_2(n), num_warps=num_warps)
    near(y, torch.softmax(x.double(), 1), rtol=2e-6, atol=1e-9)


@triton.jit
def layernorm_kernel(x, w, b, y, n, eps, B: tl.constexpr):
    r, o = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + r * n + o, mask=o < n, other=0).to(tl.float32)
    d = tl.where(o < n, v - tl.sum(v, 0) / n, 0)
    rstd = 1 / tl.sqrt(tl.sum(d * d, 0) / n + eps)
    scaled = d * rstd * tl.load(w + o, mask=o < n) + tl.load(b + o, mask=o < n)
    tl.store(y + r * n + o, scaled.to(tl.bfloat16), mask=o < n)


def test_layernorm(rng):
    """Launched by Triton, which finds out types and alignment for itself. Within one bf16 step."""
    n = 1000
    x, w, b = torch.randn(4, n, generator=rng).bfloat16(), torch.randn(n, generator=rng), torch.randn(n, generator=rng)
    y = torch.zeros_like(x)
    layernorm_kernel[(4,)](x, w, b, y, n, 1e-5, B=1024, num_warps=8)
    near(y, torch.layer_norm(x.double(), (n,), w.double(), b.double()), rtol=2**-8, atol=1e-5)


@triton.jit
def reduce_kernel(x, columns, rows, largest, where, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(columns + n, tl.sum(v, 0))
    tl.store(rows + m, tl.sum(v, 1))
    tl.store(largest + m, tl.max(v, 1))
    tl.store(where + m, tl.argmax(v, 1))


def test_sums_and_argmax(rng):
    M, N = 32, 128
    x = torch.randint(-1000, 1000, (M, N), generator=rng).int()
    x[:, 77] = x[:, 5]  # so that a tie decides some rows
    x[::4, 5] = x[::4, 77] = 1000
    columns, rows, largest, where = zeros(N), zeros(M), zeros(M), zeros(M)
    run(reduce_kernel, (1,), x, columns, rows, largest, where, M=M, N=N)
    exact(columns, x.sum(0).int())
    exact(rows, x.sum(1).int())
    exact(largest, x.amax(1))
    exact(where.long(), (x == x.amax(1, keepdim=True)).int().argmax(1))  # the first of those that are largest


@triton.jit
def sort_kernel(x, y, N: tl.constexpr, DESCENDING: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(y + o, tl.sort(tl.load(x + o), descending=DESCENDING))


@pytest.mark.parametrize("dtype, descending", [(torch.int32, False), (torch.float32, True)], ids=["i32", "f32"])
def test_sort(dtype, descending, rng):
    bits = torch.randint(-(2**31), 2**31 - 1, (1024,), generator=rng).int()
    x = bits if dtype == torch.int32 else torch.randn(1024, generator=rng)
    y = torch.zeros_like(x)
    run(sort_kernel, (1,), x, y, N=1024, DESCENDING=descending)
    exact(y, x.sort(descending=descending).values)


@triton.jit
def topk_kernel(x, y, N: tl.constexpr, K: tl.constexpr):
    tl.store(y + tl.arange(0, K), tl.topk(tl.load(x + tl.arange(0, N)), K))


def test_topk(rng):
    x, y = torch.randn(1024, generator=rng), torch.zeros(16)
    run(topk_kernel, (1,), x, y, N=1024, K=16)
    exact(y, x.topk(16).values)


@triton.jit
def histogram_kernel(x, counts, sums, N: tl.constexpr, E: tl.constexpr):
    histogram = tl.histogram(tl.load(x + tl.arange(0, N)), E)
    tl.store(counts + tl.arange(0, E), histogram)
    tl.store(sums + tl.arange(0, E), tl.cumsum(histogram, 0))


def test_histogram_and_cumsum(rng):
    x, counts, sums = torch.randint(0, 896, (1024,), generator=rng).int(), zeros(1024), zeros(1024)
    run(histogram_kernel, (1,), x, counts, sums, N=1024, E=1024)
    want = torch.bincount(x, minlength=1024).int()
    exact(counts, want)
    exact(sums, want.cumsum(0).int())


@triton.jit
def gather_kernel(x, index, y, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(y + o, tl.gather(tl.load(x + o), tl.load(index + o), 0))


def test_gather(rng):
    x, index, y = torch.randn(1024, generator=rng), torch.randint(0, 1024, (1024,), generator=rng), torch.zeros(1024)
    run(gather_kernel, (1,), x, index.int(), y, N=1024)
    exact(y, x[index])


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def scan_kernel(x, largest, products, swapped, B: tl.constexpr):
    o = tl.arange(0, B)
    v = tl.load(x + o)
    tl.store(largest + o, tl.associative_scan(v, 0, larger))
    tl.store(products + o, tl.cumprod((v & 1) + 1, 0, reverse=True))
    low, high = tl.split(tl.reshape(v, (B // 2, 2)))
    tl.store(swapped + o, tl.interleave(high, low))


def test_scans_split_interleave(rng):
    """Odd values, which double the products behind them, stand in the last 24 places only: no product overflows."""
    B = 512
    x = torch.randint(-999, 999, (B,), generator=rng).int()
    x[: B - 24] &= ~1
    largest, products, swapped = zeros(B), zeros(B), zeros(B)
    scan_kernel[(1,)](x, largest, products, swapped, B=B)
    exact(largest, x.cummax(0).values)
    exact(swapped, x.view(-1, 2).flip(1).flatten())
    factors = (x & 1) + 1
    exact(products, factors.flip(0).cumprod(0).flip(0).int())
    assert products.min() > 0


@triton.jit
def quantise_kernel(x, q, scales, n, B: tl.constexpr):
    r, o = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + r * n + o, mask=o < n, other=0).to(tl.float32)
    scale = tl.math.div_rn(tl.max(tl.abs(v), 0), 127.0)
    tl.store(scales + r, scale)
    tl.store(q + r * n + o, tl.math.div_rn(v, scale + tl.zeros_like(v)).to(tl.int8), mask=o < n)


def test_int8_quantisation(rng):
    x, q, scales = torch.randn(3, 500, generator=rng).half(), torch.zeros(3, 500, dtype=torch.int8), torch.zeros(3)
    quantise_kernel[(3,)](x, q, scales, 500, B=512)
    want = x.float().abs().amax(1) / 127
    exact(scales, want)
    exact(q, (x.float() / want[:, None]).to(torch.int8))
