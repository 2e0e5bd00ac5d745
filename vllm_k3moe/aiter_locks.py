"""Lock files that AITER left behind: its builds and merges wait for whoever holds one. Standard library only.

Read in ROCm/aiter at e4048607a5: aiter/jit/core.py:51 (mp_lock), :372 (merged tables), :492 (the JIT folder), :871;
aiter/jit/utils/cpp_extension.py:1267; aiter/jit/utils/file_baton.py (what a lock holds, and when it is stale).
"""

import os
import socket
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CONFIGS = Path("/tmp/aiter_configs")  # merged tables; the path is fixed in AITER
BUILD_LOCKS = ("lock_*", "*/build/lock", "*/build/lock.steal")  # below a JIT folder's build/
CONFIG_LOCKS = ("*.lock", "*.lock.steal")
GRACE = 10.0  # seconds that AITER gives a lock without an owner in it


def jit_folders(environ: Mapping[str, str]) -> list[Path]:
    """Where AITER may build: the folder that AITER_JIT_DIR names, else its own package's or one in the home."""
    if "AITER_JIT_DIR" in environ:
        return [Path(environ["AITER_JIT_DIR"])]
    spec = find_spec("aiter")
    packages = list(spec.submodule_search_locations or ()) if spec is not None else []
    return [*(Path(package) / "jit" for package in packages), Path.home() / ".aiter" / "jit"]


def _state(file: Path, age: float) -> str:
    """held, stale, or "of host NAME" for a lock whose holder cannot be asked after from here."""
    lines = file.read_text(errors="replace").splitlines()
    if len(lines) < 2 or not lines[0].strip().isdigit():
        return "stale" if age > GRACE else "held"
    if lines[1].strip() != socket.gethostname():
        return f"of host {lines[1].strip()}"
    try:
        os.kill(int(lines[0]), 0)
    except (ProcessLookupError, OverflowError):
        return "stale"
    except PermissionError:  # another user's, and alive
        pass
    return "held"


def locks(environ: Mapping[str, str], configs: Path = CONFIGS) -> list[dict[str, Any]]:
    """Every lock: {path, age_s, state}. One that goes away while it is looked at is not reported."""
    files = [file for folder in jit_folders(environ) for p in BUILD_LOCKS for file in (folder / "build").glob(p)]
    files += [file for pattern in CONFIG_LOCKS for file in configs.glob(pattern)]
    found = []
    for file in sorted(set(files)):
        try:
            age = max(0.0, time.time() - file.stat().st_mtime)
            found.append({"path": str(file), "age_s": round(age), "state": _state(file, age)})
        except FileNotFoundError:
            continue
    return found
