"""The latent tail: within its stated bound of the exact result and of the stock two-step, in its own columns only."""

import pytest
import torch

import cases
from vllm_k3moe.kernels import latent_tail as kernel
from vllm_k3moe.kernels.latent_tail import MAX_TOKENS, latent_tail
from vllm_k3moe.reference import block as oracle
from vllm_k3moe.shapes import K3_TP8, NORM_EPS

H, L = K3_TP8.hidden, K3_TP8.latent
SHARD = H // 8
U = 2.0**-8  # unit roundoff of bf16
TOKENS = tuple(m for m in sorted({*cases.TOKENS, *cases.VERIFY}) if m <= MAX_TOKENS)


class Inputs:
    """y bf16 [m, latent], norm weight, a shard of the up-projection and the whole width of the shared partial."""

    def __init__(self, m: int, rng: torch.Generator, width: int = 64, columns: int = 32, latent: int = L) -> None:
        def normal(*size: int) -> torch.Tensor:
            return torch.randn(*size, generator=rng)

        self.y = (normal(m, latent) * 3).to(torch.bfloat16)
        self.norm = (1 + normal(latent) * 0.1).to(torch.bfloat16)
        self.up = (normal(columns, latent) * latent**-0.5).to(torch.bfloat16)
        self.shared = normal(m, width).to(torch.bfloat16)

    def run(self, device: torch.device, first: int = 0, eps: float = NORM_EPS) -> torch.Tensor:
        """The shared partial [m, width] with the tail added from column `first` on."""
        out = self.shared.to(device, copy=True)
        shard = out[:, first : first + len(self.up)]
        latent_tail(self.y.to(device), self.norm.to(device), eps, self.up.to(device), shard)
        return out.cpu()

    def own(self, whole: torch.Tensor, first: int = 0) -> torch.Tensor:
        return whole[:, first : first + len(self.up)]

    def exact(self, first: int = 0, eps: float = NORM_EPS) -> torch.Tensor:
        return oracle.latent_tail(self.y, self.own(self.shared, first), self.norm, self.up, eps).double()

    def sums(self, eps: float = NORM_EPS) -> torch.Tensor:
        """fp64 [m, columns]: the sum over k of |normalised y * weight|, by which the rounding errors are bounded."""
        y = self.y.double()
        n = y * torch.rsqrt(y.square().mean(1, keepdim=True) + eps) * self.norm.double()
        return n.abs() @ self.up.double().abs().T

    def stock(self, first: int = 0, eps: float = NORM_EPS) -> torch.Tensor:
        """vLLM's two steps: RMSNorm, which rounds before and after its weight, then addmm into the shard."""
        y = self.y.float()
        n = (y * torch.rsqrt(y.square().mean(1, keepdim=True) + eps)).to(torch.bfloat16) * self.norm
        return (n.double() @ self.up.double().T + self.own(self.shared, first).double()).to(torch.bfloat16)


def assert_within(got: torch.Tensor, want: torch.Tensor, bound: torch.Tensor) -> None:
    excess = (got.double() - want.double()).abs() - bound
    assert float(excess.max()) <= 0, f"off the bound by {float(excess.max()):.3g}"


def check(given: Inputs, got: torch.Tensor, first: int = 0, eps: float = NORM_EPS) -> None:
    """The bounds of latent_tail's docstring; a hair more for the sums in fp32."""
    exact, sums, got = given.exact(first, eps), given.sums(eps), given.own(got, first)
    hair = 1.02
    assert_within(got, exact, hair * U * (exact.abs() + sums))
    assert_within(got, given.stock(first, eps), hair * U * (2 * exact.abs() + 3 * sums))


@pytest.mark.tokens(interpreter=(1, 3, 17, 33), gfx950=TOKENS, gpu=TOKENS)
def test_every_batch(m, device, rng):
    given = Inputs(m, rng)
    check(given, given.run(device, first=16), first=16)


@pytest.mark.parametrize("tile", kernel._TILES[32])
def test_as_warps_of_32_lanes_compute_it(tile, device, rng):
    """The form that NVIDIA GPUs take, on every backend."""
    given, (_, rows, columns, warps, ahead) = Inputs(17, rng), tile
    y, norm, up, out = (t.to(device, copy=True) for t in (given.y, given.norm, given.up, given.shared))
    kernel._latent_tail[len(up) // columns, -(-17 // rows)](
        y, L // 8, norm, NORM_EPS, up, out, out.stride(0) // 8, 17,
        LATENT=L, ROWS=rows, COLUMNS=columns, AHEAD=ahead, WARPS=warps, LANES=32, num_warps=warps,
    )  # fmt: skip
    check(given, out.cpu())


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("m", [1, 16, 33, pytest.param(128, marks=pytest.mark.slow)])
def test_true_shape(m, order, device, rng):
    """Rank 5 of 8 adds into its columns; the other ranks' columns keep their bits."""
    given, first = Inputs(m, rng, H, SHARD), 5 * SHARD
    got = given.run(device, first)
    check(given, got, first)
    others = torch.ones(H, dtype=torch.bool)
    others[first : first + SHARD] = False
    assert torch.equal(got[:, others], given.shared[:, others])


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("m", [2, 40])
def test_not_farther_from_exact_than_stock(m, device, rng):
    """One rounding in front of the sum, where stock has two: the mean error is smaller, not only its bound."""
    given = Inputs(m, rng)
    given.shared.zero_()  # whose rounding is the same in both

    def error(got: torch.Tensor) -> float:
        return float((got.double() - given.exact()).norm())

    assert error(given.own(given.run(device))) < error(given.stock())


@pytest.mark.parametrize("ranks", [2, 4])
def test_shards_are_the_whole(ranks, device, rng):
    """Each rank's columns by its own rows of Wup: bit for bit what one rank computes of all of them."""
    given = Inputs(5, rng, width=128, columns=128)
    whole, parts = given.run(device), []
    up = given.up
    for rank in range(ranks):
        columns = len(up) // ranks
        given.up = up[rank * columns : (rank + 1) * columns]
        parts.append(given.own(given.run(device, rank * columns), rank * columns))
    assert torch.equal(torch.cat(parts, 1), whole)


def test_garbage_in_other_rows_changes_no_real_row(device, rng):
    """NaN, infinities, zeros and the largest numbers poison their own rows alone."""
    given = Inputs(7, rng)
    clean = given.run(device)
    for row, value in ((1, float("nan")), (3, float("inf")), (4, -float("inf"))):
        given.y[row, 5 * row] = value
    given.y[5] = 0
    given.y[6] = torch.finfo(torch.bfloat16).max
    got = given.run(device)
    assert torch.equal(got[[0, 2]], clean[[0, 2]])
    assert given.own(got)[[1, 3, 4]].isnan().all()
    assert torch.equal(given.own(got)[5], given.own(given.shared)[5])  # a row of zeros adds nothing
    assert torch.equal(got[:, len(given.up) :], given.shared[:, len(given.up) :])


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e-3, 1e3, 1e15])
def test_magnitudes(scale, device, rng):
    """Small rows, which eps outweighs, and large ones."""
    given = Inputs(3, rng)
    given.y = (given.y.double() * scale).to(torch.bfloat16)
    check(given, given.run(device))


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-6, 0.5])
def test_eps(eps, device, rng):
    given = Inputs(2, rng)
    given.y = (given.y.double() * 1e-2).to(torch.bfloat16)
    check(given, given.run(device, eps=eps), eps=eps)


@pytest.mark.parametrize("latent", [512, 1024])
def test_other_widths(latent, device, rng):
    given = Inputs(3, rng, latent=latent)
    check(given, given.run(device))


@pytest.mark.parametrize("m", [1, 20])
def test_nothing_else_is_written(m, device, rng):
    given = Inputs(m, rng, width=48)
    out = cases.Guarded((m, 48), torch.bfloat16, device)
    out.tensor.copy_(given.shared)
    arguments = (given.y.to(device), given.norm.to(device), NORM_EPS, given.up.to(device))
    latent_tail(*arguments, out.tensor[:, 16:])
    assert out.intact()
    assert torch.equal(out.tensor[:, :16].cpu(), given.shared[:, :16])
    check(given, out.tensor.cpu(), first=16)


def test_wide_rows(device, rng):
    """y as a slice of wider rows, its neighbours NaN."""
    given = Inputs(3, rng)
    want = given.run(device)
    wide = torch.full((3, L + 64), float("nan"), dtype=torch.bfloat16)
    wide[:, :L] = given.y
    wide = wide.to(device)
    out = given.shared.to(device, copy=True)
    latent_tail(wide[:, :L], given.norm.to(device), NORM_EPS, given.up.to(device), out[:, : len(given.up)])
    assert torch.equal(out.cpu(), want)


def test_no_tokens(device, rng):
    given = Inputs(0, rng)
    assert given.run(device).shape == (0, 64)


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("m", [3, 33])
def test_25_repeats_are_bit_identical(m, order, device, rng):
    given = Inputs(m, rng)
    first = given.run(device)
    assert all(torch.equal(given.run(device), first) for _ in range(24))


@pytest.mark.gpu
@pytest.mark.parametrize("m", [1, 8, 16, 17, 32, 64, 128])
def test_100_replays_equal_eager(m, device, rng):
    given = Inputs(m, rng, H, SHARD)
    y, norm, up, out = (t.to(device) for t in (given.y, given.norm, given.up, given.shared))
    latent_tail(y, norm, NORM_EPS, up, out[:, SHARD : 2 * SHARD])  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        latent_tail(y, norm, NORM_EPS, up, out[:, SHARD : 2 * SHARD])
    for _ in range(100):
        given = Inputs(m, rng, H, SHARD)
        for there, here in ((y, given.y), (norm, given.norm), (up, given.up), (out, given.shared)):
            there.copy_(here)
        graph.replay()
        assert torch.equal(out.cpu(), given.run(device, SHARD))
