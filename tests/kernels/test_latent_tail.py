"""The latent tail: within its stated bound of the exact result and of the stock two-step, in its own columns only."""

import pytest
import torch

import cases
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


BF16 = torch.bfloat16


def arguments(device: torch.device) -> dict[str, object]:
    return {
        "y": torch.zeros(2, 512, dtype=BF16, device=device),
        "norm_weight": torch.zeros(512, dtype=BF16, device=device),
        "eps": 1e-5,
        "up": torch.zeros(16, 512, dtype=BF16, device=device),
        "out": torch.zeros(2, 16, dtype=BF16, device=device),
    }


@pytest.mark.on("interpreter", "gpu")
@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"y": torch.zeros(2, 512)}, TypeError, "y has dtype float32; accepted: bfloat16"),
        ({"y": torch.zeros(2, 500, dtype=BF16)}, ValueError, "L=500 columns of y; accepted: a multiple of 512"),
        ({"y": torch.zeros(2, 0, dtype=BF16)}, ValueError, "L=0 columns of y"),
        ({"y": torch.zeros(129, 512, dtype=BF16)}, ValueError, "M=129 tokens; accepted: 0 to 128"),
        ({"y": None}, TypeError, "y is a NoneType"),
        ({"norm_weight": torch.zeros(512)}, TypeError, "norm_weight has dtype float32"),
        ({"norm_weight": torch.zeros(511, dtype=BF16)}, ValueError, "norm_weight has shape [511]; accepted: [512]"),
        ({"up": torch.zeros(16, 512)}, TypeError, "up has dtype float32"),
        ({"up": torch.zeros(16, 1024, dtype=BF16)}, ValueError, "up has shape [16, 1024]; accepted: [any, 512]"),
        ({"up": torch.zeros(12, 512, dtype=BF16)}, ValueError, "12 rows of up; accepted: a multiple of 16"),
        ({"up": torch.zeros(0, 512, dtype=BF16)}, ValueError, "0 rows of up"),
        ({"out": torch.zeros(2, 16)}, TypeError, "out has dtype float32"),
        ({"out": torch.zeros(3, 16, dtype=BF16)}, ValueError, "out has shape [3, 16]; accepted: [2, 16]"),
        ({"out": torch.zeros(2, 32, dtype=BF16)}, ValueError, "out has shape [2, 32]; accepted: [2, 16]"),
        ({"out": torch.zeros(2, 16, dtype=BF16, device="meta")}, ValueError, "out is on meta"),
        ({"eps": -1.0}, ValueError, "eps=-1.0; accepted: finite and not below 0"),
        ({"eps": float("nan")}, ValueError, "eps=nan"),
        ({"eps": "1e-5"}, TypeError, "eps='1e-5' is a str; accepted: float"),
    ],
)
def test_bad_arguments(change, error, message, device):
    moved = {
        k: v.to(device) if isinstance(v, torch.Tensor) and v.device.type == "cpu" else v for k, v in change.items()
    }
    with pytest.raises(error) as raised:
        latent_tail(**{**arguments(device), **moved})
    assert message in str(raised.value)


@pytest.mark.on("interpreter", "gpu")
@pytest.mark.parametrize(
    "name, shape, first, message",
    [
        ("y", (2, 520), 4, "y starts 8 bytes past"),
        ("y", (2, 516), 0, "y starts 0 bytes past a multiple of 16 with row stride 516"),
        ("up", (16, 1024), 0, "up has strides (1024, 1); accepted: contiguous"),
        ("out", (2, 24), 4, "out starts 8 bytes past"),
        ("out", (2, 20), 0, "out starts 0 bytes past a multiple of 16 with row stride 20"),
    ],
)
def test_slices_that_are_not_served(name, shape, first, message, device):
    given = arguments(device)
    columns = 16 if name == "out" else 512
    given[name] = torch.zeros(*shape, dtype=BF16, device=device)[:, first : first + columns]
    with pytest.raises(ValueError) as raised:
        latent_tail(**given)
    assert message in str(raised.value)


@pytest.mark.on("interpreter", "gpu")
def test_rows_of_out_may_not_overlap(device):
    out = torch.zeros(16, dtype=BF16, device=device).expand(2, 16)
    with pytest.raises(ValueError, match="out has row stride 0; accepted: 16 or more"):
        latent_tail(**{**arguments(device), "out": out})


@pytest.mark.on("interpreter", "gpu")
def test_rows_too_far_apart(device):
    """Offsets are 32 bits wide."""
    far = torch.empty(2**30 + 512, dtype=BF16, device=device).as_strided((2, 512), (2**30, 1))  # not touched
    with pytest.raises(ValueError, match="y lies in 2147484672 bytes; accepted: below 2"):
        latent_tail(**{**arguments(device), "y": far})


def test_out_may_not_be_y(device):
    """Every program reads all of y: one that has written would change what another reads."""
    given = arguments(device)
    given["out"] = given["y"][:, :16]
    with pytest.raises(ValueError, match="out overlaps y"):
        latent_tail(**given)
