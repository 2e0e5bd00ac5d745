"""`k3moe bench gfx950`: what each served launch executes on gfx950, from the committed tables. Counts, never time."""

import csv
import sys
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..kernels import mx
from ..kernels.situ import MAX_TOKENS as MAX_SHARED
from ..plan import RoutePlan
from ..shapes import K3_TP8
from ..tail import MAX_TOKENS as MAX_TAIL

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
TABLE = RESULTS / "gfx950-cost.csv"
BLOCK = 32
MODELESS = ("situ", "shared_down", "shared_token", "latent_tail")
COLUMNS = ("instructions", "instructions_largest_workgroup", "cycles_slowest_workgroup", "cycles_total", "cache_ops")


def rows() -> list[dict[str, str]]:
    """The committed table."""
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def parts(mode: str, m: int) -> dict[str, tuple[str, ...]]:
    """What is served at M tokens, by kernels' names: the front, the front with the shared expert, the tail."""
    plan = RoutePlan(K3_TP8, mode, BLOCK)
    found = {"front": plan.launches(m)}
    if m <= MAX_SHARED:
        found["shared"] = plan.launches(m, with_shared=True)
    if m <= MAX_TAIL:
        found["tail"] = ("latent_tail",)
    return found


def served() -> list[dict[str, object]]:
    """Per mode, M and part the launches served, their figures added up; "" where the model has none."""
    by_launch = {(row["kernel"], row["mode"], int(row["M"])): row for row in rows()}
    counts = sorted({m for _, _, m in by_launch})
    out: list[dict[str, object]] = []
    for mode, m in product(mx.MODES, counts):
        for part, names in parts(mode, m).items():
            launches = [by_launch[name, "" if name in MODELESS else mode, m] for name in names]
            sums = {c: sum(int(row[c]) for row in launches) if all(row[c] for row in launches) else "" for c in COLUMNS}
            out.append({"mode": mode, "M": m, "part": part, "launches": len(names), **sums})
    return out


def run() -> int:
    """Print the table; exit status."""
    if not TABLE.is_file():
        print(f"k3moe: {TABLE.name} comes with a source checkout of vllm-k3moe, not with the wheel", file=sys.stderr)
        return 2
    table = Table(title="Served launches on emulated gfx950: counts and a model's cycles, not time")
    counted = ("instructions", "largest group", "slowest, cycles", "all, cycles", "wbl2, inv")
    names = ("mode", "M", "part", "launches", *counted)
    for name in names:
        table.add_column(name, justify="left" if name in ("mode", "part") else "right")
    for row in served():
        table.add_row(*(f"{v:,}" if isinstance(v, int) else str(v) for v in row.values()))
    console = Console()
    console.width = max(console.width, 110)  # or numbers are cut off
    console.print(table)
    return 0
