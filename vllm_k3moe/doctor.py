"""`k3moe doctor`: would the fused path run here, and if not, why. Runs where vLLM, torch or AITER are broken, too.

--json prints one document; a key whose probe failed is null:

    verdict, status    active 0, inactive 1, broken 2 (a probe failed or a setting is wrong); status is the exit status
    reasons[]          why it would be inactive, all of them
    unknown            what cannot be said before a model is built
    failures           {probe: error} of each probe that raised
    versions, settings, entry_point, conflicts[], table, cache, locks[], platform, compute_units, situ_mode,
    situ_variable, aiter
                       what the functions of doctor_host.py, doctor_vllm.py and aiter_locks.py return

What the probes and the libraries they load print goes to stderr.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import aiter_locks, doctor_host, doctor_vllm, envs

UNKNOWN = "shape, routing, parallelism and the engine's options are checked when a model is built"
VERDICTS = ("active", "inactive", "broken")


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """The file descriptor, not only sys.stdout: libraries and compilers that AITER starts write to it."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def examine() -> dict[str, Any]:
    """The document, of this process and its environment as they were before vLLM is imported, which changes them."""
    environ, failures = dict(os.environ), {}

    def probe(name: str, ask: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except (Exception, SystemExit) as error:  # whatever a broken installation raises; the other probes go on
            failures[name] = f"{type(error).__name__}: {error}"
            return None

    doc: dict[str, Any] = {
        "versions": probe("versions", doctor_host.all_versions),
        "settings": probe("settings", doctor_host.settings, environ),
        "entry_point": probe("entry_point", doctor_host.entry_point, environ),
        "conflicts": None,
        "table": probe("table", doctor_host.tile_table),
        "cache": probe("cache", doctor_host.cache, environ),
        "locks": probe("locks", aiter_locks.locks, environ),
        "platform": None,
        "compute_units": None,
        "situ_mode": None,
        "situ_variable": None,
        "aiter": None,
    }
    point, absent = doc["entry_point"], probe("packages", doctor_host.not_installed) or []
    reasons = [f"setting: {error}" for error in (doc["settings"] or {}).get("errors", ())]
    reasons += [*absent, *(point or {}).get("reasons", ())]
    if not {"vllm is not installed", "torch is not installed", "triton is not installed"}.intersection(absent):
        settings = envs.read(environ)
        loadable = point is not None and not point["reasons"]
        doc["platform"] = probe("platform", doctor_vllm.platform)
        doc["compute_units"] = probe("compute_units", doctor_vllm.compute_units)
        reasons += probe("decision", doctor_vllm.decision, settings, loadable) or []
        doc["situ_mode"] = probe("situ_mode", doctor_vllm.situ_mode)
        doc["situ_variable"] = probe("situ_variable", doctor_vllm.situ_variable)
        doc["aiter"] = probe("aiter", doctor_vllm.aiter_missing)
    elif envs.read(environ).mode == envs.OFF:
        reasons.append("K3MOE=off")
    doc["conflicts"] = probe("conflicts", doctor_host.conflicts, environ, doc["situ_mode"], doc["situ_variable"])
    reasons += _consequences(doc)
    status = 2 if failures or (doc["settings"] or {}).get("errors") else 1 if reasons else 0
    head = {"verdict": VERDICTS[status], "status": status, "reasons": list(dict.fromkeys(reasons))}
    return {**head, "unknown": UNKNOWN, "failures": failures, **doc}


def _consequences(doc: dict[str, Any]) -> list[str]:
    """Reasons that follow from what the probes of one thing each found."""
    from .gates import COMPUTE_UNITS, MODES

    mode, units, cache = doc["situ_mode"], doc["compute_units"], doc["cache"] or {}
    reasons = doctor_host.conflict_reasons(doc["conflicts"] or [], mode)
    if mode is not None and mode not in MODES:
        reasons.append(f"SiTU mode {mode!r}; served: {', '.join(MODES)}")
    if units not in (None, COMPUTE_UNITS):
        reasons.append(f"{units} compute units (a partitioned GPU?); the tile tables are for {COMPUTE_UNITS}")
    reasons += (doc["aiter"] or {}).get(mode, ())
    if mode in (None, "a16w4"):
        reasons += [f"tile table: {error}" for error in (doc["table"] or {}).get("errors", ())]
    return reasons + [folder["problem"] for folder in cache.values() if folder["problem"]]


def run(as_json: bool) -> int:
    """Print the document or its text; the exit status."""
    with _stdout_to_stderr():
        doc = examine()
    if as_json:
        print(json.dumps(doc, indent=2))
    else:
        from .doctor_text import show

        show(doc)
    status: int = doc["status"]
    return status
