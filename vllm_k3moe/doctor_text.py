"""The text of `k3moe doctor`: its document for people."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

COLOURS = {"active": "green", "inactive": "yellow", "broken": "red"}
HEADS = {
    "active": "k3moe would be active",
    "inactive": "k3moe would be inactive",
    "broken": "broken: a probe failed or a setting is wrong",
}


def age(seconds: int) -> str:
    """As in 3 h, 5 min, 12 s: the largest unit that fits."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _folder(folder: dict[str, Any]) -> str:
    if not folder["exists"]:
        return f"{folder['path']}: not there yet"
    size = f"{folder['files']} files, {folder['bytes']} bytes"
    return f"{folder['path']}: owner {folder['owner']}, mode {folder['mode']}, {size}"


def _sections(doc: dict[str, Any]) -> dict[str, list[str]]:
    """Title to lines. A section whose probe failed has its error under `failed probes`."""
    out: dict[str, list[str]] = {"reasons": doc["reasons"]}
    out["failed probes"] = [f"{name}: {error}" for name, error in doc["failures"].items()]
    out["versions"] = [", ".join(f"{name} {version}" for name, version in (doc["versions"] or {}).items())]
    if (platform := doc["platform"]) is not None:
        units = f", {doc['compute_units']} compute units" if doc["compute_units"] else ""
        out["GPU"] = [f"{platform['architecture'] or 'not ROCm'}{units} ({platform['name']})"]
    settings = {name: value for name, value in (doc["settings"] or {}).items() if name != "errors"}
    out["settings"] = [", ".join(f"{name} {value}" for name, value in settings.items())]
    if (point := doc["entry_point"]) is not None:
        plugins = point["VLLM_PLUGINS"]
        registered = "registered" if point["registered"] else "not registered"
        out["entry point"] = [f"{registered}; VLLM_PLUGINS {'not set' if plugins is None else repr(plugins)}"]
    if doc["aiter"] is not None:
        out["AITER"] = [f"{m}: {'; '.join(e) or 'all we call is there'}" for m, e in doc["aiter"].items()]
        out["AITER"].append(f"vLLM would choose {doc['situ_mode'] or 'unknown'}")
    out["environment"] = [
        f"{c['variable']}{' not set' if c['value'] is None else '=' + c['value']}: {c['text']}"
        for c in doc["conflicts"] or ()
    ]
    out["cache"] = [_folder(folder) for folder in (doc["cache"] or {}).values()]
    out["AITER's locks"] = [f"{k['state']}, {age(k['age_s'])} old: {k['path']}" for k in doc["locks"] or ()]
    return out


def _tiles(table: dict[str, Any]) -> Table:
    out = Table("M", "block", "stage 1", "stage 2", "source", title=f"tiles {table['name']}", title_justify="left")
    for row in table["rows"]:
        tiles = (
            f"{t['n']}x{t['k']} kw{t['k_wave']} bnt{t['b_nt']} xcd{t['xcd_swizzle']}"
            for t in (row["stage1"], row["stage2"])
        )
        out.add_row(f"{row['first']}-{row['last']}", str(row["block"]), *tiles, row["source"])
    return out


def show(doc: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold {COLOURS[doc['verdict']]}]{HEADS[doc['verdict']]}[/]")
    for title, lines in _sections(doc).items():
        if any(lines):
            console.print(f"[bold]{title}[/]")
            for line in lines:
                console.print(f"  {escape(line)}")
    if doc["table"] is not None and doc["table"]["rows"]:
        console.print(_tiles(doc["table"]))
    console.print(f"not known yet: {doc['unknown']}")
