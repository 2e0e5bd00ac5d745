"""What `k3moe doctor` can say without vLLM, torch or a GPU. Standard library only."""

import os
import platform
import pwd
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from . import __version__, envs, tables
from .cache import FLYDSL_CACHE, PARTS, distrust
from .gates import MODE_VARIABLES, MODES
from .shapes import K3_TP8
from .versions import versions

GROUP, NAME, VALUE = "vllm.general_plugins", "k3moe", "vllm_k3moe:register"  # as in pyproject.toml
SITU_OF_AITER = {"a8w4": "AITER_SITUV2_A8W4", "a4w4": "AITER_SITUV2_A4W4"}  # vLLM sets one of them, or neither
NEEDED = ("vllm", "torch", "triton", "aiter")


def all_versions() -> dict[str, str]:
    return {"vllm-k3moe": __version__, "python": platform.python_version(), **versions()}


def not_installed() -> list[str]:
    return [f"{name} is not installed" for name in NEEDED if find_spec(name) is None]


def settings(environ: Mapping[str, str]) -> dict[str, Any]:
    found = asdict(envs.read(environ))
    return {**found, "cache": str(found["cache"]), "errors": list(found["errors"])}


def entry_point(environ: Mapping[str, str]) -> dict[str, Any]:
    """Whether vLLM would find `register` and be let to load it, by vLLM's own reading of VLLM_PLUGINS."""
    allowed = environ.get("VLLM_PLUGINS")
    registered = any((e.name, e.value) == (NAME, VALUE) for e in entry_points(group=GROUP))
    reasons = []
    if not registered:
        reasons.append(f"entry point {NAME} of {GROUP} is not registered: vllm-k3moe is not installed in this Python")
    if allowed is not None and NAME not in allowed.split(","):
        reasons.append(f"VLLM_PLUGINS={allowed!r} does not name {NAME}, so vLLM does not load it")
    return {"registered": registered, "VLLM_PLUGINS": allowed, "reasons": reasons}


def _situ_conflicts(environ: Mapping[str, str], mode: str | None, variable: str | None) -> list[tuple[str, str]]:
    if mode not in MODES or variable is None:
        return []
    others = (name for name in MODE_VARIABLES if name != variable and name in environ)
    out = [(name, f"not read by this vLLM, which reads {variable}") for name in others]
    follows = "overwrites it" if variable == MODE_VARIABLES[0] else "leaves it, and AITER follows it on vLLM's own path"
    for of, name in SITU_OF_AITER.items():
        if name in environ and environ[name] != ("1" if of == mode else "0"):
            out.append((name, f"set by hand against vLLM's mode {mode}; vLLM {follows}: set {variable} alone"))
    return out


def conflicts(environ: Mapping[str, str], mode: str | None, variable: str | None) -> list[dict[str, str | None]]:
    """Variables that work against us: {variable, value, text}. `value` is null where the fault is that it is unset.

    `mode` is vLLM's SiTU mode and `variable` the one it took it from, as report.py asks them; None: nobody to ask.
    """

    def is_true(name: str, default: str) -> bool:
        return environ.get(name, default).lower() in ("true", "1")  # as vLLM reads it

    found = _situ_conflicts(environ, mode, variable)
    if not is_true("VLLM_ROCM_USE_AITER", "0"):
        found.append(("VLLM_ROCM_USE_AITER", "must be 1: without it vLLM runs these layers without AITER"))
    if not is_true("VLLM_ROCM_USE_AITER_MOE", "1"):
        found.append(("VLLM_ROCM_USE_AITER_MOE", "must not be off: vLLM then runs these layers without AITER"))
    if environ.get("AITER_CONFIG_FMOE"):
        found.append(("AITER_CONFIG_FMOE", "replaces AITER's own tables, which pick the tiles of a8w4 and a4w4"))
    if environ.get("AITER_FLYDSL_STAGE2_FP8", "0") == "1":
        found.append(("AITER_FLYDSL_STAGE2_FP8", "changes stage 2's arguments; a8w4 and a4w4 then run vLLM's path"))
    if environ.get("AITER_ONLINE_TUNE", "0") == "1":
        found.append(("AITER_ONLINE_TUNE", "lets AITER tune while it serves, under a lock, for minutes"))
    return [{"variable": name, "value": environ.get(name), "text": text} for name, text in found]


def conflict_reasons(found: list[dict[str, str | None]], mode: str | None) -> list[str]:
    """Those conflicts that by themselves keep us from running in vLLM's SiTU `mode`."""
    fatal = {"VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MOE"}
    if mode in SITU_OF_AITER:
        fatal.add("AITER_FLYDSL_STAGE2_FP8")
    return [
        f"{c['variable']} is {'not set' if c['value'] is None else repr(c['value'])}: {c['text']}"
        for c in found
        if c["variable"] in fatal
    ]


def tile_table(folder: Path = tables.TUNED) -> dict[str, Any]:
    """The rows of a16w4's table with the token counts they serve, or its check errors."""
    try:
        table = tables.load("gfx950", "a16w4", K3_TP8, folder)
    except tables.TableError as error:
        return {"name": f"gfx950/a16w4-i{K3_TP8.inter}.csv", "rows": [], "errors": [str(error)]}
    rows, first = [], 1
    for row in table.rows:
        rows.append({"first": first, "last": row.tokens, **asdict(row)})
        first = row.tokens + 1
    return {"name": table.name, "rows": rows, "errors": []}


def _folder(path: Path) -> dict[str, Any]:
    """{path, exists, owner, mode, problem, files, bytes} of a folder that may not be there."""
    out: dict[str, Any] = {"path": str(path), "exists": path.is_dir(), "owner": None, "mode": None, "problem": None}
    if not out["exists"]:
        above = next(p for p in path.absolute().parents if p.exists())
        if path.exists() or not above.is_dir():
            out["problem"] = f"cache folder {path}: {path if path.exists() else above} is no folder"
        elif not os.access(above, os.W_OK):
            out["problem"] = f"cache folder {path}: {above} is not writable; set K3MOE_CACHE to a folder that is"
        return {**out, "files": 0, "bytes": 0}
    found = path.stat()
    try:
        out["owner"] = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:  # a container's user without a name
        out["owner"] = str(found.st_uid)
    out |= {"mode": f"{stat.S_IMODE(found.st_mode):o}", "problem": distrust(path)}
    sizes = []
    for top, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # a server beside us compiles: its files are renamed while we look
                sizes.append(os.lstat(Path(top) / name).st_size)
    return {**out, "files": len(sizes), "bytes": sum(sizes)}


def cache(environ: Mapping[str, str]) -> dict[str, Any]:
    """The cache folder and its parts; FlyDSL's is the user's where he names one, and then it is not checked."""
    top = envs.read(environ).cache
    out = {"top": _folder(top), **{name: _folder(top / name) for name in PARTS}}
    if FLYDSL_CACHE in environ:
        out["flydsl"] = {**_folder(Path(environ[FLYDSL_CACHE])), "problem": None}
    return out
