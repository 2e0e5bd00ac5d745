"""`k3moe bench layer-glue`: all small launches of a layer, ours against separate ones, in one run on one GPU.

Of a layer's launches all but the GEMMs of router, gate_up and latent down, the two expert stages and the all-reduces.
Columns, microseconds by graph replay; weights and activations take turns, so that no weight is found in the L2:
  route, sort    our front's two launches alone
  situ, down     the shared expert's two alone
  A, B           [route | SiTU] and [sort | down]
  A+B            both, as they are served; at M = 1 one launch, [front | shared expert]
  in turn        the served front, then the shared expert by itself: what `takes_shared` decides by
  aside          the same, the shared expert on a side stream, as vLLM has it
  stock shared   SiTU in one launch (ours, PyTorch has none), torch.nn.functional.linear
  tail           norm, up-projection shard and sum in one launch
  stock tail     torch.nn.functional.rms_norm, addmm into the shard
  ours           A+B and the tail that is served: above 64 tokens stock's
  unfused        our front's kernels one by one, stock shared and stock tail
What is timed is checked first, against PyTorch in fp64.
"""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
from torch.nn import functional

from ..kernels.front import Front
from ..kernels.latent_tail import latent_tail
from ..kernels.moe_sort import NO_EXTENSION, moe_sort
from ..kernels.mx import quantise
from ..kernels.route_sort_mid import route_and_quantise
from ..kernels.shared_expert import down_extension, launch_down, launch_shared
from ..kernels.situ import launch_situ, situ_extension
from ..kernels.token_sort import sort_by_token
from ..kernels.topk import topk
from ..plan import RoutePlan, takes_shared
from ..reference import shared_hidden
from ..shapes import K3_TP8, NORM_EPS, ROUTED_SCALING, SITU_BETA, SITU_LINEAR_BETA
from ..sort_plan import K3SortPlan
from ..tail import MAX_TOKENS as MAX_TAIL
from ..verify import inputs
from .machine import Timing, replay

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128)
TURNS = 24  # layers' worth of weights: 0.4 GB
MODE, BLOCK = "mxfp8", 32
BETAS = (SITU_BETA, SITU_LINEAR_BETA)
TIMED = (
    "route", "sort", "situ", "down", "A", "B", "A+B", "in turn", "aside", "stock shared", "tail", "stock tail", "ours",
    "unfused",
)  # fmt: skip
COLUMNS = ("run", "M", *TIMED, "launches ours", "launches unfused")
LAUNCHES_UNFUSED = 9  # top-k, masks, sort, quantise, zero; SiTU, linear; norm, addmm, if each of PyTorch's is one


class Layer:
    """One layer's weights and one batch's activations, on `device`; `side` is that of `aside`, None if not run."""

    def __init__(self, m: int, seed: int, device: torch.device, side: torch.cuda.Stream | None) -> None:
        self.side = side
        rng = torch.Generator(device).manual_seed(seed)

        def randn(*size: int, scale: float = 1.0) -> torch.Tensor:
            return (torch.randn(*size, generator=rng, device=device) * scale).to(torch.bfloat16)

        shape, shard = K3_TP8, K3_TP8.hidden // 8
        self.plan = RoutePlan(shape, MODE, BLOCK)
        self.x, self.logits, self.bias = (tensor.to(device) for tensor in inputs(m, seed))
        self.front: Front = self.plan.allocate(m, device)
        self.gate_up, self.hidden = randn(m, 2 * shape.shared_inter), randn(m, shape.shared_inter)
        self.down, self.out = randn(shape.hidden, shape.shared_inter, scale=0.03), randn(m, shape.hidden)
        self.y, self.norm = randn(m, shape.latent), 1 + randn(shape.latent, scale=0.1)
        self.up, self.partial = randn(shard, shape.latent, scale=0.02), randn(m, shard)

    def _situ(self) -> None:
        launch_situ(self.gate_up, self.hidden, *BETAS)

    def _down(self) -> None:
        launch_down(self.hidden, self.down, self.out)

    def _alone(self) -> None:
        launch_shared(self.gate_up, self.hidden, self.down, self.out, *BETAS)

    def _route(self, together: bool = False) -> None:
        riding = situ_extension(self.gate_up, self.hidden, *BETAS) if together else NO_EXTENSION
        route_and_quantise(self.logits, self.bias, self.x, self.front, MODE, riding)

    def _sort(self, together: bool = False) -> None:
        f = self.front
        riding = down_extension(self.hidden, self.down, self.out) if together else NO_EXTENSION
        sort_by_token(
            self.logits, f.ids, f.weights, f.masks, f.columns, f.row_scales, f.sorted, f.scales, BLOCK, ROUTED_SCALING,
            riding,
        )  # fmt: skip

    def _front(self) -> None:
        self.plan.launch(self.x, self.logits, self.bias, self.front)

    def _tail(self) -> None:
        latent_tail(self.y, self.norm, NORM_EPS, self.up, self.partial)

    def _stock_tail(self) -> None:
        normed = functional.rms_norm(self.y, self.norm.shape, self.norm, NORM_EPS)
        self.partial.addmm_(normed, self.up.t())

    def _stock_shared(self) -> None:
        self._situ()
        self.out = functional.linear(self.hidden, self.down)

    def _served(self) -> None:
        with K3SortPlan(self.gate_up, self.down, *BETAS) as shared:
            self.plan.launch(self.x, self.logits, self.bias, self.front, shared)

    def _aside(self) -> None:
        here, there = torch.cuda.current_stream(), self.side
        assert there is not None
        there.wait_stream(here)
        with torch.cuda.stream(there):
            self._alone()
        self._front()
        here.wait_stream(there)

    def _in_turn(self) -> None:
        self._front()
        self._alone()

    def _ours(self) -> None:
        self._served()
        if len(self.x) <= MAX_TAIL:
            self._tail()
        else:
            self._stock_tail()

    def _unfused(self) -> None:
        moe_sort(*topk(self.logits, self.bias, K3_TP8.topk), K3_TP8.experts, BLOCK)
        quantise(self.x, MODE)
        torch.zeros_like(self.x)
        self._stock_shared()
        self._stock_tail()

    def what(self, column: str) -> Callable[[], object]:
        """What is timed under a column's name."""
        columns: dict[str, Callable[[], object]] = {
            "route": self._route, "sort": self._sort, "situ": self._situ, "down": self._down,
            "A": partial(self._route, True), "B": partial(self._sort, True), "A+B": self._served,
            "in turn": self._in_turn, "aside": self._aside, "stock shared": self._stock_shared, "tail": self._tail,
            "stock tail": self._stock_tail, "ours": self._ours, "unfused": self._unfused,
        }  # fmt: skip
        return columns[column]

    def check(self) -> None:
        """RuntimeError naming what is not PyTorch's in fp64, to bf16's accuracy."""
        with K3SortPlan(self.gate_up, self.down, *BETAS) as shared:
            self.plan(self.x, self.logits, self.bias, shared)
        y, tail = self.y.double(), self.partial.clone()
        normed = y * torch.rsqrt(y.square().mean(1, keepdim=True) + NORM_EPS) * self.norm.double()
        latent_tail(self.y, self.norm, NORM_EPS, self.up, tail)
        hidden = shared_hidden(self.gate_up, *BETAS).double()
        for name, got, want in (
            ("shared expert", shared.out, hidden @ self.down.double().T),
            ("tail", tail, normed @ self.up.double().T + self.partial.double()),
        ):
            error = float((got.double() - want).norm() / want.norm())
            if not error < 2**-8:
                raise RuntimeError(f"M={len(self.x)}, {name}: relative L2 {error:.2e}; allowed: below {2**-8:.2e}")


def timings(m: int, columns: tuple[str, ...] = TIMED) -> dict[str, Timing]:
    """Each column's time at M tokens."""
    side = torch.cuda.Stream()
    layers = [Layer(m, 1000 * m + i, torch.device("cuda"), side) for i in range(TURNS)]
    layers[0].check()
    for layer in layers:  # what a column reads of a launch before its own
        layer.what("route")()
        layer.what("sort")()
    found = {}
    for column in columns:
        launches = [layer.what(column) for layer in layers]
        for launch in launches:  # compiles, and has every buffer touched
            launch()
        torch.cuda.synchronize()
        found[column] = replay(launches)
    return found


def rows(tokens: tuple[int, ...], runs: int) -> Iterator[dict[str, object]]:
    """A row per M, all of them once per run."""
    for run in range(1, runs + 1):
        for m in tokens:
            found = timings(m)
            row: dict[str, object] = {"run": run, "M": m} | {c: f"{found[c].median:.2f}" for c in TIMED}
            ours = len(RoutePlan(K3_TP8, MODE, BLOCK).launches(m, with_shared=True)) + (1 if m <= MAX_TAIL else 2)
            yield row | {"launches ours": ours, "launches unfused": LAUNCHES_UNFUSED}


def crossover(rows: list[dict[str, str]]) -> list[str]:
    """Per M the faster of two ways and the one that is served, by medians over the runs: front and shared, and tail."""
    lines = []
    for m in sorted({int(row["M"]) for row in rows}):
        own = [row for row in rows if int(row["M"]) == m]
        for first, second, serves_first in (
            ("A+B", "in turn", takes_shared(m)),
            ("tail", "stock tail", m <= MAX_TAIL),
        ):
            took = {column: median(float(row[column]) for row in own) for column in (first, second)}
            times = ", ".join(f"{column} {time:.2f} us" for column, time in took.items())
            served = first if serves_first else second
            lines.append(f"M={m}: {times}; faster: {min(took, key=lambda c: took[c])}, served: {served}")
    return lines
