"""A front's products against the oracle, one batch at a time, on random data at Kimi-K3's sizes."""

import functools
import math
from dataclasses import dataclass, field

import torch

from . import reference
from .kernels.front import Front
from .plan import RoutePlan
from .reference.block import quantised
from .shapes import K3_TP8 as SHAPE

BLOCK = 32
BLOCK_EXPERTS = 32  # whose weights are kept: both sides of a routed block of two tokens, in each mode, use the same
END_TO_END = 1e-6  # relative L2: both sides are the oracle's arithmetic, in another order of addition
QUANTISE = {"mxfp8": reference.quantise_mxfp8, "mxfp4": reference.quantise_mxfp4}
DEQUANTISE = {"mxfp8": reference.dequantise_mxfp8, "mxfp4": reference.dequantise_mxfp4}


@dataclass
class Case:
    """One batch through the front. `faults` name the first differing element of each product."""

    m: int
    mode: str
    launches: int
    ids: str | None = None  # "equal", "DIFFER", or None where there is nothing to compare
    sorted: str | None = None
    quantised: str | None = None
    weight_ulp: float | None = None  # largest error of a routing weight
    us: float | None = None  # median of graph replays, on a GPU
    faults: list[str] = field(default_factory=list)


@dataclass
class Block:
    """The routed experts of one batch, computed from the front's products."""

    m: int
    mode: str
    error: float | None  # relative L2 against the oracle end to end; None where the front's products differ
    faults: list[str] = field(default_factory=list)


def inputs(m: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x bf16 [m, L], logits fp32 [m, E], bias fp32 [E], on the CPU.

    x is normal with one column in 64 twenty times as large, as activations have them; logits are normal with
    deviation 1.2, the bias with 0.1.
    """
    rng = torch.Generator().manual_seed(seed)
    columns = torch.where(torch.rand(SHAPE.latent, generator=rng) < 1 / 64, 20.0, 1.0)
    x = (torch.randn(m, SHAPE.latent, generator=rng) * columns).to(torch.bfloat16)
    return x, torch.randn(m, SHAPE.experts, generator=rng) * 1.2, torch.randn(SHAPE.experts, generator=rng) * 0.1


def difference(name: str, got: torch.Tensor, want: torch.Tensor) -> list[str]:
    """[] if equal bit for bit, else one line naming the first element that is not."""
    if got.shape != want.shape:
        return [f"{name}: got shape {list(got.shape)}, expected {list(want.shape)}"]
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[got.element_size()]
    wrong = got.contiguous().view(bits) != want.contiguous().view(bits)
    if not wrong.any():
        return []
    at = tuple(wrong.nonzero()[0].tolist())
    return [f"{name}{list(at)}: got {got[at].item()}, expected {want[at].item()}; {int(wrong.sum())} differ"]


def weight_error(front: Front, logits: torch.Tensor, scaling: float) -> float:
    """Largest error of a routing weight, in fp32 ulp, for the ids that the front chose."""
    s = torch.sigmoid(logits.double()).gather(1, front.ids.long())
    want = s / s.sum(dim=1, keepdim=True) * scaling
    ulp = torch.nextafter(want.float(), torch.tensor(torch.inf)).double() - want.float().double()
    return float(((front.weights.double() - want).abs() / ulp).max())


def compare(front: Front, plan: RoutePlan, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> Case:
    """The verdicts on a front's products; all tensors on the CPU."""
    case = Case(len(x), plan.mode, len(plan.launches(len(x))))

    def verdict(faults: list[str]) -> str:
        case.faults += faults
        return "DIFFER" if faults else "equal"

    case.ids = verdict(reference.routing_faults(front.ids, front.weights, logits, bias, plan.scaling))
    if ((front.ids < 0) | (front.ids >= plan.shape.experts)).any():
        return case  # named above; there is no sort of experts that do not exist
    error = weight_error(front, logits, plan.scaling)
    case.weight_ulp = error if math.isfinite(error) else None  # JSON has no NaN; the fault names the weight

    want = reference.sort(front.ids, front.weights, plan.shape.experts, plan.block)
    rows = int(want.num_valid_ids[0])
    faults = difference("num_valid_ids", front.sorted.num_valid_ids, want.num_valid_ids)
    for name, size in (("sorted_ids", rows), ("sorted_weights", rows), ("sorted_expert_ids", rows // plan.block)):
        faults += difference(name, getattr(front.sorted, name)[:size], getattr(want, name))
    case.sorted = verdict(faults)

    if front.rows is not None and front.scales is not None:
        want_rows, scales = QUANTISE[plan.mode](x)
        want_bytes, written = reference.scatter_scales(scales, want.sorted_ids, len(x), *front.scales.shape)
        faults = difference("rows", front.rows, want_rows)
        # bytes that belong to no real row are undefined: take what is there
        want_scales = torch.where(written, want_bytes, front.scales.view(-1)).view_as(front.scales)
        faults += difference("scales", front.scales, want_scales)
        case.quantised = verdict(faults)
    if front.zeroed is not None:
        case.faults += difference("zeroed", front.zeroed, torch.zeros_like(front.zeroed))
    return case


def to_cpu(front: Front) -> Front:
    moved = front._replace(sorted=type(front.sorted)(*(t.cpu() for t in front.sorted)))
    return moved._replace(**{n: t.cpu() for n, t in moved._asdict().items() if hasattr(t, "cpu")})


def run_poisoned(plan: RoutePlan, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> Front:
    """The front's products, on the CPU, out of buffers of 0xFF: what was not written must not look right by luck."""
    front = plan.allocate(plan.check(x, logits, bias), x.device)
    for tensor in (*front.sorted, *front):
        if isinstance(tensor, torch.Tensor):
            tensor.view(torch.uint8).fill_(0xFF)
    plan.launch(x, logits, bias, front)
    return to_cpu(front)


def replay_us(plan: RoutePlan, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor) -> float:
    """Median microseconds of one front in a graph of 20, over 50 replays."""
    front = plan.allocate(len(x), x.device)
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for _ in range(20):
            plan.launch(x, logits, bias, front)
    for _ in range(50):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / 20)
    return sorted(times)[len(times) // 2]


def run_case(m: int, mode: str, seed: int, on: torch.device) -> Case:
    """Run the front once and compare; on a GPU also time it."""
    plan = RoutePlan(SHAPE, mode, BLOCK)
    x, logits, bias = inputs(m, seed + m)
    args = x.to(on), logits.to(on), bias.to(on)
    case = compare(run_poisoned(plan, *args), plan, x, logits, bias)
    if on.type == "cuda":
        case.us = replay_us(plan, *args)
    return case


@functools.lru_cache(maxsize=BLOCK_EXPERTS)
def expert_weights(e: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """w13 [2I, L] and w2 [L, I] of expert e, fp32 values of random MXFP4 weights."""
    rng = torch.Generator().manual_seed(seed * SHAPE.experts + e)

    def matrix(n: int, k: int) -> torch.Tensor:
        packed = torch.randint(0, 256, (n, k // 2), generator=rng, dtype=torch.uint8)
        scales = torch.randint(117, 121, (n, k // 32), generator=rng, dtype=torch.uint8)
        return reference.dequantise_mxfp4(packed, scales)

    return matrix(2 * SHAPE.inter, SHAPE.latent), matrix(SHAPE.latent, SHAPE.inter)


def gather_scales(front: Front, groups: int) -> torch.Tensor:
    """uint8 [M, groups]: each token's scales, read where the GEMM reads those of its first pair."""
    assert front.scales is not None
    token = front.sorted.sorted_ids[: int(front.sorted.num_valid_ids[0])] & 0xFFFFFF
    row = torch.stack([(token == t).nonzero()[0, 0] for t in range(len(front.ids))])
    offset = reference.scale_offset(row[:, None].numpy(), torch.arange(groups)[None, :].numpy(), front.scales.shape[1])
    return front.scales.view(-1)[torch.as_tensor(offset)]


def run_block(m: int, mode: str, seed: int, on: torch.device) -> Block:
    """Oracle experts on the front's products, against oracle routing, rows and experts."""
    plan = RoutePlan(SHAPE, mode, BLOCK)
    x, logits, bias = inputs(m, seed)
    front = run_poisoned(plan, x.to(on), logits.to(on), bias.to(on))
    faults = compare(front, plan, x, logits, bias).faults
    return Block(m, mode, None, faults) if faults else block_error(front, plan, x, logits, bias, seed)


def block_error(
    front: Front, plan: RoutePlan, x: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor, seed: int
) -> Block:
    """The experts, of a front whose products are equal."""
    m, mode = len(x), plan.mode
    rows = x if front.rows is None else DEQUANTISE[mode](front.rows, gather_scales(front, SHAPE.latent // 32))

    def weights_of(e: int) -> tuple[torch.Tensor, torch.Tensor]:
        return expert_weights(e, seed)

    ours = reference.experts_from_sorted(rows, front.sorted, m, SHAPE.topk, weights_of)
    ids, weights = reference.route(logits, bias, SHAPE.topk)
    if not torch.equal(ids.sort().values, front.ids.sort().values):  # scores 8 ulp apart may change places at rank K
        ids, weights = front.ids, front.weights
    want = reference.experts(quantised(x, mode), ids, weights, weights_of)
    error = float((ours - want).norm() / want.norm())
    fault = f"routed block: relative L2 {error:.2e}; allowed: below {END_TO_END:.0e}"
    return Block(m, mode, error, [] if error < END_TO_END else [fault])
