"""`k3moe bench launch-floor`: what one more launch in a graph costs, from chains of dependent empty kernels."""

import statistics

import torch
import triton
import triton.language as tl

from .machine import about

CHAINS = (1, 2, 4, 8, 16, 32)
REPLAYS = 50


@triton.jit
def _touch(pointer):
    tl.store(pointer, tl.load(pointer) + 1)


def chain_us(launches: int) -> float:
    """Median microseconds of a graph of `launches` kernels, each of which reads what the last has written."""
    counter = torch.zeros(1, device="cuda")
    _touch[(1,)](counter)
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for _ in range(launches):
            _touch[(1,)](counter)
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def run() -> int:
    """Print the chains and the slope of a least-squares line through them."""
    measured = [chain_us(n) for n in CHAINS]
    slope, base = statistics.linear_regression(CHAINS, measured)
    print("; ".join(f"{k} {v}" for k, v in about().items()))
    for launches, us in zip(CHAINS, measured, strict=True):
        print(f"{launches:3} launches {us:8.2f} us")
    print(f"each further launch {slope:.2f} us, the graph itself {base:.2f} us")
    return 0
