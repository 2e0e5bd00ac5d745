"""Who may import whom, and what loading the package costs."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.host
ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "triton", "vllm", "aiter", "numpy", "rich")


def sources(*folders: str) -> Iterator[Path]:
    """Python files below, not through the links."""
    for folder in folders:
        for path, inner, files in os.walk(ROOT / folder):
            inner[:] = [d for d in inner if not d.startswith(".")]
            yield from (Path(path, f) for f in files if f.endswith(".py"))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, top-level name) of every absolute import in a file, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text(), path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


@pytest.mark.parametrize("folder", ["kernels", "tuned"])
def test_a_linked_folder_is_never_imported_by_its_bare_name(folder):
    """A second copy of a kernel's module would be compiled, cached and patched apart from the first."""
    seen = list(sources("vllm_k3moe", "kernels", "tuned", "tests", "evals", "benchmarks"))
    assert len(seen) > 10
    assert [f"{p.relative_to(ROOT)}:{line}" for p in seen for line, name in imported(p) if name == folder] == []


def test_kernels_import_only_torch_and_triton():
    allowed = {"torch", "triton", *sys.stdlib_module_names}
    found = [f"{p.name}:{line} {name}" for p in sources("kernels") for line, name in imported(p) if name not in allowed]
    assert found == []


def test_links():
    for folder in ("kernels", "tuned"):
        assert os.readlink(ROOT / "vllm_k3moe" / folder) == f"../{folder}"


def fresh(program: str) -> str:
    """What `program` prints in a new interpreter outside the repository; its last line is the heavy modules loaded."""
    program += f"\nimport sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_register_is_light_and_may_run_again():
    assert fresh("import vllm_k3moe\nfor _ in range(3): print(vllm_k3moe.register())") == "None\nNone\nNone\n[]\n"


def test_help_is_light():
    program = "from vllm_k3moe.cli import main\ntry: main(['demo', '--help'])\nexcept SystemExit as e: print(e.code)"
    out = fresh(program)
    assert "--seed" in out
    assert out.endswith("0\n[]\n")


@pytest.mark.parametrize(
    "arguments, named",
    [
        ([], "COMMAND"),
        (["demo", "--m", "0"], "M = 0; accepted: 1 to 512"),
        (["demo", "--m", "1,513"], "M = 513"),
        (["demo", "--m", "1,,2"], "'1,,2' is not"),
        (["demo", "--mode", "fp8"], "'fp8'"),
        (["demo", "--device", "tpu"], "'tpu'"),
        (["demo", "--seed", "x"], "'x'"),
    ],
)
def test_wrong_usage_names_the_argument(arguments, named, capsys):
    from vllm_k3moe.cli import main

    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert named in capsys.readouterr().err
