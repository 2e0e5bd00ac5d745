"""Break the C core on purpose; an instruction test must fail each time."""

import os
import shutil
from pathlib import Path

import pytest

import one_instruction as one
from instruction_cases import PROGRAMS
from instruction_check import differences
from instruction_mutants import MUTANTS

SOURCE = Path(one.EMULATOR) / "cdna4_core.c"
pytestmark = pytest.mark.on("gfx950")


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C compiler, told not to optimise: compiling is most of what these tests do."""
    cc = os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc") or "cc"
    script = tmp_path_factory.mktemp("compiler") / "cc"
    script.write_text(f'#!/bin/sh\nexec {cc} "$@" -O0\n')
    script.chmod(0o755)
    return script


def load(text: str, folder: Path, compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the emulator run `text`, compiled in `folder`. Only until the test ends: the real core comes back."""
    one.assemble(PROGRAMS)
    import cdna4_ext

    (folder / SOURCE.name).write_text(text)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("GFX950_BUILD", str(folder))
    monkeypatch.setattr(cdna4_ext, "HERE", folder)
    monkeypatch.setattr(cdna4_ext, "_core", None)


def test_the_core_itself_passes(compiler, tmp_path, monkeypatch):
    """Unchanged but compiled in the same way, so that what fails below is the mutant's doing."""
    load(SOURCE.read_text(), tmp_path, compiler, monkeypatch)
    assert [d for asm in sorted({mutant.asm for mutant in MUTANTS}) for d in differences(asm, trials=24)] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.what)
def test_a_test_fails(mutant, compiler, tmp_path, monkeypatch):
    text = SOURCE.read_text()
    assert text.count(mutant.old) == 1, f"{SOURCE.name} holds {mutant.old!r} {text.count(mutant.old)} times"
    load(text.replace(mutant.old, mutant.new), tmp_path, compiler, monkeypatch)
    assert differences(mutant.asm, trials=24)
