"""The front in one launch and in two, at K3's shape: where `plan.ONE_LAUNCH_TOKENS` comes from.

    python benchmarks/one_or_two.py benchmarks/results/h200-one-or-two.csv

Microseconds on this machine's GPU: the median of 30 replays of a graph of 20 fronts over four rotating inputs, all
columns of a run measured in turn, the whole twice (`run`). Beside them an empty kernel, and our own plain chain (top-k,
sort, quantise). `k3moe bench front` will replace this.
"""

import argparse
import csv
import statistics
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
import triton
from gpu_tests import device

from vllm_k3moe.kernels.moe_sort import moe_sort
from vllm_k3moe.kernels.mx import MODES, NONE, quantise
from vllm_k3moe.kernels.route_sort import route_sort, serves
from vllm_k3moe.kernels.route_sort_mid import route_sort_mid
from vllm_k3moe.kernels.topk import topk
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.shapes import K3_TP8

TOKENS = tuple(2**i for i in range(10))
INPUTS, FRONTS, REPLAYS = 4, 20, 30


@triton.jit
def _nothing(pointer):
    pass


def microseconds(launch: Callable[[int], object]) -> float:
    """Of one `launch(i)`, i from 0 to INPUTS-1 in turn."""
    launch(0)
    torch.cuda.synchronize()
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for i in range(FRONTS):
            launch(i % INPUTS)
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / FRONTS)
    return statistics.median(times)


def measure(m: int, mode: str) -> dict[str, float | str]:
    rng = torch.Generator("cuda").manual_seed(m)
    e, k = K3_TP8.experts, K3_TP8.topk
    xs = [torch.randn(m, K3_TP8.latent, generator=rng, device="cuda").bfloat16() for _ in range(INPUTS)]
    logits = [torch.randn(m, e, generator=rng, device="cuda") for _ in range(INPUTS)]
    bias = torch.randn(e, generator=rng, device="cuda") * 0.1
    plan = RoutePlan(K3_TP8, mode, 32)
    front = plan.allocate(m, xs[0].device)

    def chain(i: int) -> None:
        moe_sort(*topk(logits[i], bias, k), e, 32)
        if mode != NONE:
            quantise(xs[i], mode)

    def one(i: int) -> None:
        route_sort(logits[i], bias, xs[i], front, block=32, mode=mode)

    def two(i: int) -> None:
        route_sort_mid(logits[i], bias, xs[i], front, block=32, mode=mode, by_token=plan.by_token(m))

    return {
        "empty": microseconds(lambda i: _nothing[(1,)](bias)),
        "chain": microseconds(chain),
        "one": microseconds(one) if serves(m, k) else "",
        "two": microseconds(two),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    with out.with_suffix(".partial").open("w", newline="") as file:
        file.write(f"# us; {device()}; torch {torch.__version__}, triton {triton.__version__}; {date.today()}\n")
        writer = csv.DictWriter(file, ("run", "m", "mode", "empty", "chain", "one", "two"), lineterminator="\n")
        writer.writeheader()
        for run in (1, 2):
            for m in TOKENS:
                for mode in MODES:
                    row = {k: v if v == "" else f"{v:.2f}" for k, v in measure(m, mode).items()}
                    writer.writerow({"run": run, "m": m, "mode": mode, **row})
    out.with_suffix(".partial").replace(out)


if __name__ == "__main__":
    main()
