"""Gluon kernels on emulated gfx950: loads straight to LDS and their waits, MFMA with layouts given by hand.

Each wave reads from LDS what it has itself loaded, so no barrier stands between, only the wait. Triton launches these.
"""

import pytest
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from launching import exact

pytestmark = pytest.mark.on("gfx950")


@gluon.jit
def copy_kernel(x, y, N: gl.constexpr, OUTSTANDING: gl.constexpr, BUFFER: gl.constexpr):
    """Two copies through LDS; the first is read while `OUTSTANDING` may still be under way, the second after all."""
    blocked: gl.constexpr = gl.BlockedLayout([4], [64], [4], [0])
    o = gl.arange(0, N, layout=blocked)
    lds = gl.allocate_shared_memory(gl.float32, [2, N], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    for i in gl.static_range(2):
        if BUFFER:
            gl.amd.cdna4.async_copy.buffer_load_to_shared(lds.index(i), x, o + i * N)
        else:
            gl.amd.cdna4.async_copy.global_load_to_shared(lds.index(i), x + o + i * N)
        gl.amd.cdna4.async_copy.commit_group()
    gl.amd.cdna4.async_copy.wait_group(OUTSTANDING)
    gl.store(y + o, gl.amd.cdna4.async_copy.load_shared_relaxed(lds.index(0), blocked))
    gl.amd.cdna4.async_copy.wait_group(0)
    gl.store(y + N + o, gl.amd.cdna4.async_copy.load_shared_relaxed(lds.index(1), blocked))


def copy(outstanding: int, buffer: bool, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.randn(2, 1024, generator=rng), torch.zeros(2, 1024)
    copy_kernel[(1,)](x, y, N=1024, OUTSTANDING=outstanding, BUFFER=buffer, num_warps=4)
    return x, y


@pytest.mark.parametrize("buffer", [True, False], ids=["buffer", "global"])
def test_copy_through_lds(buffer, rng):
    x, y = copy(1, buffer, rng)
    exact(y, x)


@pytest.mark.parametrize("buffer", [True, False], ids=["buffer", "global"])
def test_a_missing_wait_shows(buffer, rng):
    """What has not been waited for has not landed: LDS still holds what it starts with, which is NaN as f32."""
    x, y = copy(2, buffer, rng)
    assert y[0].isnan().all()
    exact(y[1], x[1])


@gluon.jit
def scaled_kernel(a, a_scale, b, b_scale, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """C[M, N] = A[M, K] B[N, K]', both MXFP4, in one MFMA of 32 by 32 by 64 after another."""
    mfma: gl.constexpr = gl.amd.AMDMFMALayout(
        version=4, instr_shape=[32, 32, 64], transposed=True, warps_per_cta=[2, 2]
    )
    of_a: gl.constexpr = gl.DotOperandLayout(0, mfma, 16)
    of_b: gl.constexpr = gl.DotOperandLayout(1, mfma, 16)
    of_a_scale: gl.constexpr = gl.amd.cdna4.get_mfma_scale_layout(of_a, [M, K // 32])
    of_b_scale: gl.constexpr = gl.amd.cdna4.get_mfma_scale_layout(of_b, [N, K // 32])
    m = gl.arange(0, M, layout=gl.SliceLayout(1, of_a))
    k = gl.arange(0, K // 2, layout=gl.SliceLayout(0, of_a))
    va = gl.amd.cdna4.buffer_load(a, m[:, None] * (K // 2) + k[None, :])
    n = gl.arange(0, N, layout=gl.SliceLayout(0, of_b))
    k = gl.arange(0, K // 2, layout=gl.SliceLayout(1, of_b))
    vb = gl.amd.cdna4.buffer_load(b, n[None, :] * (K // 2) + k[:, None])
    m = gl.arange(0, M, layout=gl.SliceLayout(1, of_a_scale))
    k = gl.arange(0, K // 32, layout=gl.SliceLayout(0, of_a_scale))
    sa = gl.amd.cdna4.buffer_load(a_scale, m[:, None] * (K // 32) + k[None, :])
    n = gl.arange(0, N, layout=gl.SliceLayout(1, of_b_scale))
    k = gl.arange(0, K // 32, layout=gl.SliceLayout(0, of_b_scale))
    sb = gl.amd.cdna4.buffer_load(b_scale, n[:, None] * (K // 32) + k[None, :])
    product = gl.amd.cdna4.mfma_scaled(va, sa, "e2m1", vb, sb, "e2m1", gl.zeros((M, N), gl.float32, mfma))
    m = gl.arange(0, M, layout=gl.SliceLayout(1, mfma))
    n = gl.arange(0, N, layout=gl.SliceLayout(0, mfma))
    gl.amd.cdna4.buffer_store(product, c, m[:, None] * N + n[None, :])


def mxfp4(rows: int, k: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Packed codes, scales, and the values of both in f64: few enough bits that sums of products are exact in f32."""
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    codes = torch.randint(0, 16, (rows, k), generator=rng)
    exponents = torch.randint(-20, 21, (rows, 1), generator=rng) + torch.randint(-1, 2, (rows, k // 32), generator=rng)
    factors = torch.exp2(exponents.double()).repeat_interleave(32, dim=1)
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    values = torch.cat([magnitudes, -magnitudes])[codes] * factors
    return packed.to(torch.uint8), (127 + exponents).to(torch.uint8), values


def test_scaled_mfma(rng):
    M, N, K = 64, 64, 128
    a, a_scale, a_values = mxfp4(M, K, rng)
    b, b_scale, b_values = mxfp4(N, K, rng)
    c = torch.zeros(M, N)
    scaled_kernel[(1,)](a, a_scale, b, b_scale, c, M=M, N=N, K=K, num_warps=4)
    exact(c, (a_values @ b_values.t()).float())
