"""AITER's a16w4 kernels from the folder that K3MOE_AITER_CO names, run on emulated gfx950.

What a kernel takes is in the JSON beside its code object, which `aiter_gemms/make_code_objects.py` writes.
"""

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vllm_k3moe.device import load_emulator
from vllm_k3moe.kernels.moe_sort import Sorted
from vllm_k3moe.shapes import SITU_BETA, SITU_LINEAR_BETA

VARIABLE = "K3MOE_AITER_CO"
_FORMATS = {"ptr": "Q", "i32": "i", "f32": "f"}


def folder() -> Path | None:
    return Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def names(stage: int, tile_m: int) -> list[str]:
    """Names, as in AITER's tables, of the kernels of a stage and block size that are in the folder."""
    found = [json.loads(path.read_text()) for path in sorted((folder() or Path(os.devnull)).glob("*.json"))]
    return [about["name"] for about in found if (about["stage"], about["tile_m"]) == (stage, tile_m)]


@dataclass(frozen=True)
class AiterKernel:
    """A code object, and what its launcher must know."""

    about: dict[str, Any]
    code: Any  # the emulator's kernel

    @property
    def columns(self) -> int:
        """Columns of the output; a workgroup computes one tile of rows and `tile_n` of these."""
        return self.about["shape"]["inter" if self.about["stage"] == 1 else "latent"]

    def launch(self, blocks: int, values: dict[str, Any]) -> Any:
        """Run on all blocks of sorted rows, arguments by name; arrays are read and written in place.

        Returns the emulator's statistics.
        """
        layout, packed, arrays = "<", [], []
        for argument in self.about["arguments"]:
            value = values[argument["name"]]
            if argument["kind"] == "ptr":
                arrays.append(value)
                value = value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
            size = argument["bytes"]
            layout += "x" * (-struct.calcsize(layout) % size) + _FORMATS[argument["kind"]]
            packed.append(value)
        grid = (blocks * (self.columns // self.about["tile_n"]),)
        return self.code.launch_kernarg(grid, struct.pack(layout, *packed), buffers=arrays)


def load(name: str) -> AiterKernel:
    path = folder()
    assert path is not None, f"{VARIABLE} is not set"
    about = json.loads((path / f"{name}.json").read_text())
    code = load_emulator().Kernel(
        (path / f"{name}.co").read_bytes(), about["symbol"], about["threads"] // 64, about["dynamic_lds"]
    )
    sizes = [argument[".size"] for argument in code.code.arguments if not argument[".value_kind"].startswith("hidden_")]
    assert sizes == [argument["bytes"] for argument in about["arguments"]], f"{name}: takes other arguments: {sizes}"
    return AiterKernel(about, code)


def stage1(
    kernel: AiterKernel,
    z: torch.Tensor,
    weights: tuple[np.ndarray, np.ndarray],
    order: Sorted,
    out: torch.Tensor,
    betas: tuple[float, float] = (SITU_BETA, SITU_LINEAR_BETA),
) -> Any:
    """z bf16 [M, L] -> out bf16 [sorted rows, I]; weights: w13 and its scale bytes, as AITER reads them."""
    beta, linear_beta = betas
    values = {
        "x": z,
        "w13": weights[0],
        "w13_scale": weights[1],
        "sorted_expert_ids": order.sorted_expert_ids,
        "num_valid_ids": order.num_valid_ids,
        "sorted_ids": order.sorted_ids,
        "num_tokens": len(z),
        "beta": beta,
        "1/beta": 1 / beta,
        "linear_beta": linear_beta,
        "1/linear_beta": 1 / linear_beta,
        "clamp": float("inf"),  # what `runtime_swiglu_limit` makes of None
        "out": out,
    }
    return kernel.launch(order.sorted_expert_ids.numel(), values)


def stage2(
    kernel: AiterKernel,
    inter: torch.Tensor,
    weights: tuple[np.ndarray, np.ndarray],
    order: Sorted,
    out: torch.Tensor,
) -> Any:
    """inter bf16 [sorted rows, I], added into out bf16 [M, L]; weights: w2 and its scale bytes, as AITER reads them."""
    values = {
        "x": inter,
        "w2": weights[0],
        "w2_scale": weights[1],
        "sorted_expert_ids": order.sorted_expert_ids,
        "num_valid_ids": order.num_valid_ids,
        "sorted_ids": order.sorted_ids,
        "sorted_weights": order.sorted_weights,
        "num_tokens": len(out),
        "num_blocks": order.sorted_expert_ids.numel(),
        "out": out,
    }
    return kernel.launch(order.sorted_expert_ids.numel(), values)
