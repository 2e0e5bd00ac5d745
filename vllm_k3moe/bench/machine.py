"""What a benchmark ran on, as its results say it, and microseconds by graph replay."""

import statistics
import subprocess
from collections.abc import Callable, Sequence
from datetime import date
from typing import NamedTuple

import torch
import triton

LAUNCHES, REPLAYS = 20, 40  # of what is timed in a graph, at least; of the graph


class Timing(NamedTuple):
    """Microseconds of one: the median over the replays, and their 10th and 90th percentile."""

    median: float
    low: float
    high: float


def about() -> dict[str, str]:
    """Device, driver, power cap, clocks, versions, date."""
    found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    if torch.version.hip:
        found |= {"driver": f"HIP {torch.version.hip}", "arch": torch.cuda.get_device_properties(0).gcnArchName}
    else:
        fields = {
            "driver": "driver_version",
            "power cap": "power.limit",
            "SM clock": "clocks.sm",
            "max": "clocks.max.sm",
        }
        query = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader"]
        values = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
        found |= dict(zip(fields, values, strict=True))
    return found | {"date": str(date.today())}


def replay(launches: Sequence[Callable[[], object]]) -> Timing:
    """Time of one of `launches`, which take turns in a graph: each must be warm and may not synchronise."""
    count = max(LAUNCHES, len(launches))
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for i in range(count):
            launches[i % len(launches)]()
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / count)
    tenths = statistics.quantiles(times, n=10)
    return Timing(statistics.median(times), tenths[0], tenths[-1])
