"""Triton kernels without exchange between lanes on emulated gfx950: loads and stores, conversions, arithmetic."""

import pytest
import torch
import triton
import triton.language as tl

from launching import build, exact, near, run

pytestmark = pytest.mark.on("gfx950")
BUFFER_OR_GLOBAL = pytest.mark.parametrize("small", [True, False], ids=["buffer", "global"])
INF = float("inf")


@triton.jit
def add_kernel(x, y, z, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.load(x + o, mask=o < n, other=0) + tl.load(y + o, mask=o < n, other=0)
    tl.store(z + o, total, mask=o < n)


@BUFFER_OR_GLOBAL
def test_add(small, rng):
    """A masked tail: what lies behind it in the same tensor is not touched."""
    n = 3001
    x, y, z = torch.randn(n, generator=rng), torch.randn(n, generator=rng), torch.full((n + 64,), 7.0)
    run(add_kernel, (3,), x, y, z, n, small=small, B=1024)
    exact(z[:n], x + y)
    exact(z[n:], torch.full((64,), 7.0))


def test_arguments_without_preload(rng):
    """The entry that old firmware takes: the kernel loads into SGPRs what would otherwise lie there when it starts."""
    n = 1000
    x, y = torch.randn(n, generator=rng), torch.randn(n, generator=rng)
    kernel = build(add_kernel, x, y, torch.zeros(n), n, B=1024)
    counts = []
    for preload in (True, False):
        z = torch.zeros(n)
        counts.append(kernel.launch((1,), x, y, z, n, preload=preload).instructions)
        exact(z, x + y)
    assert counts[0] < counts[1]


@triton.jit
def bf16_kernel(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + o, mask=o < n, other=0).to(tl.float32)
    tl.store(y + o, (v * 1.5 + 0.125).to(tl.bfloat16), mask=o < n)


@BUFFER_OR_GLOBAL
def test_bf16(small, rng):
    n = 1500
    x, y = torch.randn(n, generator=rng).bfloat16(), torch.zeros(n, dtype=torch.bfloat16)
    x[:4] = torch.tensor([INF, -INF, 1e-40, 3.3e38])
    run(bf16_kernel, (2,), x, y, n, small=small, B=1024)
    exact(y, (x.double() * 1.5 + 0.125).float().bfloat16())


@triton.jit
def convert_kernel(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n).to(y.dtype.element_ty), mask=o < n)


F32, BF16, F16, FP8, BF8 = torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def values_to_round(source: torch.dtype, narrow: torch.dtype) -> torch.Tensor:
    """Every finite value of the narrow type, the point halfway between any two and its neighbours; both signs."""
    codes = torch.arange(1 << (8 * narrow.itemsize - 1), dtype=torch.int32).to(BITS[narrow.itemsize])
    finite = codes.view(narrow).double()
    finite = finite[finite.isfinite()]
    halfway = ((finite[:-1] + finite[1:]) / 2).to(source)
    bits = halfway.view(BITS[source.itemsize])
    near_halfway = torch.cat([bits - 1, bits, bits + 1]).view(source)
    positive = torch.cat([finite.to(source), near_halfway])
    return torch.cat([positive, -positive])


def check_conversion(source: torch.dtype, target: torch.dtype, small: bool) -> None:
    if source.itemsize == 1:
        x = torch.arange(256, dtype=torch.uint8).view(source)
    else:
        x = values_to_round(source, target)
    y = torch.zeros(len(x), dtype=target)
    run(convert_kernel, (triton.cdiv(len(x), 1024),), x, y, len(x), small=small, B=1024)
    want = x.float().to(target)
    number = ~want.float().isnan()
    exact(y.float().isnan(), ~number)
    exact(y[number].view(BITS[target.itemsize]), want[number].view(BITS[target.itemsize]))


@pytest.mark.parametrize(
    "source, target",
    [
        *[(F32, FP8), (BF16, FP8), (F16, FP8), (F32, BF8), (F32, BF16), (F32, F16)],
        *[(FP8, F32), (FP8, BF16), (FP8, F16), (BF8, F32)],
    ],
    ids=lambda dtype: str(dtype).removeprefix("torch."),
)
def test_conversion(source, target):
    check_conversion(source, target, small=True)


def test_conversion_with_global_loads():
    check_conversion(F32, FP8, small=False)


def test_fp8_saturates():
    """Triton sets MODE.FP16_OVFL around these conversions: what is too large becomes the largest finite value."""
    x = torch.tensor([449.0, 464.0, 1000.0, -3e38, INF, -INF, 448.0, -447.0]).repeat(8)
    y = torch.zeros(64, dtype=FP8)
    run(convert_kernel, (1,), x, y, 64, B=64, num_warps=1)
    exact(y.float(), x.clamp(-448, 448).to(FP8).float())


@triton.jit
def math_kernel(x, y, B: tl.constexpr):
    o = tl.arange(0, B)
    v = tl.load(x + o)
    a = tl.abs(v) + 0.01
    tl.store(y + o, tl.exp(v))
    tl.store(y + B + o, tl.log(a))
    tl.store(y + 2 * B + o, tl.sqrt(a))
    tl.store(y + 3 * B + o, tl.rsqrt(a))
    tl.store(y + 4 * B + o, v / a)
    tl.store(y + 5 * B + o, tl.sigmoid(v))
    tl.store(y + 6 * B + o, tl.erf(v))
    tl.store(y + 7 * B + o, tl.sin(v))
    tl.store(y + 8 * B + o, tl.cos(v))
    tl.store(y + 9 * B + o, tl.floor(v * 10))
    tl.store(y + 10 * B + o, tl.math.div_rn(v, a))
    tl.store(y + 11 * B + o, tl.sqrt_rn(a))


def test_math(rng):
    """Approximations to a few units in the last place; floor, div_rn and sqrt_rn exactly."""
    x = torch.randn(256, generator=rng) * 3
    y = torch.zeros(12, 256)
    run(math_kernel, (1,), x, y, B=256)
    v, a = x.double(), (x.abs() + 0.01).double()
    approximate = [v.exp(), a.log(), a.sqrt(), a.rsqrt(), v / a, v.sigmoid(), torch.erf(v), v.sin(), v.cos()]
    near(y[:9], torch.stack(approximate), rtol=3e-6, atol=3e-6)
    exact(y[9:], torch.stack([(x * 10).floor(), (v / a).float(), a.sqrt().float()]))


@triton.jit
def integer_kernel(x, y, z, B: tl.constexpr):
    o = tl.arange(0, B)
    a, b = tl.load(x + o), tl.load(y + o)
    high = tl.umulhi(a.to(tl.uint32, bitcast=True), b.to(tl.uint32, bitcast=True))
    tl.store(z + o, a // b)
    tl.store(z + B + o, a % b)
    tl.store(z + 2 * B + o, a * b)
    tl.store(z + 3 * B + o, (a.to(tl.int64) * b.to(tl.int64) >> 7).to(tl.int32))
    tl.store(z + 4 * B + o, a << (b & 31))
    tl.store(z + 5 * B + o, a >> (b & 31))
    tl.store(z + 6 * B + o, high.to(tl.int32, bitcast=True))
    tl.store(z + 7 * B + o, (a.to(tl.int64) // b.to(tl.int64)).to(tl.int32))


def test_integers(rng):
    """There are no divide instructions: these are long sequences of others."""
    x = torch.randint(-(2**31), 2**31 - 1, (256,), generator=rng)
    y = torch.randint(1, 50000, (256,), generator=rng)
    y[::3] *= -1
    z = torch.zeros(8, 256, dtype=torch.int32)
    run(integer_kernel, (1,), x.int(), y.int(), z, B=256)
    quotient, shift = torch.div(x, y, rounding_mode="trunc"), y & 31
    high = [(a % 2**32) * (b % 2**32) >> 32 for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    rows = [quotient, x - quotient * y, x * y, x * y >> 7, x << shift, x >> shift, torch.tensor(high), quotient]
    exact(z, torch.stack(rows).int())


@triton.jit
def f64_kernel(x, y, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.store(y + tl.arange(0, B), v * v / (v + 3.0) - tl.sum(v, 0))


def test_f64(rng):
    x = torch.rand(256, dtype=torch.float64, generator=rng)
    y = torch.zeros_like(x)
    run(f64_kernel, (1,), x, y, B=256)
    near(y, x * x / (x + 3) - x.sum(), rtol=1e-13)


@triton.jit
def halve_kernel(x, y, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(y + o, tl.load(x + o) * 0.5)


def test_denormals_are_kept():
    """Triton says so in MODE. Flushed, they and all that comes of 1.5e-38 would be zeros."""
    x, y = torch.full((64,), 1.5e-38), torch.ones(64)
    x[::2] = 3e-40
    run(halve_kernel, (1,), x, y, B=64, num_warps=1)
    want = (x.double() * 0.5).float()
    assert want.min() > 0
    exact(y, want)
