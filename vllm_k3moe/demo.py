"""`k3moe demo`: the MoE front at Kimi-K3's sizes, on random data, product by product against the oracle.

--json prints one document:

    device, versions, seed, shape         what ran
    launches[mode]                        [{step, stock: [low, high], ours: [low, high]}] of one layer; the front's own
                                          are counted under top-k, and nothing under sort and quantise
    cases[]                               {m, mode, launches, ids, sorted, quantised, weight_ulp, us, faults[]}
    block[]                               {m, mode, error, faults[]}: routed experts on the front's products
    ok                                    no faults anywhere

The fields of cases and block are those of `verify.Case` and `verify.Block`.
"""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import device as devices
from .shapes import K3_TP8

if TYPE_CHECKING:
    from .verify import Block, Case

MODES = {"none": "a16w4", "mxfp8": "a8w4", "mxfp4": "a4w4"}
BLOCK_TOKENS = 2  # tokens of the end-to-end check
CPU_TOKENS = [1, 2, 4, 8]
GPU_TOKENS = [2**i for i in range(10)]
# Launches of one layer in vLLM 0.33 with AITER, as their code reads; a fused quantiser is one launch, a split one two.
STOCK = {
    "top-k": 1,
    "sort": 2,
    "quantise": 0,  # see QUANTISERS
    "stage 1": 1,
    "stage 2": 1,
    "shared SiTU": 1,
    "shared down": 1,
    "latent norm": 1,
    "up-projection": 1,
}
QUANTISERS = {"none": (0, 0), "mxfp8": (1, 2), "mxfp4": (1, 2)}
FRONT = ("top-k", "sort", "quantise")  # what ours replaces in this release


def span(range_: list[int]) -> str:
    return str(range_[0]) if range_[0] == range_[1] else f"{range_[0]} to {range_[1]}"


def launches(mode: str, ms: list[int]) -> list[dict[str, Any]]:
    """Each step of a layer with its launches, stock and ours, and their sums."""
    from .plan import RoutePlan

    plan = RoutePlan(K3_TP8, mode, 32)
    fronts = [len(plan.launches(m)) for m in ms]
    rows: list[dict[str, Any]] = []
    for step, count in STOCK.items():
        stock = list(QUANTISERS[mode]) if step == "quantise" else [count, count]
        ours = [min(fronts), max(fronts)] if step == FRONT[0] else [0, 0] if step in FRONT else [count, count]
        rows.append({"step": step, "stock": stock, "ours": ours})
    total = {side: [sum(row[side][i] for row in rows) for i in (0, 1)] for side in ("stock", "ours")}
    return [*rows, {"step": "sum", **total}]


def versions() -> dict[str, str]:
    import torch
    import triton

    from . import __version__

    return {"vllm-k3moe": __version__, "torch": torch.__version__, "triton": triton.__version__}


def device_name(device: str) -> str:
    import torch

    names = {devices.INTERPRETER: "CPU, Triton's interpreter", devices.GFX950: "CPU, emulated gfx950 machine code"}
    return names.get(device) or torch.cuda.get_device_name()


def report(device: str, seed: int, cases: "list[Case]", blocks: "list[Block]") -> dict[str, Any]:
    modes = list(dict.fromkeys(case.mode for case in cases))
    return {
        "device": device_name(device),
        "versions": versions(),
        "seed": seed,
        "shape": asdict(K3_TP8),
        "launches": {mode: launches(mode, [case.m for case in cases]) for mode in modes},
        "cases": [asdict(case) for case in cases],
        "block": [asdict(block) for block in blocks],
        "ok": not any(case.faults for case in cases) and not any(block.faults for block in blocks),
    }


def print_tables(doc: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    shape = doc["shape"]
    steps = Table(title="Launches of one layer: vLLM 0.33 + AITER (stock) and here", title_justify="left")
    steps.add_column("step")
    for mode in doc["launches"]:
        steps.add_column(f"{MODES[mode]} stock", justify="right")
        steps.add_column("here", justify="right")
    for rows in zip(*doc["launches"].values(), strict=True):
        fused = rows[0]["step"] in FRONT[1:]
        cells = [cell for row in rows for cell in (span(row["stock"]), "in it" if fused else span(row["ours"]))]
        steps.add_row(rows[0]["step"], *cells, style="bold" if rows[0]["step"] == "sum" else None)
    console.print(steps)

    table = Table(
        title=f"Front at E={shape['experts']}, K={shape['topk']}, L={shape['latent']} on {doc['device']}, "
        "against the oracle",
        title_justify="left",
        caption="x normal, one column in 64 twenty times as large; logits normal, deviation 1.2; bias 0.1. "
        "ids: exact wherever scores differ by more than 8 ulp",
        caption_justify="left",
    )
    for name in ("M", "mode", "launches", "ids", "sorted bytes", "quantised bytes", "weight error, ulp", "us"):
        table.add_column(name, justify="left" if name == "mode" else "right")
    for case in doc["cases"]:
        us = "-" if case["us"] is None else f"{case['us']:.1f}"
        ulp = "-" if case["weight_ulp"] is None else f"{case['weight_ulp']:.1f}"
        verdicts = (case[name] or "-" for name in ("ids", "sorted", "quantised"))
        table.add_row(
            str(case["m"]), case["mode"], str(case["launches"]), *verdicts, ulp, us,
            style="red" if case["faults"] else None,
        )  # fmt: skip
    console.print(table)
    for block in doc["block"]:
        if block["error"] is None:
            continue
        console.print(
            f"routed block, M={block['m']}, I={shape['inter']}, mode {block['mode']}: oracle experts on the front's "
            f"products differ from the oracle by {block['error']:.1e} (relative L2)"
        )
    for entry in (*doc["cases"], *doc["block"]):
        for fault in entry["faults"]:
            console.print(f"MISMATCH at M={entry['m']}, mode {entry['mode']}: {fault}", style="red", soft_wrap=True)
    console.print("every product equals the oracle's" if doc["ok"] else "some products differ: see MISMATCH above")


def wrong_usage(ms: list[int] | None, modes: list[str]) -> list[str]:
    """Why `ms` and `modes` cannot be run, one line each."""
    faults = [f"M = {m}; accepted: 1 to 512" for m in ms or [] if not 1 <= m <= 512]
    faults += [f"mode {mode!r}; accepted: {', '.join(MODES)}" for mode in modes if mode not in MODES]
    faults += [f"M = {m} twice; name each once" for m in sorted({m for m in ms or [] if (ms or []).count(m) > 1})]
    return faults + [f"mode {m!r} twice; name each once" for m in sorted({m for m in modes if modes.count(m) > 1})]


def run_demo(ms: list[int] | None, modes: list[str], device: str, seed: int, as_json: bool) -> int:
    """Exit status: 0 all equal, 1 a mismatch, 2 wrong usage or no such device. `ms` None: the device's own list."""
    if faults := wrong_usage(ms, modes):
        print("\n".join(f"k3moe demo: {fault}" for fault in faults), file=sys.stderr)
        return 2
    try:
        device = devices.start(device)
    except devices.DeviceError as error:
        print(f"k3moe demo: {error}", file=sys.stderr)
        return 2
    import torch
    from rich.console import Console

    from .verify import run_block, run_case

    on = torch.device("cuda" if device == devices.CUDA else "cpu")
    ms = ms or (GPU_TOKENS if device == devices.CUDA else CPU_TOKENS)
    cases, blocks = [], []
    with Console(stderr=True).status("") as status:
        for mode in modes:
            for m in ms:
                status.update(f"front, mode {mode}, M={m}")
                cases.append(run_case(m, mode, seed, on))
            status.update(f"routed block, mode {mode}, M={BLOCK_TOKENS}")
            blocks.append(run_block(BLOCK_TOKENS, mode, seed, on))
    doc = report(device, seed, cases, blocks)
    if as_json:
        print(json.dumps(doc, indent=1))
    else:
        print_tables(doc)
    return 0 if doc["ok"] else 1
