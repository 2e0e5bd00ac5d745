"""SiTU, the activation between the two projections of the shared expert, for M <= 128 tokens.

Replaces vLLM's `situ_and_mul`. A device function of a program index, so that it can ride beside the router.

in   gate_up bf16 [M, 2S], the gate's columns first
out  hidden bf16 [M, S] = beta tanh(g/beta) sigmoid(g) * lambda tanh(u/lambda)

Grid: program p, one slice of one token's columns.

Computed in fp32, within 8 ulp, then rounded to bf16: where vLLM rounds. vLLM writes sigmoid(g) as
(1 + tanh(g/2)) / 2, which loses bits as g falls below 0, and at last all; this does not, so there the two differ. An
element takes three exps and one division; no exp or tanh instruction, no libdevice (`exponential.py`).
"""

import torch
import triton
import triton.language as tl

from . import checks
from .bf16 import to_bf16
from .exponential import exp_parts
from .moe_sort import SortExtension

MAX_TOKENS = 128
WARPS = 4  # of a launch, as in those that the programs ride in
COLUMNS = 256  # of a program


@triton.jit
def _tanh(x, RATE: tl.constexpr):
    """(p, q), tanh(x * RATE / 2) = p / q."""
    t = tl.abs(x) * -RATE
    scale, part = exp_parts(tl.where(t < -88.0, -88.0, t))  # where, not maximum: a NaN stays
    p = (1.0 - scale) - part  # near 0 scale is 1 and nothing cancels
    return tl.where(x < 0, -p, p), 1.0 + (scale + part)


@triton.jit
def situ(g, u, BETA: tl.constexpr, LINEAR_BETA: tl.constexpr):
    """SiTU of fp32 gate and up, with one division; LINEAR_BETA None passes up through."""
    t = -tl.abs(g)
    scale, part = exp_parts(tl.where(t < -88.0, -88.0, t))
    e = scale + part
    p, q = _tanh(g, 2.0 / BETA)
    p = BETA * p * tl.where(g < 0, e, 1.0)
    q = q * (1.0 + e)
    if LINEAR_BETA is None:
        return tl.div_rn(p, q) * u
    else:
        up, uq = _tanh(u, 2.0 / LINEAR_BETA)
        return tl.div_rn(p * (LINEAR_BETA * up), q * uq)


@triton.jit
def situ_program(
    index, gate_up, hidden, INTER: tl.constexpr, BETA: tl.constexpr, LINEAR_BETA: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Slice `index` of all tokens' slices of COLUMNS columns."""
    SLICES: tl.constexpr = (INTER + COLUMNS - 1) // COLUMNS
    token, column = (index // SLICES).to(tl.int64), index % SLICES * COLUMNS + tl.arange(0, COLUMNS)
    g = tl.load(gate_up + token * (2 * INTER) + column, mask=column < INTER).to(tl.float32)
    u = tl.load(gate_up + token * (2 * INTER) + INTER + column, mask=column < INTER).to(tl.float32)
    value = situ(g, u, BETA, LINEAR_BETA)
    tl.store(hidden + token * INTER + column, to_bf16(value), mask=column < INTER)


@triton.jit
def ride_situ(index, num_tokens, args, CONSTANTS: tl.constexpr):
    """`situ_program` as the rider of a `SortExtension`."""
    gate_up, hidden = args
    situ_program(index, gate_up, hidden, CONSTANTS[0], CONSTANTS[1], CONSTANTS[2], CONSTANTS[3])


@triton.jit
def _situ(gate_up, hidden, CONSTANTS: tl.constexpr):
    ride_situ(tl.program_id(0), 0, (gate_up, hidden), CONSTANTS)


def check_situ(gate_up: torch.Tensor, beta: float, linear_beta: float | None) -> None:
    """The demands of every kernel here that takes gate_up; raises ValueError or TypeError."""
    checks.tensor("gate_up", gate_up, (torch.bfloat16,), (None, None))
    checks.runnable("gate_up", gate_up)
    check_tokens(gate_up.shape[0])
    if gate_up.shape[1] % 2:
        raise ValueError(f"gate_up has {gate_up.shape[1]} columns; accepted: an even number, gate and up")
    check_inter(gate_up.shape[1] // 2)
    checks.contiguous("gate_up", gate_up)
    checks.aligned("gate_up", gate_up)
    check_beta("beta", beta)
    if linear_beta is not None:
        check_beta("linear_beta", linear_beta)


def check_tokens(num_tokens: int) -> None:
    if num_tokens > MAX_TOKENS:
        raise ValueError(f"M={num_tokens} tokens; accepted: 0 to {MAX_TOKENS}")


def check_inter(inter: int) -> None:
    if inter <= 0 or inter % 16:
        raise ValueError(f"S={inter} columns; accepted: a multiple of 16")


def check_beta(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; accepted: float")
    if not 2**-20 <= value <= 2**20:  # beyond, 2 / beta or the exps lose what they are to hold
        raise ValueError(f"{name}={value!r}; accepted: 2^-20 to 2^20")


def situ_extension(
    gate_up: torch.Tensor, hidden: torch.Tensor, beta: float, linear_beta: float | None
) -> SortExtension:
    """SiTU of M >= 1 tokens into hidden [M, S], to ride in a launch of any number of warps. Checks nothing."""
    m, inter = hidden.shape
    constants = (inter, float(beta), None if linear_beta is None else float(linear_beta), COLUMNS)
    return SortExtension(ride_situ, (gate_up, hidden), constants, m * triton.cdiv(inter, COLUMNS))


def launch_situ(gate_up: torch.Tensor, hidden: torch.Tensor, beta: float, linear_beta: float | None) -> None:
    """The same as a launch of its own."""
    of = situ_extension(gate_up, hidden, beta, linear_beta)
    _situ[(of.rider_programs,)](*of.rider_args, of.rider_constants, num_warps=WARPS)


def activate(gate_up: torch.Tensor, beta: float, linear_beta: float | None) -> torch.Tensor:
    """SiTU: hidden bf16 [M, S] of gate_up bf16 [M, 2S], gate first; M <= 128; linear_beta None leaves up as it is."""
    check_situ(gate_up, beta, linear_beta)
    m, columns = gate_up.shape
    hidden = torch.empty((m, columns // 2), dtype=gate_up.dtype, device=gate_up.device)
    if m:
        launch_situ(gate_up, hidden, beta, linear_beta)
    return hidden
