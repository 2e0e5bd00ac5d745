"""Compiles Triton functions for gfx950, and makes a Kernel of what Triton compiled."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .kernel import Kernel

TARGET = GPUTarget("hip", "gfx950", 64)
CONSTEXPR = "constexpr"


def run_time_types(signature: Sequence[Any]) -> list[str]:
    """Triton's types of a signature without the compile-time ones, tuples laid out flat."""
    types: list[str] = []
    for type_ in signature:
        if isinstance(type_, tuple):
            types += run_time_types(type_)
        elif type_ != CONSTEXPR:
            types.append(type_)
    return types


def run_time_values(values: Sequence[Any], signature: Sequence[Any]) -> Iterator[Any]:
    """The values that belong to `run_time_types`."""
    for value, type_ in zip(values, signature, strict=True):
        if isinstance(type_, tuple):
            yield from run_time_values(value, type_)
        elif type_ != CONSTEXPR:
            yield value


def kernel_of(hsaco: bytes, metadata: Any, signature: Sequence[Any]) -> Kernel:
    """`metadata` is a CompiledKernel's."""
    return Kernel(
        hsaco,
        metadata.name,
        metadata.num_warps,
        metadata.shared,
        run_time_types(signature),
        (metadata.global_scratch_size, metadata.global_scratch_align),
        (metadata.profile_scratch_size, metadata.profile_scratch_align),
    )


def load(compiled: Any, **options: Any) -> Kernel:
    """Of a CompiledKernel; or of the bytes of a code object, `options` then being Kernel's."""
    if isinstance(compiled, (bytes, bytearray)):
        return Kernel(bytes(compiled), **options)
    return kernel_of(compiled.asm["hsaco"], compiled.metadata, list(compiled.src.signature.values()))


def compile(
    fn: Any,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any] | None = None,
    aligned: Collection[str] = (),
    small: Collection[str] = (),
    **options: Any,
) -> Any:
    """triton.compile for gfx950; arguments that the signature does not name are compile-time constants.

    aligned: arguments known to be multiples of 16. small: pointers to less than 2 GiB, which buffer operations may use.
    """
    attributes = {}
    for position, name in enumerate(fn.arg_names):
        known = [["tt.divisibility", 16]] if name in aligned else []
        known += [["tt.pointer_range", 32]] if name in small else []
        if known:
            attributes[(position,)] = known
    types = {name: signature.get(name, CONSTEXPR) for name in fn.arg_names}
    source = ASTSource(fn=fn, signature=types, constexprs=dict(constexprs or {}), attrs=attributes)
    return triton.compile(source, target=TARGET, options=options)
