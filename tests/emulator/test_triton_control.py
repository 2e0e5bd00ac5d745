"""Triton kernels on emulated gfx950 that loop, call functions, spill registers or change layouts through LDS."""

import pytest
import torch
import triton
import triton.language as tl

from launching import build, exact, near, run

pytestmark = pytest.mark.on("gfx950")


@triton.jit
def attention_kernel(q, k, v, out, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """One head a program_id(1); `scale` includes log2(e)."""
    m, n, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    head = tl.program_id(1) * T * D
    query = tl.load(q + head + m[:, None] * D + d[None, :], mask=m[:, None] < T, other=0)
    largest, total = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * BM, T) if CAUSAL else T
    for start in range(0, end, BN):
        s = start + n
        key = tl.load(k + head + s[None, :] * D + d[:, None], mask=s[None, :] < T, other=0)
        seen = s[None, :] < T
        if CAUSAL:
            seen = seen & (m[:, None] >= s[None, :])
        score = tl.where(seen, tl.dot(query, key) * scale, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(score, 1))
        p = tl.exp2(score - new_largest[:, None])
        shrink = tl.exp2(largest - new_largest)
        total = total * shrink + tl.sum(p, 1)
        value = tl.load(v + head + s[:, None] * D + d[None, :], mask=s[:, None] < T, other=0)
        acc = tl.dot(p.to(tl.bfloat16), value, acc * shrink[:, None])
        largest = new_largest
    tl.store(out + head + m[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.bfloat16), mask=m[:, None] < T)


@pytest.mark.parametrize(
    "causal, T, D, options",
    [(False, 200, 64, {}), (True, 256, 128, {"num_stages": 2, "num_warps": 4})],
    ids=["all", "causal, pipelined"],
)
def test_attention(causal, T, D, options, rng):
    """Launched by Triton. Weights are rounded to bf16 on the way, and the result is."""
    q, k, v = (torch.randn(2, T, D, generator=rng).bfloat16() for _ in range(3))
    out = torch.zeros_like(q)
    scale = D**-0.5 * 1.4426950408889634
    attention_kernel[(triton.cdiv(T, 64), 2)](q, k, v, out, T, scale, D=D, BM=64, BN=32, CAUSAL=causal, **options)
    score = q.double() @ k.double().transpose(1, 2) * D**-0.5
    if causal:
        score = score.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
    near(out, score.softmax(-1) @ v.double(), rtol=2e-2, atol=4e-3)


@triton.jit
def spill_kernel(x, y, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(y + tl.arange(0, N), tl.flip(v) + tl.cumsum(v, 0))


def test_spills_to_scratch(rng):
    """64 values a lane, held while others are made, but only 64 VGPRs: waves_per_eu=8 leaves no more."""
    x = torch.randint(-1000, 1000, (4096,), generator=rng).int()
    y = torch.zeros_like(x)
    kernel = build(spill_kernel, x, y, N=4096, num_warps=1, waves_per_eu=8)
    assert kernel.resources()["scratch_bytes_per_lane"] > 0
    kernel.launch((1,), x, y)
    exact(y, x.flip(0) + x.cumsum(0).int())


@triton.jit(noinline=True)
def collatz_steps(n):
    """A loop that each program runs as often as its own number needs."""
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@triton.jit
def call_kernel(y):
    p = tl.program_id(0) + 1
    tl.store(y + p, collatz_steps(p) * 1000 + collatz_steps(p + 27))


def test_calls():
    """A device function that is not inlined, called twice by each of the 4 waves of 8 workgroups."""
    y = torch.zeros(9, dtype=torch.int32)
    assert run(call_kernel, (8,), y).histogram["s_swappc_b64"] == 8 * 4 * 2

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    assert y.tolist() == [0, *(steps(p) * 1000 + steps(p + 27) for p in range(1, 9))]


@triton.jit
def transpose_kernel(x, y, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(y + n[:, None] * M + m[None, :], tl.trans(v))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int64], ids=str)
def test_transpose(dtype, rng):
    bound = torch.iinfo(dtype)
    x = torch.randint(bound.min, bound.max, (64, 32), generator=rng, dtype=dtype)
    y = torch.zeros(32, 64, dtype=dtype)
    run(transpose_kernel, (1,), x, y, M=64, N=32)
    exact(y, x.t().contiguous())


@triton.jit
def random_kernel(integers, floats, seed, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(integers + o, tl.randint(seed, o))
    tl.store(floats + o, tl.rand(seed, o))


def philox(counter: int, seed: int) -> int:
    """The first of the four words of Philox-4x32-10."""
    c0, c1, c2, c3, k0, k1 = counter, 0, 0, 0, seed % 2**32, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b % 2**32, (a >> 32) ^ c3 ^ k1, a % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0


def test_random_numbers():
    """Launched by Triton. 32 by 32 bit multiplications, high and low halves."""
    integers, floats = torch.zeros(128, dtype=torch.int32), torch.zeros(128)
    random_kernel[(1,)](integers, floats, 12345, B=128)
    want = torch.tensor([philox(i, 12345) for i in range(128)])
    exact(integers, want.int())
    positive = torch.where(integers < 0, ~integers, integers)
    exact(floats, positive.float() * 4.6566127342e-10)
