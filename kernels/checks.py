"""What every launcher demands of its arguments. Each failure names the argument, its value and what is accepted."""

import functools
import math
from collections.abc import Callable

import torch
import triton

MAX_EXPERTS = 1024  # the mask of a token is 32 words of 32 bits
MAX_TOPK = 32
MAX_TOKENS = 512
BLOCKS = (16, 32, 64, 128)  # GEMM M blocks that AITER's kernels exist for


def tensor(
    name: str,
    value: object,
    dtypes: tuple[torch.dtype, ...],
    shape: tuple[int | None, ...],
    device: torch.device | None = None,
) -> None:
    """`value` must be a tensor of one of `dtypes`, of `shape` (None: any size), on `device`, its last stride 1."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_neg() or value.is_conj():
        kind = type(value).__name__ if not isinstance(value, torch.Tensor) else f"lazy or {value.layout} tensor"
        raise TypeError(f"{name} is a {kind}; a plain torch.Tensor is needed")
    if value.dtype not in dtypes:
        accepted = " or ".join(str(d).removeprefix("torch.") for d in dtypes)
        raise TypeError(f"{name} has dtype {str(value.dtype).removeprefix('torch.')}; accepted: {accepted}")
    wanted = "[" + ", ".join("any" if n is None else str(n) for n in shape) + "]"
    if value.dim() != len(shape):
        raise ValueError(f"{name} has {value.dim()} dimensions, shape {list(value.shape)}; accepted: shape {wanted}")
    if any(n is not None and n != got for n, got in zip(shape, value.shape, strict=True)):
        raise ValueError(f"{name} has shape {list(value.shape)}; accepted: {wanted}")
    if device is not None and value.device != device:
        raise ValueError(f"{name} is on {value.device}; the other arguments are on {device}")
    if value.shape[-1] > 1 and value.stride(-1) != 1:
        raise ValueError(
            f"{name} has stride {value.stride(-1)} in its last dimension; accepted: 1 (call .contiguous() first)"
        )


@functools.cache
def device_type() -> str | None:
    """Where tensors must be for kernels here: with the active driver; anywhere for the interpreter; None if neither."""
    if triton.knobs.runtime.interpret:
        return "any"
    try:
        device: torch.device = triton.runtime.driver.active.get_active_torch_device()
    except RuntimeError:  # Triton found no GPU
        return None
    return device.type


def runnable(name: str, value: torch.Tensor) -> None:
    """`value` must be where a kernel can reach it."""
    here = device_type()
    if here is None:
        raise ValueError(f"{name} is on {value.device} and Triton finds no GPU; accepted: a GPU, or TRITON_INTERPRET=1")
    if value.device.type == "meta" or here not in ("any", value.device.type):
        accepted = "cpu or cuda" if here == "any" else here
        raise ValueError(f"{name} is on {value.device}; accepted: {accepted}")


def aligned(name: str, value: torch.Tensor) -> None:
    """Rows must start at multiples of 16 bytes: any other alignment would compile its own kernel, in mid-serving."""
    near(name, value)
    if value.data_ptr() % 16 or (len(value) > 1 and value.stride(0) * value.element_size() % 16):
        raise ValueError(
            f"{name} starts {value.data_ptr() % 16} bytes past a multiple of 16 with row stride {value.stride(0)}; "
            "accepted: rows at multiples of 16 bytes (call .clone() first)"
        )


def near(name: str, value: torch.Tensor) -> None:
    """Offsets are 32 bits wide, and Triton compiles another kernel for a storage beyond them, in mid-serving."""
    size = value.untyped_storage().nbytes()
    if size >= 2**31:
        raise ValueError(f"{name} lies in a storage of {size} bytes; accepted: below 2^31 (call .clone() first)")


def refusal(what: str, check: Callable[..., object], *arguments: object) -> list[str]:
    """What `check` raises on these arguments, as a reason; [] if nothing."""
    try:
        check(*arguments)
    except (TypeError, ValueError) as error:
        return [f"{what}: {error}"]
    return []


def integer(name: str, value: object) -> None:
    if type(value) is not int:
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; accepted: int")


def scaling(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"scaling={value!r} is a {type(value).__name__}; accepted: float")
    if not 0 < value < math.inf:
        raise ValueError(f"scaling={value!r}; accepted: finite and above 0")


def contiguous(name: str, value: torch.Tensor) -> None:
    if not value.is_contiguous():
        raise ValueError(f"{name} has strides {value.stride()}; accepted: contiguous (call .contiguous() first)")


def tokens(num_tokens: int) -> None:
    integer("M", num_tokens)
    if not 0 <= num_tokens <= MAX_TOKENS:
        raise ValueError(f"M={num_tokens} tokens; accepted: 0 to {MAX_TOKENS}")


def experts(num_experts: int, topk: int) -> None:
    integer("E", num_experts)
    integer("K", topk)
    if not 1 <= num_experts <= MAX_EXPERTS:
        raise ValueError(f"E={num_experts} experts; accepted: 1 to {MAX_EXPERTS}")
    if not 1 <= topk <= min(MAX_TOPK, num_experts):
        raise ValueError(f"K={topk} experts per token; accepted: 1 to {MAX_TOPK}, and at most E={num_experts}")


def block(rows: int) -> None:
    integer("block", rows)
    if rows not in BLOCKS:
        raise ValueError(f"block={rows} rows; accepted: {', '.join(map(str, BLOCKS))}")
