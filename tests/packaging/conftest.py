"""The distributions, built once from a copy of the tree (a build leaves egg-info and build/ behind)."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_build(kind: str, source: Path, out: Path) -> Path:
    """Build `source` into `out`; returns the archive."""
    done = subprocess.run(
        [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", out, source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Package would be ignored" not in done.stdout + done.stderr  # some day it will be, setuptools says
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="session")
def build() -> Callable[[str, Path, Path], Path]:
    return run_build


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as committed, links and all."""
    copy = tmp_path_factory.mktemp("source") / "tree"
    litter = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=litter)
    return copy


@pytest.fixture(scope="session")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_build("sdist", tree, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_build("wheel", tree, tmp_path_factory.mktemp("wheel"))
