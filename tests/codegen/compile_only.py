"""A Triton driver that compiles for a target which is not here and launches nothing.

What a launcher of ours asks for on that target is then exactly what gets compiled: the codegen tests cannot drift from
the specialisations that are served.
"""

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

GFX950 = GPUTarget("hip", "gfx950", 64)
HOPPER = GPUTarget("cuda", 90, 32)


class _Utils:
    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_device_properties(self, device: int) -> dict:
        return {
            "max_shared_mem": 163840,
            "multiprocessor_count": 256,
            "warpSize": self.target.warp_size,
            "max_num_regs": 65536,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple:
        return None, 1, 0, 0, 1024  # module, function, registers, spills, most threads: nothing of it is used

    def unload_module(self, *args: object) -> None:
        pass


class _Launcher:
    def __init__(self, source: object, metadata: object) -> None:
        pass

    def __call__(self, *args: object) -> None:
        pass


class CompileOnly(DriverBase):
    def __init__(self, target: GPUTarget) -> None:
        self.target, self.utils, self.launcher_cls = target, _Utils(target), _Launcher

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> None:
        raise NotImplementedError("nothing runs here")

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> None:
        raise NotImplementedError("nothing runs here")

    def get_empty_cache_for_benchmark(self) -> None:
        raise NotImplementedError("nothing runs here")

    def clear_cache(self, cache: object) -> None:
        pass


def activate(target: GPUTarget) -> None:
    """From here on `kernel[grid](...)` on CPU tensors compiles for `target` and returns; for a process of its own."""
    driver.set_active(CompileOnly(target))
