"""Break the C core on purpose; an instruction test must fail each time."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from instruction_check import differences
from instruction_mutants import MUTANTS

pytestmark = pytest.mark.on("gfx950")


def compiled(folder: Path, old: str = "", new: str = "") -> Any:
    """The core with `old` replaced, which it must hold once. Unoptimised: compiling is most of what these tests do."""
    from gfx950emu import native

    sources = shutil.copytree(native.SOURCES, folder / "core")
    if old:
        holding = [path for path in sorted(sources.iterdir()) if old in path.read_text()]
        held = sum(path.read_text().count(old) for path in holding)
        assert held == 1, f"the core holds {old!r} {held} times, in {[path.name for path in holding]}"
        holding[0].write_text(holding[0].read_text().replace(old, new))
    return native.Core(native.build(sources, folder, "-O0"))


def test_the_core_itself_passes(tmp_path):
    """Unchanged but compiled in the same way, so that what fails below is the mutant's doing."""
    core = compiled(tmp_path)
    assert [d for asm in sorted({mutant.asm for mutant in MUTANTS}) for d in differences(asm, 24, core)] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.what)
def test_a_test_fails(mutant, tmp_path):
    assert differences(mutant.asm, 24, compiled(tmp_path, mutant.old, mutant.new))
