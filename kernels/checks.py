"""What every launcher demands of its arguments. Each failure names the argument, its value and what is accepted."""

import torch

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
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}; a torch.Tensor is needed")
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


def contiguous(name: str, value: torch.Tensor) -> None:
    if not value.is_contiguous():
        raise ValueError(f"{name} has strides {value.stride()}; accepted: contiguous (call .contiguous() first)")


def tokens(num_tokens: int, limit: int = MAX_TOKENS) -> None:
    if num_tokens > limit:
        raise ValueError(f"M={num_tokens} tokens; accepted: 0 to {limit}")


def experts(num_experts: int, topk: int) -> None:
    if not 1 <= num_experts <= MAX_EXPERTS:
        raise ValueError(f"E={num_experts} experts; accepted: 1 to {MAX_EXPERTS}")
    if not 1 <= topk <= min(MAX_TOPK, num_experts):
        raise ValueError(f"K={topk} experts per token; accepted: 1 to {MAX_TOPK}, and at most E={num_experts}")


def block(rows: int) -> None:
    if rows not in BLOCKS:
        raise ValueError(f"block={rows} rows; accepted: {', '.join(map(str, BLOCKS))}")
