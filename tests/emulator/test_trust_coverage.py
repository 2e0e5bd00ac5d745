"""Whatever instruction the served kernels use: the emulator has it in C, and a test compares it with NumPy."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COMMITTED = TESTS.parent / "benchmarks" / "results" / "gfx950-instructions.csv"
pytestmark = pytest.mark.on("gfx950")
# the other blocks compile for a minute each, unless test_codegen.py has already
BLOCKS = ["16", *(pytest.param(block, marks=pytest.mark.slow) for block in ("32", "64", "128"))]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_instruction_is_native_and_tested(block):
    """In a process of its own: compiling needs a driver that launches nothing."""
    report = [sys.executable, TESTS / "instruction_report.py", "--block", block]
    out = subprocess.run(report, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    rows = list(csv.DictReader(io.StringIO(out.stdout)))
    with COMMITTED.open() as file:
        committed = {row["instruction"] for row in csv.DictReader(file)}
    assert len(rows) > 100
    assert [row for row in rows if row["native"] != "yes"] == []
    assert [row for row in rows if row["tested"] == "no"] == [], "add a case to tests/instruction_*.py"
    new = [row["instruction"] for row in rows if row["instruction"] not in committed]
    assert new == [], f"rewrite the report: python tests/instruction_report.py > {COMMITTED}"
