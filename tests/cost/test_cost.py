"""What the served kernels execute: not growing unseen."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMITTED = HERE.parents[1] / "benchmarks" / "results" / "gfx950-cost.csv"
LABELS = ("kernel", "M", "mode", "block")
# most tokens, and most with cycles: 64 run every specialisation, and one pass through it; more only repeat it
FEW, ALL = (64, 1), (512, 32)
pytestmark = pytest.mark.on("gfx950")


def read(text: str) -> dict[tuple[str, ...], dict[str, str]]:
    """Rows by their labels; the first line is a comment."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    table = list(csv.DictReader(io.StringIO("\n".join(lines))))
    rows = {tuple(row[c] for c in LABELS): row for row in table}
    assert len(rows) == len(table)
    return rows


def recompute(mode: str, max_tokens: int, max_traced: int) -> dict[tuple[str, ...], dict[str, str]]:
    """In a process of its own, as `make cost` does it."""
    limits = ["--max-tokens", str(max_tokens), "--max-traced", str(max_traced)]
    command = [sys.executable, HERE / "table.py", "--mode", mode, *limits]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    return read(out.stdout)


def faults(rows: dict, committed: dict) -> list[str]:
    """Every recomputed figure that grew by more than 10%, or that the committed table lacks."""
    out = []
    for labels, row in rows.items():
        for column, new in row.items():
            old = committed[labels][column]
            if column not in LABELS and new != "" and (old == "" or int(new) > 1.1 * int(old)):
                out.append(f"{' '.join(labels)}: {column} {old} -> {new}; if meant: make cost, and say why")
    return out


@pytest.mark.parametrize("max_tokens, max_traced", [FEW, pytest.param(*ALL, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["none", "mxfp8", "mxfp4"])
def test_cost_does_not_grow(mode, max_tokens, max_traced):
    committed = read(COMMITTED.read_text())
    rows = recompute(mode, max_tokens, max_traced)
    modes = {mode, ""} if mode == "none" else {mode}  # routing alone has no mode and comes with the first
    assert set(rows) == {k for k in committed if k[2] in modes and int(k[1]) <= max_tokens}
    assert all((row["cycles_total"] != "") == (int(row["M"]) <= max_traced) for row in rows.values())
    assert faults(rows, committed) == []


def test_growth_is_seen():
    sort = ("sort", "1", "", "32")
    committed = {sort: {"instructions": "100", "atomics": "0", "cycles": ""}}
    assert faults({sort: {"instructions": "110", "atomics": "0", "cycles": ""}}, committed) == []
    assert len(faults({sort: {"instructions": "111", "atomics": "1", "cycles": "7"}}, committed)) == 3
