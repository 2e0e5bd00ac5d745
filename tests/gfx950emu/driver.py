"""The emulator as Triton's active driver: `kernel[grid](...)` on CPU tensors runs emulated gfx950 code."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

from .code_object import CodeObject
from .kernel import Kernel
from .occupancy import LDS, resources
from .options import LaunchOptions
from .stats import Stats
from .triton_code import TARGET, kernel_of, run_time_values

OnLaunch = Callable[[str, Kernel, Stats], object]


class Emulator(DriverBase):
    """`on_launch`, if set, is called after each launch with the kernel's name, the Kernel and its Stats."""

    def __init__(self, on_launch: OnLaunch | None = None) -> None:
        self.on_launch = on_launch
        self.launch_options = LaunchOptions()
        self.utils = Utils()
        self.launcher_cls = functools.partial(Launcher, self)

    @contextlib.contextmanager
    def options(self, **changes: Any) -> Iterator[LaunchOptions]:
        """Changes LaunchOptions for the launches in a `with` block; what they were before comes back behind it."""
        before = self.launch_options
        self.launch_options = dataclasses.replace(before, **changes)
        try:
            yield self.launch_options
        finally:
            self.launch_options = before

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        return TARGET

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> None:
        raise NotImplementedError("the emulator has no clock of a device")

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> None:
        raise NotImplementedError("emulated time is not time")

    def get_empty_cache_for_benchmark(self) -> None:
        raise NotImplementedError("emulated time is not time")

    def clear_cache(self, cache: object) -> None:
        pass


class Utils:
    """What Triton asks of a device."""

    def __init__(self) -> None:
        self.loaded: list[tuple[bytes, str]] = []  # code object and kernel name, by handle

    def get_device_properties(self, device: int) -> dict[str, object]:
        return {
            "max_shared_mem": LDS,
            "multiprocessor_count": 256,
            "arch": TARGET.arch,
            "warpSize": TARGET.warp_size,
            "cooperativeLaunch": 1,
            "max_num_regs": 65536,
            "sm_clock_rate": 2400000,
            "mem_clock_rate": 2000000,
            "mem_bus_width": 8192,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[None, int, int, int, int]:
        """Module (none), handle, registers, spills, most threads of a workgroup."""
        used = resources(CodeObject(bytes(binary)).kernel(name))
        self.loaded.append((bytes(binary), name))
        return None, len(self.loaded) - 1, used["vgpr_total"], used["vgpr_spill"] + used["sgpr_spill"], 1024

    def unload_module(self, *module: object) -> None:
        pass


class Launcher:
    """Triton makes one for each compiled kernel, and calls it for each launch."""

    def __init__(self, emulator: Emulator, source: Any, metadata: Any) -> None:
        self.emulator, self.metadata = emulator, metadata
        self.signature = list(source.signature.values())
        self.kernel: Kernel | None = None

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        function: int,
        packed_metadata: object,
        launch_metadata: object,
        enter_hook: Callable[[object], None] | None,
        exit_hook: Callable[[object], None] | None,
        *arguments: Any,
    ) -> None:
        if self.kernel is None:
            binary, _ = self.emulator.utils.loaded[function]
            self.kernel = kernel_of(binary, self.metadata, self.signature)
        if enter_hook is not None:
            enter_hook(launch_metadata)
        values = run_time_values(arguments, self.signature)
        stats = self.kernel.launch((x, y, z), *values, options=self.emulator.launch_options)
        if exit_hook is not None:
            exit_hook(launch_metadata)
        if self.emulator.on_launch is not None:
            self.emulator.on_launch(self.metadata.name, self.kernel, stats)


def install(on_launch: OnLaunch | None = None) -> Emulator:
    """Make a new emulator Triton's active driver, in place of whatever was."""
    emulator = Emulator(on_launch)
    driver.set_active(emulator)
    return emulator
