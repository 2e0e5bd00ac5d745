"""The three places where the kernel tests run, and what each runs.

| backend | device | what it shows | what it runs |
|---|---|---|---|
| interpreter | CPU, Triton's interpreter | the source means what the oracle says | few M: 0.1 to 4 s a launch |
| gfx950 | CPU, emulated MI355X code | the machine code does, in bounds, poisoned, one cache a workgroup | everything |
| gpu | a real GPU | the same on hardware, in graphs | everything, and what is marked `gpu` |

On gfx950 the tests at the true shape run twice, with workgroups one by one and with four interleaved (`order`).
"""

import os
from typing import TYPE_CHECKING

from vllm_k3moe.device import load_emulator

if TYPE_CHECKING:  # loading it loads Triton, for which it must be settled first whether it interprets
    from gfx950emu import Emulator

BACKENDS = ("interpreter", "gfx950", "gpu")


def start(backend: str) -> "Emulator | None":
    """Make `backend` what `kernel[grid](...)` runs on. Must come before the kernels are imported."""
    os.environ["TRITON_INTERPRET"] = "1" if backend == "interpreter" else "0"
    return load_emulator().install() if backend == "gfx950" else None
