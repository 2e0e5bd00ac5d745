"""Where Triton kernels run: this machine's GPU, Triton's interpreter, or emulated gfx950 machine code."""

import os
import shutil
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
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
        emulated = GFX950 if (EMULATOR / "__init__.py").is_file() and find_spec("tinygrad") else INTERPRETER
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
    if not (EMULATOR / "__init__.py").is_file():
        raise DeviceError("device gfx950: the emulator comes with a source checkout of vllm-k3moe, not with the wheel")
    if not find_spec("tinygrad"):
        raise DeviceError("device gfx950: the emulator decodes with tinygrad; pip install tinygrad==0.14.0")
    if not shutil.which(os.environ.get("CC", "cc")):
        raise DeviceError("device gfx950: no C compiler (cc, or what CC names) for the emulator's core")
    load_emulator().install()


def load_emulator() -> ModuleType:
    """The package `gfx950emu`, under that name but without the tests beside it on sys.path."""
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # what gfx950 code is compiled with elsewhere in this project
    if EMULATOR.name not in sys.modules:
        folder = [str(EMULATOR)]
        spec = spec_from_file_location(EMULATOR.name, EMULATOR / "__init__.py", submodule_search_locations=folder)
        assert spec is not None and spec.loader is not None  # a path that ends in .py has both
        sys.modules[EMULATOR.name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[EMULATOR.name])
    return sys.modules[EMULATOR.name]
