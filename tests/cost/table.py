"""What the served kernels execute at each M: wave instructions, cache operations and atomics, a CSV row per launch.

    python tests/cost/table.py [--max-tokens 32] [--mode none ...] > benchmarks/results/gfx950-cost.csv

Kimi-K3's shape, blocks of 32 rows, seeded random inputs, on the emulator. The figures are counts, not time: no device
ran, and an instruction of one kind may take many times as long as one of another. For M up to 32 there are modelled
cycles beside them (cycles.py), of the slowest workgroup and of all together; they are not time either.
"""

import argparse
import csv
import dataclasses
import datetime
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import triton

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import backends
from cost.cycles import Trace  # type: ignore[import-not-found]
from cost.workgroups import Launch, counts  # type: ignore[import-not-found]
from vllm_k3moe.kernels import mx
from vllm_k3moe.kernels.front import Front
from vllm_k3moe.kernels.latent_tail import latent_tail
from vllm_k3moe.kernels.route_sort import route_sort
from vllm_k3moe.kernels.route_sort_mid import route_sort_mid
from vllm_k3moe.kernels.shared_expert import shared_expert
from vllm_k3moe.kernels.situ import MAX_TOKENS as MAX_SHARED
from vllm_k3moe.kernels.topk import topk
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.shapes import K3_TP8, NORM_EPS, SITU_BETA, SITU_LINEAR_BETA
from vllm_k3moe.sort_plan import K3SortPlan

BLOCK = 32
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LABELS = ("kernel", "M", "mode", "block")
COUNTS = tuple(field.name for field in dataclasses.fields(Launch) if field.name != "kernel")
CYCLES = ("cycles_slowest_workgroup", "cycles_total")
RIDERS = {"route_sort": " | shared_token", "route_quantise": " | situ", "sort_by_token": " | shared_down"}
MAX_TRACED = 32  # tokens; a trace is ten times as slow
NOTE = "wave instructions counted on an emulated gfx950 and cycles of a model (tests/cost/table.py): not time"


def inputs(m: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """logits, bias, x of a layer, the same at every call: the sort's length depends on the routing."""
    rng = torch.Generator().manual_seed(m)
    logits, bias = torch.randn(m, K3_TP8.experts, generator=rng), torch.randn(K3_TP8.experts, generator=rng) * 0.1
    return logits, bias, (torch.randn(m, K3_TP8.latent, generator=rng) * 3).to(torch.bfloat16)


def randn(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(size[0])).to(torch.bfloat16)


def shared_inputs(m: int) -> tuple[torch.Tensor, torch.Tensor, float, float]:
    """Arguments of `shared_expert` and of K3SortPlan."""
    return randn(m, 2 * K3_TP8.shared_inter), randn(K3_TP8.hidden, K3_TP8.shared_inter), SITU_BETA, SITU_LINEAR_BETA


def tail_inputs(m: int) -> tuple[torch.Tensor, torch.Tensor, float, torch.Tensor, torch.Tensor]:
    """Arguments of `latent_tail`."""
    shard = K3_TP8.hidden // 8
    return randn(m, K3_TP8.latent), randn(K3_TP8.latent), NORM_EPS, randn(shard, K3_TP8.latent), randn(m, shard)


def launch_shared(plan: RoutePlan, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor, out: Front) -> None:
    with K3SortPlan(*shared_inputs(len(x))) as shared:
        plan.launch(x, logits, bias, out, shared)


def layer(m: int, modes: tuple[str, ...]) -> Iterator[tuple[str, bool, Callable[[], object]]]:
    """(mode, whether the shared expert rides, what launches it) of all that serve M tokens."""
    logits, bias, x = inputs(m)
    if mx.NONE in modes:  # what knows no mode: once
        yield "", False, partial(topk, logits, bias, K3_TP8.topk)
        if m <= MAX_SHARED:
            yield "", False, partial(shared_expert, *shared_inputs(m))
            yield "", False, partial(latent_tail, *tail_inputs(m))
    for mode in modes:
        plan = RoutePlan(K3_TP8, mode, BLOCK)
        out = plan.allocate(m, x.device)
        launches = (route_sort, route_sort_mid) if m == 1 else (route_sort_mid,)
        for launch in launches:
            yield mode, False, partial(launch, logits, bias, x, out, block=BLOCK, mode=mode)
        if m <= MAX_SHARED:
            yield mode, True, partial(launch_shared, plan, x, logits, bias, out)


def rows(modes: tuple[str, ...], max_tokens: int, max_traced: int) -> Iterator[dict[str, object]]:
    emulator, trace = backends.start("gfx950"), Trace()
    launches: list[tuple[Launch, list[int]]] = []

    def on_launch(*launched: object) -> None:
        launches.append((counts(*launched), trace.take()))

    emulator.on_launch = on_launch
    for m in (m for m in TOKENS if m <= max_tokens):
        for mode, riding, launch_all in layer(m, modes):
            with emulator.options(trace=trace if m <= max_traced else None):
                launch_all()
            for launch, cycles in launches:
                own_block = BLOCK if "sort" in launch.kernel else ""  # the others have no block
                row = {"M": m, "mode": mode, "block": own_block} | dataclasses.asdict(launch)
                row["kernel"] = launch.kernel + (RIDERS[launch.kernel] if riding else "")
                yield row | (dict(zip(CYCLES, (max(cycles), sum(cycles)), strict=True)) if cycles else {})
            launches.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max-tokens", type=int, default=TOKENS[-1])
    parser.add_argument("--max-traced", type=int, default=MAX_TRACED, help="up to here with modelled cycles")
    parser.add_argument("--mode", nargs="+", default=mx.MODES, choices=mx.MODES)
    arguments = parser.parse_args()
    print(f"# {NOTE}; {datetime.date.today()}, triton {triton.__version__}")
    writer = csv.DictWriter(sys.stdout, (*LABELS, *COUNTS, *CYCLES), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(tuple(arguments.mode), arguments.max_tokens, arguments.max_traced))


if __name__ == "__main__":
    main()
