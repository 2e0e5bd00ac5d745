"""An editable install in a fresh venv that sees nothing of this one but its third-party packages."""

import subprocess
import sysconfig
import venv
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = [pytest.mark.host, pytest.mark.xdist_group("packaging")]


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def scripts(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("editable")
    venv.create(folder / "venv", with_pip=False)
    scripts = folder / "venv" / "bin"
    # Torch and the like by path. The .pth files of the folder added so are not read: this venv's own editable install
    # stays out of sight.
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "third-party.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip = (scripts / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "--no-deps", "--no-build-isolation", "--ignore-installed", "-e", tree, cwd=folder)
    return scripts


def test_every_module_comes_from_the_tree_under_its_own_name(scripts, tree, tmp_path):
    program = """
import importlib, pkgutil, sys
import vllm_k3moe.kernels, vllm_k3moe.tuned
for package in (vllm_k3moe.kernels, vllm_k3moe.tuned):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
print([name for name in sys.modules if name.partition(".")[0] in ("kernels", "tuned")])
print(*(m.__file__ for name, m in sorted(sys.modules.items()) if name.startswith("vllm_k3moe")), sep="\\n")
"""
    stray, *files = run(scripts / "python", "-c", program, cwd=tmp_path).splitlines()
    assert stray == "[]"
    assert all(Path(f).resolve().is_relative_to(tree.resolve()) for f in files)
    assert len(files) >= 2 + len(list((tree / "kernels").glob("*.py")))


def test_command(scripts, tmp_path):
    assert "demo" in run(scripts / "k3moe", "--help", cwd=tmp_path)
    assert run(scripts / "k3moe", "--version", cwd=tmp_path) == "vllm-k3moe 0.1.0\n"


def test_plugin_is_found_by_the_name_vllm_looks_for(scripts, tmp_path):
    program = (
        "from importlib.metadata import entry_points; import vllm_k3moe; "
        "(p,) = [p for p in entry_points(group='vllm.general_plugins') if p.name == 'k3moe']; "
        "print(p.load() is vllm_k3moe.register)"
    )
    assert run(scripts / "python", "-c", program, cwd=tmp_path) == "True\n"


def test_this_environment_runs_what_the_constraints_say():
    """The code generation table depends on the exact triton, the emulator on the exact tinygrad."""
    lines = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line.startswith(("triton", "tinygrad"))]
    pins = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
    assert [str(pin) for pin in pins if version(pin.name) not in pin.specifier] == [], "run make lint: it sets up anew"
