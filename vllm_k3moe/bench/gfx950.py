"""`k3moe bench gfx950`: what each served launch executes on gfx950, from the committed tables. Counts, never time."""

import csv
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..kernels import mx
from ..plan import RoutePlan
from ..shapes import K3_TP8

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
TABLE = RESULTS / "gfx950-cost.csv"
BLOCK = 32
COLUMNS = ("instructions", "instructions_largest_workgroup", "cycles_slowest_workgroup", "cycles_total", "cache_ops")


def rows() -> list[dict[str, str]]:
    """The committed table."""
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def served() -> list[dict[str, object]]:
    """Per mode and M the launches that the plan serves, their figures added up; "" where the model has none."""
    by_launch = {(row["kernel"], row["mode"], int(row["M"])): row for row in rows()}
    counts = sorted({m for _, _, m in by_launch})
    out: list[dict[str, object]] = []
    for mode in mx.MODES:
        plan = RoutePlan(K3_TP8, mode, BLOCK)
        for m in counts:
            launches = [by_launch[name, mode, m] for name in plan.launches(m)]
            sums = {c: sum(int(row[c]) for row in launches) if all(row[c] for row in launches) else "" for c in COLUMNS}
            out.append({"mode": mode, "M": m, "launches": len(plan.launches(m)), **sums})
    return out


def run() -> int:
    """Print the table; exit status."""
    if not TABLE.is_file():
        print(f"k3moe: {TABLE.name} comes with a source checkout of vllm-k3moe, not with the wheel", file=sys.stderr)
        return 2
    table = Table(title="Served launches on emulated gfx950: counts and a model's cycles, not time")
    names = ("mode", "M", "launches", "instructions", "largest group", "slowest, cycles", "all, cycles", "wbl2, inv")
    for name in names:
        table.add_column(name, justify="left" if name == "mode" else "right")
    for row in served():
        table.add_row(*(f"{v:,}" if isinstance(v, int) else str(v) for v in row.values()))
    Console().print(table)
    return 0
