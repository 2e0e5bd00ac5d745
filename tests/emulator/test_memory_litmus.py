"""Workgroups of one launch on emulated gfx950: what the memory model forbids never occurs, and its weakness shows."""

from pathlib import Path

import pytest

import litmus

pytestmark = pytest.mark.on("gfx950")
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def emulator(pytestconfig):
    conftest = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    return pytestconfig.stash[conftest.GFX950]


@pytest.mark.parametrize("case", litmus.CASES, ids=str)
def test_outcome(case, emulator):
    seen = litmus.occurrences(emulator, case)
    if case.verdict == litmus.SHOWN:
        assert seen > 0
    else:
        assert seen == 0


@pytest.mark.parametrize("case", [c for c in litmus.CASES if c.caches_only], ids=str)
def test_one_memory_would_hide_it(case, emulator):
    """Caches off, the emulator is what an H200 is: it passes code that is wrong on gfx950."""
    assert litmus.occurrences(emulator, case, caches=False) == 0


def test_the_page_has_these_cases():
    table = (TESTS.parent / "docs" / "memory.md").read_text().split("## Litmus tests")[1]
    rows = [line.rsplit("|", 2)[0] + "|" for line in table.splitlines() if line.startswith("| ")]
    assert rows[1:] == [litmus.row(case) for case in litmus.CASES]
