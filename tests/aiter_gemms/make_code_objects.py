#!/usr/bin/env python3
"""Make AITER's a16w4 MoE kernels as gfx950 code objects, on a machine without a GPU.

    python make_code_objects.py --aiter CHECKOUT --out FOLDER [TABLE_NAME ...]

Needs what AITER's kernel builders need and nothing of ours: flydsl (0.3.1 here; it carries its own LLVM, but not the
linker), a CPU build of torch, numpy, and LLVM's linker ld.lld. docs/aiter-code-objects.md says how to set that up and
what comes out.

A kernel is asked for by its name in AITER's tables and built by AITER's own builder with what AITER's run-time path
would pass for that name. FlyDSL's COMPILE_ONLY stops before anything is loaded on a device; the code object is then
an attribute of the compiled module. Per kernel two files: `NAME.co`, and `NAME.json` with what a launch needs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Kimi-K3 at tensor parallel 8
LATENT, INTER, EXPERTS, TOPK = 3584, 384, 896, 16
# a stage 1 whose waves split N, one whose waves split K too, and the stage 2 that goes with both
DEFAULT = (
    "flydsl_moe1_abf16_wfp4_bf16_t16x128x256",
    "flydsl_moe1_abf16_wfp4_bf16_t16x32x256_xcd4_kw2",
    "flydsl_moe2_abf16_wfp4_bf16_t16x128x128_atomic",
)
NAME = re.compile(
    r"flydsl_moe(?P<stage>[12])_abf16_wfp4_bf16_t(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?:_(?P<mode>atomic|reduce))?"
    r"(?P<rest>(?:_w\d+|_bnt\d+|_xcd\d+|_kw\d+|_persist)*)"
)
PACKAGE = "aiter.ops.flydsl.kernels.moe_2stage_a16wmix"
# What the launchers (`launch_gemm1`, `launch_gemm2`) take: pointers as integers, then scalars, in this order
ARGUMENTS: dict[int, tuple[tuple[str, str], ...]] = {
    1: (
        ("x", "ptr"), ("w13", "ptr"), ("w13_scale", "ptr"), ("sorted_expert_ids", "ptr"), ("num_valid_ids", "ptr"),
        ("sorted_ids", "ptr"), ("num_tokens", "i32"), ("beta", "f32"), ("1/beta", "f32"), ("linear_beta", "f32"),
        ("1/linear_beta", "f32"), ("clamp", "f32"), ("out", "ptr"),
    ),
    2: (
        ("x", "ptr"), ("w2", "ptr"), ("w2_scale", "ptr"), ("sorted_expert_ids", "ptr"), ("num_valid_ids", "ptr"),
        ("sorted_ids", "ptr"), ("sorted_weights", "ptr"), ("num_tokens", "i32"), ("num_blocks", "i32"), ("out", "ptr"),
    ),
}  # fmt: skip
SIZES = {"ptr": 8, "i32": 4, "f32": 4}
GRID_BEFORE = {1: "beta", 2: "out"}  # the launcher's grid size comes before this one; the kernel has no such argument


def stub_packages(aiter: Path) -> None:
    """Let `aiter.ops.flydsl.kernels` be imported without the `__init__.py` of the packages above it.

    Those load HIP libraries and ask for a device; no builder needs anything from them.
    """
    for name in ("aiter", "aiter.ops", "aiter.ops.flydsl"):
        package = types.ModuleType(name)
        package.__path__ = [str(aiter.joinpath(*name.split(".")))]
        sys.modules[name] = package


def provide_linker(lld: str, folder: Path) -> None:
    """FlyDSL links with `$ROCM_PATH/llvm/bin/ld.lld`; that is all it wants of a ROCm installation."""
    link = folder / "llvm" / "bin" / "ld.lld"
    link.parent.mkdir(parents=True)
    link.symlink_to(Path(lld).resolve())
    os.environ["ROCM_PATH"] = str(folder)


def parse(name: str) -> dict[str, Any]:
    """Tile and options that AITER's grammar reads off a table name."""
    match = NAME.fullmatch(name)
    if match is None or (match["stage"] == "2") != (match["mode"] is not None):
        raise SystemExit(f"{name}: not an a16w4 kernel name; example: {DEFAULT[0]}")
    options = {key: int(value) for key, value in re.findall(r"_(bnt|xcd|kw)(\d+)", match["rest"])}
    stage = int(match["stage"])
    return {
        "stage": stage,
        "tile_m": int(match["m"]),
        "tile_n": int(match["n"]),
        "tile_k": int(match["k"]),
        "b_nt": options.get("bnt", 2 if stage == 1 else 0),  # non-temporal weight loads: on in stage 1 only
        "xcd_swizzle": options.get("xcd", 0),
        "k_wave": options.get("kw", 1),
    }


def build(spec: dict[str, Any]) -> Any:
    """AITER's launcher for a kernel of K3's shape, not compiled yet."""
    common: dict[str, Any] = {
        "BM": spec["tile_m"],
        "TILE_N": spec["tile_n"],
        "TILE_K": spec["tile_k"],
        "NE": EXPERTS,
        "D_INTER": INTER,
        "b_cache_mod": spec["b_nt"],
        "xcd_swizzle": spec["xcd_swizzle"],
        "waves_per_eu": None,
        "w_dtype": "fp4",
        "use_k16": False,
    }
    if spec["stage"] == 1:
        builder = import_module(f"{PACKAGE}.gemm1").compile_gemm1_a16w4_port
        return builder(D_HIDDEN=LATENT, TOPK=TOPK, act="situv2", k_wave=spec["k_wave"], w_layout="standard", **common)
    return import_module(f"{PACKAGE}.gemm2").compile_gemm2_a16w4_port(N_OUT=LATENT, persist=False, **common)


def dummies(stage: int) -> list[int | float]:
    """Values of the right Python types: the code does not depend on them, and nothing is launched. Last, the stream."""
    values: list[int | float] = []
    for name, kind in ARGUMENTS[stage]:
        if name == GRID_BEFORE[stage]:
            values.append(1)
        values.append(1.0 if kind == "f32" else 1 if kind == "i32" else 0)
    return [*values, 0]


def unescape(text: str) -> bytes:
    r"""The bytes of an MLIR string literal: \XX is a byte in hexadecimal; \\, \", \n and \t are themselves."""
    named = {"\\\\": b"\\", '\\"': b'"', "\\n": b"\n", "\\t": b"\t"}

    def one(piece: str) -> bytes:
        return named.get(piece) or (bytes.fromhex(piece[1:]) if piece[0] == "\\" else piece.encode())

    return b"".join(one(p) for p in re.findall(r'\\[0-9A-Fa-f]{2}|\\[\\"nt]|[^\\]+', text, re.DOTALL))


def code_object(ir: str) -> bytes:
    """The gfx950 ELF inside of a compiled module's text."""
    literals = re.findall(r'"((?:[^"\\]|\\.)*)"', ir)
    blobs = [unescape(text) for text in literals if text.startswith("\\7FELF")]
    if len(blobs) != 1 or blobs[0][:4] != b"\x7fELF":
        raise SystemExit(f"expected one ELF in the compiled module, found {len(blobs)}: has FlyDSL changed?")
    return blobs[0]


def make(name: str, out: Path, facts: dict[str, str]) -> None:
    import flydsl.compiler as flyc

    spec, start = parse(name), time.perf_counter()
    launcher = build(spec)
    flyc.compile(launcher, *dummies(spec["stage"]))
    blob = code_object(launcher._last_compiled[1]._ir_text)
    seconds = time.perf_counter() - start

    symbols = sorted(set(re.findall(rb"\0(gemm[12]_a16w4_[0-9a-z_]+)\.kd\0", blob)))
    if len(symbols) != 1:
        raise SystemExit(f"{name}: expected one kernel in the code object, found {symbols}")
    about = {
        "name": name,
        "symbol": symbols[0].decode(),
        **spec,
        "shape": {"latent": LATENT, "inter": INTER, "experts": EXPERTS, "topk": TOPK},
        "threads": 256,
        "dynamic_lds": 0,
        "arguments": [{"name": n, "kind": k, "bytes": SIZES[k]} for n, k in ARGUMENTS[spec["stage"]]],
        "bytes": len(blob),
        "compile_seconds": round(seconds, 1),
        **facts,
    }
    (out / f"{name}.co").write_bytes(blob)
    (out / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"{name}: {len(blob)} bytes, {seconds:.1f} s, {about['symbol']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aiter", type=Path, required=True, help="a checkout of ROCm/aiter")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lld", default=shutil.which("ld.lld"), help="LLVM's linker, 19 or later; default: ld.lld")
    parser.add_argument("names", nargs="*", default=DEFAULT, help="names from AITER's tables")
    args = parser.parse_args()
    if args.lld is None:
        parser.error("no ld.lld on PATH; name one with --lld")
    for name in args.names:
        parse(name)
    # before flydsl is imported: FlyDSL takes the target from here instead of asking a device
    os.environ.update(FLYDSL_GPU_ARCH="gfx950", ARCH="gfx950", COMPILE_ONLY="1", FLYDSL_RUNTIME_ENABLE_CACHE="0")
    stub_packages(args.aiter.resolve())
    commit = subprocess.run(["git", "-C", args.aiter, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    facts = {"arch": "gfx950", "aiter": commit.stdout.strip(), "flydsl": version("flydsl")}
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        provide_linker(args.lld, Path(folder))
        for name in args.names:
            make(name, args.out, facts)


if __name__ == "__main__":
    main()
