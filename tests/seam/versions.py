"""Run the seam's tests against another vLLM, from its source: no build, no installation.

pip download --no-deps --no-build-isolation --no-binary :all: vllm==0.30.0   # with VLLM_TARGET_DEVICE=empty set
tar -xzf vllm-0.30.0.tar.gz
python tests/seam/versions.py vllm-0.30.0 [pytest's arguments; default: the gates and the registration]

The interpreter is one where some vLLM is installed without kernels: its dependencies serve, its own code does not.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TESTS = ("test_gates.py", "test_register.py")


def version_of(source: Path) -> str:
    """As the source archive says it; a git checkout has no such file."""
    found = re.search(r"^__version__ = version = '([^']+)'", (source / "vllm" / "_version.py").read_text(), re.M)
    if found is None:
        raise SystemExit(f"{source}/vllm/_version.py names no version")
    return found[1]


def main(source: Path, *arguments: str) -> int:
    version = version_of(source)
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder, f"vllm-{version}.dist-info")  # what importlib.metadata tells the version gate
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
        path = os.pathsep.join(map(str, [ROOT, folder, source]))
        environment = {**os.environ, "PYTHONPATH": path}
        where = "import vllm; from importlib.metadata import version; print(version('vllm'), vllm.__file__)"
        found = subprocess.check_output([sys.executable, "-c", where], env=environment, text=True, cwd=ROOT).split()
        if found[0] != version or not Path(found[1]).is_relative_to(source):
            raise SystemExit(f"asked for vLLM {version} in {source}, got {' '.join(found)}")
        print(f"vLLM {version} from {source}", flush=True)
        command = [sys.executable, "-m", "pytest", "--backend", "gfx950", "-q"]
        tests = arguments or tuple(str(HERE / name) for name in TESTS)
        return subprocess.call([*command, *tests], env=environment, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
