"""Where Triton kernels run: this machine's GPU, Triton's interpreter, or emulated gfx950 machine code."""

import os
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

CUDA, INTERPRETER, GFX950 = "cuda", "interpreter", "gfx950"
DEVICES = ("auto", INTERPRETER, GFX950, CUDA)
EMULATOR = Path(__file__).resolve().parents[1] / "tests" / "gfx950emu"


class DeviceError(RuntimeError):
    """The device that was asked for is not to be had here; the message says what is missing."""


def start(name: str) -> str:
    """Make `name` (one of DEVICES) what `kernel[grid](...)` runs on; returns which it is. Before kernels are imported.

    "cuda" is torch's name for a GPU, AMD's too. "auto" takes it if there is one, else the emulator where a source
    checkout and tinygrad are at hand, else the interpreter.
    """
    import torch

    if name not in DEVICES:
        raise DeviceError(f"device {name!r}; accepted: {', '.join(DEVICES)}")
    if name == "auto" and os.environ.get("TRITON_INTERPRET") == "1":
        name = INTERPRETER
    if name == "auto":
        emulated = GFX950 if (EMULATOR / "run_gfx950.py").is_file() and find_spec("tinygrad") else INTERPRETER
        name = CUDA if torch.cuda.is_available() else emulated
    if name == CUDA and not torch.cuda.is_available():
        raise DeviceError("device cuda: torch sees no GPU here; try --device interpreter or --device gfx950")
    if name == INTERPRETER:
        if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
            raise DeviceError("device interpreter: Triton is loaded already, set TRITON_INTERPRET=1 before it is")
        os.environ["TRITON_INTERPRET"] = "1"
    elif os.environ.get("TRITON_INTERPRET") == "1":  # kernels would be interpreted under another device's name
        raise DeviceError(f"device {name}: TRITON_INTERPRET=1 is set; unset it, or take --device interpreter")
    if name == GFX950:
        _start_emulator()
    return name


def _start_emulator() -> None:
    if not (EMULATOR / "run_gfx950.py").is_file():
        raise DeviceError("device gfx950: the emulator comes with a source checkout of vllm-k3moe, not with the wheel")
    if not find_spec("tinygrad"):
        raise DeviceError("device gfx950: the emulator decodes with tinygrad; pip install tinygrad==0.14.0")
    if not shutil.which(os.environ.get("CC", "cc")):
        raise DeviceError("device gfx950: no C compiler (cc, or what CC names) for the emulator's core")
    load_emulator().install()


def load_emulator() -> ModuleType:
    """The emulator's module `run_gfx950`; its core is built in a cache outside of the source tree."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-k3moe" / "gfx950emu"
    os.environ.setdefault("GFX950_BUILD", str(cache))
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # what gfx950 code is compiled with elsewhere in this project
    os.environ["DEV"] = "CPU"  # tinygrad's own device, of which only the instruction decoder is used
    sys.path.insert(0, str(EMULATOR))
    return import_module("run_gfx950")
