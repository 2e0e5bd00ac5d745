"""`k3moe warmup`: compile on a host with the GPU what a layer's first call would, into the same cache folder.

The weights are zeros of Kimi-K3's shape in AITER's layout (2 GB on the device); no result is looked at. Exit status:
0 compiled, 2 nothing can be compiled here.
"""

import sys

import torch

from . import gates
from .envs import Settings, read
from .experts import Weights, aiter_contract
from .experts.build import build_experts
from .method import K3FusedMoEMethod
from .shapes import K3_TP8, MoEShape
from .warmup import Progress, compiling_into, warm_up

SHAPES = {8: K3_TP8}  # by tensor parallel size


class WarmupError(RuntimeError):
    """Nothing can be compiled here; the message, one line, says why."""


def zero_weights(shape: MoEShape, device: torch.device) -> Weights:
    """One rank's experts, all zero, with the types and marks that vLLM leaves on them after loading."""

    def zeros(*size: int) -> torch.Tensor:
        return torch.zeros(*size, dtype=torch.uint8, device=device)

    experts, latent, inter = shape.experts, shape.latent, shape.inter
    w13 = zeros(experts, 2 * inter, latent // 2).view(torch.float4_e2m1fn_x2)
    w2 = zeros(experts, latent, inter // 2).view(torch.float4_e2m1fn_x2)
    for tensor in (w13, w2):
        tensor.is_shuffled = True  # type: ignore[attr-defined]  # where AITER looks for it
    groups = -(-inter // 32 // 8) * 8
    w13_scale = zeros(experts * 2 * inter, latent // 32).view(torch.float8_e8m0fnu)
    return Weights(w13, w2, w13_scale, zeros(experts * latent, groups).view(torch.float8_e8m0fnu))


def gpu(settings: Settings) -> torch.device:
    """This machine's MI355X; WarmupError where there is none, or part of one."""
    if not torch.cuda.is_available():
        raise WarmupError("torch sees no GPU here; run it on a host with the MI355X that will serve")
    found = torch.cuda.get_device_properties(0)
    arch = getattr(found, "gcnArchName", found.name).split(":")[0]
    if settings.allow_any_arch:
        return torch.device("cuda", 0)
    if arch != "gfx950":
        raise WarmupError(f"the GPU is {arch}; served: gfx950")
    if found.multi_processor_count != gates.COMPUTE_UNITS:
        raise WarmupError(f"{found.multi_processor_count} compute units; the tiles are for {gates.COMPUTE_UNITS}")
    return torch.device("cuda", 0)


def never_called(x: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Stands for vLLM's router, which a warm-up does not run."""
    raise AssertionError("the warm-up ran vLLM's router")


def build(mode: str, tp: int, device: torch.device) -> K3FusedMoEMethod:
    """The method of a layer of zero weights in vLLM's SiTU `mode`; WarmupError with all that is in the way."""
    if mode not in gates.MODES:
        raise WarmupError(f"mode {mode!r}; served: {', '.join(gates.MODES)}")
    if tp not in SHAPES:
        raise WarmupError(f"tensor parallel size {tp}; served: {', '.join(map(str, SHAPES))}")
    missing = aiter_contract.missing(gates.MODES[mode])
    if missing:
        raise WarmupError("; ".join(missing))
    shape = SHAPES[tp]
    experts, reasons = build_experts(shape, gates.MODES[mode], zero_weights(shape, device))
    if experts is None:
        raise WarmupError("; ".join(reasons))
    return K3FusedMoEMethod(shape, torch.zeros(shape.experts, device=device), experts, never_called)


def chosen_mode() -> str:
    """The mode vLLM would choose here; WarmupError where it cannot be asked."""
    try:
        from . import report

        return report.situ_mode()
    except Exception as error:  # a vLLM that is missing or broken is not needed where the mode is given
        why = f"{type(error).__name__}: {error}"
        raise WarmupError(
            f"vLLM cannot be asked for its mode ({why}); give --mode {' or '.join(gates.MODES)}"
        ) from None


def compile_all(method: K3FusedMoEMethod, settings: Settings, device: torch.device, progress: Progress) -> int:
    """Compile into the cache folder; returns how many batch sizes were run."""
    with compiling_into(settings.cache):
        count = warm_up(method, device, progress, settings.fuse)
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # a kernel that faults does it here, not at exit
    return count


def run(mode: str | None, tp: int, device: torch.device | None = None) -> int:
    """Compile and say where to; `device` other than this machine's GPU is for tests."""
    from rich.console import Console

    settings = read()
    try:
        if settings.errors:
            raise WarmupError("; ".join(settings.errors))
        target = gpu(settings) if device is None else device
        method = build(mode or chosen_mode(), tp, target)
        with Console(stderr=True).status("") as status:
            count = compile_all(method, settings, target, status.update)
    except (WarmupError, OSError) as error:  # OSError: a cache folder that cannot be made or must not be trusted
        print(f"k3moe warmup: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        print(f"k3moe warmup: compiling failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(f"compiled {method.experts.description} for {count} batch sizes into {settings.cache}")
    return 0
