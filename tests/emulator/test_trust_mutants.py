"""Break the C core on purpose; an instruction test must fail each time."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import object_cache
from instruction_check import differences
from instruction_mutants import MUTANTS

pytestmark = pytest.mark.on("gfx950")
TRIALS = 64  # a mutant of the sign of 0 shows in one of 300 lanes, and half of them are off


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C compiler, told not to optimise and to keep objects: compiling is most of what these tests do."""
    from gfx950emu import native

    folder = tmp_path_factory.mktemp("compiler")
    script = folder / "cc"
    keeping = f'"{sys.executable}" "{object_cache.__file__}" "{folder}" "{native.compiler()}"'
    script.write_text(f'#!/bin/sh\nexec {keeping} "$@" -O0\n')
    script.chmod(0o755)
    return script


@pytest.fixture
def sources(compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the core's sources, to be compiled by `compiler`."""
    from gfx950emu import native

    monkeypatch.setenv("CC", str(compiler))
    return Path(shutil.copytree(native.SOURCES, tmp_path / "core"))


def compiled(sources: Path) -> Any:
    from gfx950emu import native

    return native.Core(native.build(sources, sources.parent))


def test_the_core_itself_passes(sources):
    """Unchanged but compiled in the same way, so that what fails below is the mutant's doing."""
    core = compiled(sources)
    assert [d for asm in sorted({mutant.asm for mutant in MUTANTS}) for d in differences(asm, TRIALS, core)] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.what)
def test_a_test_fails(mutant, sources):
    file = sources / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} holds {mutant.old!r} {text.count(mutant.old)} times"
    file.write_text(text.replace(mutant.old, mutant.new))
    assert differences(mutant.asm, TRIALS, compiled(sources))
