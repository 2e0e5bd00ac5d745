"""Triton kernels compiled for gfx950 and run by the emulator, whose Python modules tests of kernels know from here."""

import re
from importlib import import_module
from typing import Any

import pytest
import torch

TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e5m2: "fp8e5",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
}


def emulator() -> Any:
    """The emulator's module. At run time: other backends import the tests but have no emulator."""
    return import_module("gfx950emu")


def fault(words: str) -> Any:
    """A context in which the emulator must object, in these words."""
    return pytest.raises(emulator().EmulatorError, match=re.escape(words))


def build(kernel: Any, *arguments: Any, small: bool = True, **named: Any) -> Any:
    """`kernel` for such arguments, ready to `launch`; `named` are its constexprs and Triton's compile options.

    As Triton's launcher does, tell the compiler which arguments are multiples of 16, and, where `small`, that pointers
    reach less than 2 GiB: it then takes buffer instructions, otherwise global ones.
    """
    names = kernel.arg_names[: len(arguments)]
    signature, aligned, pointers = {}, [], []
    for name, value in zip(names, arguments, strict=True):
        if isinstance(value, torch.Tensor):
            signature[name] = "*" + TYPES[value.dtype]
            pointers.append(name)
        else:
            signature[name] = "i32" if isinstance(value, int) else "fp32"
        multiple = value.data_ptr() if isinstance(value, torch.Tensor) else value
        if multiple % 16 == 0:
            aligned.append(name)
    constants = {name: value for name, value in named.items() if name in kernel.arg_names}
    options = {name: value for name, value in named.items() if name not in constants}
    small_pointers = pointers if small else ()
    compiled = emulator().compile(kernel, signature, constants, aligned=aligned, small=small_pointers, **options)
    return emulator().load(compiled)


def run(kernel: Any, grid: tuple[int, ...], *arguments: Any, small: bool = True, **named: Any) -> Any:
    """Build and launch with the emulator's default options; returns the launch's statistics."""
    return build(kernel, *arguments, small=small, **named).launch(grid, *arguments)


def exact(got: torch.Tensor, want: torch.Tensor) -> None:
    """Same type, shape and values; NaN equals NaN, and 0 equals -0."""
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def near(got: torch.Tensor, want: torch.Tensor, rtol: float, atol: float = 0) -> None:
    """`want` may be of a wider type."""
    torch.testing.assert_close(got.double(), want.double(), rtol=rtol, atol=atol)
