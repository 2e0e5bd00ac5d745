"""The gfx950 code of what K3's plan launches: within the budget, and within 10% of the committed table."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMITTED = HERE.parents[1] / "benchmarks" / "results" / "gfx950-codegen.csv"
LABELS = ("kernel", "tokens", "mode", "block")
pytestmark = pytest.mark.on("gfx950")


def compile_table(block: str) -> list[dict[str, str]]:
    """In a process of its own: compiling needs a driver that launches nothing."""
    out = subprocess.run(
        [sys.executable, HERE / "table.py", "--block", block], capture_output=True, text=True, check=False
    )
    assert out.returncode == 0, out.stderr
    return list(csv.DictReader(io.StringIO(out.stdout.partition("\n")[2])))


@pytest.mark.parametrize("block", ["16", "32", "64", "128"])
def test_code_is_within_the_budget_and_does_not_grow(block):
    rows = compile_table(block)
    with COMMITTED.open() as file:
        next(file)  # what it was made with
        committed = {tuple(row[c] for c in LABELS): row for row in csv.DictReader(file)}
    assert {tuple(r[c] for c in LABELS) for r in rows} == {k for k in committed if k[3] in ("", block)}
    faults = []
    for row in rows:
        name = " ".join(row[c] for c in LABELS)
        n = {k: int(v) for k, v in row.items() if k not in LABELS}
        faults += [f"{name}: {n[c]} {c}; allowed: 0" for c in ("spills", "scratch", "atomics", "cache_ops") if n[c]]
        faults += [f"{name}: {n['vgpr']} VGPR; allowed: 128"] if n["vgpr"] > 128 else []
        faults += [f"{name}: {n['lds']} bytes of LDS; allowed: 65536"] if n["lds"] > 65536 else []
        old = committed[tuple(row[c] for c in LABELS)]
        for column in ("vgpr", "sgpr", "lds", "instructions"):
            if not int(old[column]) / 1.1 <= n[column] <= 1.1 * int(old[column]):
                faults.append(f"{name}: {column} {old[column]} -> {n[column]}; if meant: make codegen, and say why")
    assert faults == []
