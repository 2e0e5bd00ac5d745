"""`k3moe bench front`: route, sort and quantise, ours against chains of separate launches, in one run on one GPU.

Columns, microseconds of one front by graph replay, four inputs in turn:
  ours      the launches that the plan serves
  two       two launches where the plan serves one: what `RoutePlan.launches` decides by
  unfused   our own kernels one by one: top-k, sort, quantise, zero
  torch     the same products by PyTorch's operations, without AITER's scale layout (less work than ours)
  floor     an empty kernel
What is timed is checked: every product of every input against the oracle, out of poisoned buffers.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import triton

from ..kernels import mx
from ..kernels.front import Front
from ..kernels.moe_sort import moe_sort
from ..kernels.route_sort_mid import route_sort_mid
from ..kernels.topk import topk
from ..plan import RoutePlan
from ..shapes import K3_TP8
from ..verify import compare, inputs, run_poisoned
from .machine import Timing, replay
from .routing import KINDS

INPUTS = 4
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
COLUMNS = (
    "run",
    "M",
    "mode",
    "block",
    "routing",
    "launches",
    "ours",
    "low",
    "high",
    "two",
    "unfused",
    "torch",
    "floor",
)


@triton.jit
def _nothing(pointer):
    pass


def torch_chain(x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor, mode: str, block: int) -> object:
    """Ids, weights, sorted order and quantised rows by PyTorch alone."""
    scores = torch.sigmoid(logits)
    ids = torch.topk(scores + bias, K3_TP8.topk).indices
    weights = scores.gather(1, ids)
    weights = weights / weights.sum(1, keepdim=True)
    expert, pair = ids.flatten().sort(stable=True)
    counts = torch.zeros(K3_TP8.experts, dtype=torch.int64, device=x.device)
    counts.index_add_(0, expert, torch.ones_like(expert))
    blocks = (counts + block - 1) // block
    row = (blocks.cumsum(0) - blocks)[expert] * block + torch.arange(len(pair), device=x.device)
    row = row - (counts.cumsum(0) - counts)[expert]
    sorted_ids = torch.full((len(pair) * block,), K3_TP8.topk << 24 | len(x), dtype=torch.int32, device=x.device)
    sorted_ids[row] = (pair % K3_TP8.topk << 24 | pair // K3_TP8.topk).int()
    if mode == mx.NONE:
        return sorted_ids, weights, torch.zeros_like(x)
    groups = x.float().view(len(x), -1, 32)
    top = 448.0 if mode == mx.MXFP8 else 6.0
    exponent = torch.ceil(torch.log2(groups.abs().amax(2).clamp(min=1e-10) / top))
    scaled = groups * torch.exp2(-exponent)[:, :, None]
    rows = scaled.to(torch.float8_e4m3fn) if mode == mx.MXFP8 else scaled.clamp(-6, 6).round().to(torch.int8)
    return sorted_ids, weights, rows, exponent, torch.zeros_like(x)


class Case:
    """One M, mode, block and kind of routing, with its inputs on the GPU."""

    def __init__(self, m: int, mode: str, block: int, kind: str) -> None:
        self.m, self.mode, self.block, self.kind = m, mode, block, kind
        self.plan = RoutePlan(K3_TP8, mode, block)
        rng = torch.Generator().manual_seed(m)
        self.inputs = []
        for i in range(INPUTS):
            x, _, bias = inputs(m, 100 * m + i)
            self.inputs.append((x.cuda(), KINDS[kind](m, K3_TP8.experts, rng).cuda(), bias.cuda()))

    def check(self) -> None:
        """RuntimeError naming the first product that is not the oracle's."""
        for x, logits, bias in self.inputs:
            front = run_poisoned(self.plan, x, logits, bias)
            faults = compare(front, self.plan, x.cpu(), logits.cpu(), bias.cpu()).faults
            if faults:
                raise RuntimeError(f"M={self.m}, {self.mode}, block {self.block}, {self.kind}: {faults[0]}")

    def _turns(self, launch: Callable[..., object]) -> Timing:
        for arguments in self.inputs:
            launch(*arguments)
        torch.cuda.synchronize()
        return replay([partial(launch, *arguments) for arguments in self.inputs])

    def _fronts(self) -> dict[int, Front]:
        """Buffers of each input, by the address of its x."""
        return {x.data_ptr(): self.plan.allocate(self.m, x.device) for x, _, _ in self.inputs}

    def ours(self) -> Timing:
        of = self._fronts()
        return self._turns(lambda x, logits, bias: self.plan.launch(x, logits, bias, of[x.data_ptr()]))

    def two(self) -> Timing:
        of, plan = self._fronts(), self.plan
        return self._turns(
            lambda x, logits, bias: route_sort_mid(
                logits, bias, x, of[x.data_ptr()], block=plan.block, mode=plan.mode, scaling=plan.scaling
            )
        )

    def unfused(self) -> Timing:
        def chain(x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> None:
            moe_sort(*topk(logits, bias, K3_TP8.topk), K3_TP8.experts, self.block)
            if self.mode != mx.NONE:
                mx.quantise(x, self.mode)
            torch.zeros_like(x)

        return self._turns(chain)

    def torch(self) -> Timing:
        return self._turns(lambda x, logits, bias: torch_chain(x, logits, bias, self.mode, self.block))

    def floor(self) -> Timing:
        return self._turns(lambda x, logits, bias: _nothing[(1,)](bias))


def rows(tokens: tuple[int, ...], modes: tuple[str, ...], blocks: tuple[int, ...], kinds: tuple[str, ...],
         runs: int, baselines: bool) -> Iterator[dict[str, object]]:  # fmt: skip
    """A row per case; all cases once per run, so that two runs of a case lie minutes apart."""
    for run in range(1, runs + 1):
        for m in tokens:
            for mode in modes:
                for block in blocks:
                    for kind in kinds:
                        case = Case(m, mode, block, kind)
                        if run == 1:
                            case.check()
                        ours = case.ours()
                        row: dict[str, object] = dict(zip(COLUMNS, (run, m, mode, block, kind), strict=False))
                        row |= {"launches": len(case.plan.launches(m))}
                        row |= {"ours": ours.median, "low": ours.low, "high": ours.high, "floor": case.floor().median}
                        if len(case.plan.launches(m)) == 1:
                            row["two"] = case.two().median
                        if baselines:
                            row |= {"unfused": case.unfused().median, "torch": case.torch().median}
                        yield {k: f"{v:.2f}" if isinstance(v, float) else v for k, v in row.items()}
