"""Runs gfx950 (MI355X, CDNA4) machine code on a CPU; README.md says how to use it and what it does not show.

Start reading at `kernel.py` for a launch, at `grid.py` for how it runs, at `decode.py` for instructions.
"""

from .code_object import CodeObject, KernelCode
from .driver import Emulator, install
from .errors import EmulatorError
from .kernel import Kernel
from .options import LaunchOptions
from .stats import Stats
from .triton_code import TARGET, compile, load

__all__ = [
    "TARGET",
    "CodeObject",
    "Emulator",
    "EmulatorError",
    "Kernel",
    "KernelCode",
    "LaunchOptions",
    "Stats",
    "compile",
    "install",
    "load",
]
