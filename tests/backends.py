"""The three places where the kernel tests run, and what each runs.

| backend | device | what it shows | what it runs |
|---|---|---|---|
| interpreter | CPU, Triton's interpreter | the source means what the oracle says | few M: 0.1 to 4 s a launch |
| gfx950 | CPU, emulated MI355X code | the machine code does, in bounds, poisoned, one cache a workgroup | everything |
| gpu | a real GPU | the same on hardware, in graphs | everything, and what is marked `gpu` |

On gfx950 the tests at the true shape run twice, with workgroups one by one and with four interleaved (`order`).
"""

import os

from vllm_k3moe.device import load_emulator

BACKENDS = ("interpreter", "gfx950", "gpu")


class Gfx950:
    """The emulator as Triton's active driver. Its launch options hold for every launch until `options` changes them."""

    def __init__(self) -> None:
        run_gfx950 = load_emulator()
        options: dict[str, object] = {}

        class Kernel(run_gfx950.GfxKernel):  # type: ignore[name-defined]
            def launch(self, grid, *args, **fixed):
                return super().launch(grid, *args, **{**fixed, **options})

        # the emulator fixes its options when it is installed; until it takes them per launch they are merged here
        run_gfx950.GfxKernel = Kernel  # type: ignore[attr-defined]
        run_gfx950.install()
        self.options = options


def start(backend: str) -> Gfx950 | None:
    """Make `backend` what `kernel[grid](...)` runs on. Must come before the kernels are imported."""
    os.environ["TRITON_INTERPRET"] = "1" if backend == "interpreter" else "0"
    return Gfx950() if backend == "gfx950" else None
