"""Break each kernel on purpose; some test must fail each time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mutants import MUTANTS

ROOT = Path(__file__).parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "--backend", "gfx950")
BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # what a run starts with is most of its time, and plugins are some of it
pytestmark = pytest.mark.on("gfx950")


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree that is broken: a copy, so that nothing of the real one can stay broken."""
    to = tmp_path_factory.mktemp("mutants") / "tree"
    for name in ("kernels", "tuned", "vllm_k3moe", "tests", "pyproject.toml"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, to / name)
    return to


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.what)
def test_a_test_fails(mutant, copy):
    source = copy / mutant.file
    text = source.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} holds {mutant.old!r} {text.count(mutant.old)} times"
    source.write_text(text.replace(mutant.old, mutant.new))
    try:
        run = subprocess.run(
            [*PYTEST, f"tests/kernels/{mutant.tests}", "-k", mutant.select],
            cwd=copy, env=os.environ | BARE, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        source.write_text(text)
    assert "CompilationError" not in run.stdout, "a mutant must compile"
    assert run.returncode == 1, f"pytest ended with {run.returncode}, not with a failed test:\n{run.stdout[-3000:]}"
