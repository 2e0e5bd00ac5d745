"""AITER's own a16w4 machine code, fed with our sorted ids, against the oracle.

docs/aiter-code-objects.md says how the code objects are made and what this shows. `-rP` prints what was measured.
"""

import math
from functools import cache

import pytest
import torch

import aiter_kernels
import aiter_weights
from aiter_kernels import AiterKernel
from aiter_weights import Matrix
from vllm_k3moe.kernels.front import Front
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.reference import experts, situ
from vllm_k3moe.shapes import K3_TP8, SITU_BETA, SITU_LINEAR_BETA

pytestmark = [
    pytest.mark.on("gfx950"),
    pytest.mark.skipif(
        aiter_kernels.folder() is None,
        reason=f"{aiter_kernels.VARIABLE} names no folder of AITER's code objects: see docs/aiter-code-objects.md",
    ),
    pytest.mark.xdist_group("aiter"),  # one worker holds the weights
]
# At every M; the folder's other kernels with blocks of 16 rows at M=3 only, each with one of these two
FIRST, SECOND = "flydsl_moe1_abf16_wfp4_bf16_t16x128x256", "flydsl_moe2_abf16_wfp4_bf16_t16x128x128_atomic"
BLOCK = 16
CASES = (
    *((FIRST, SECOND, m) for m in (1, 3, 8, 16, 40)),
    *((name, SECOND, 3) for name in aiter_kernels.names(1, BLOCK) if name != FIRST),
    *((FIRST, name, 3) for name in aiter_kernels.names(2, BLOCK) if name != SECOND),
)
# Experts that may be chosen, the first and the last among them: so few that blocks hold several tokens
POOL = tuple(torch.linspace(0, K3_TP8.experts - 1, 48).int().tolist())
# Relative L2. Stage 1 rounds its output to bf16: 1.7e-3 was seen. Stage 2 adds 16 products in bf16: 5.2e-3 to 5.7e-3.
STAGE1_LIMIT, STAGE2_LIMIT, WRONG = 2e-3, 6e-3, 0.1
BETAS = (SITU_BETA, SITU_LINEAR_BETA)

dense = aiter_weights.dense(K3_TP8)
load = cache(aiter_kernels.load)


@pytest.fixture(scope="module")
def weights() -> tuple[Matrix, Matrix]:
    return aiter_weights.tensors(POOL, K3_TP8)


def route(m: int, block: int, rng: torch.Generator) -> tuple[torch.Tensor, Front]:
    """Rows bf16 [M, L], and what our front makes of a batch of them; the router's bias keeps it to POOL."""
    z = torch.randn(m, K3_TP8.latent, generator=rng).bfloat16()
    bias = torch.full((K3_TP8.experts,), -10.0)
    bias[list(POOL)] = 0
    logits = torch.randn(m, K3_TP8.experts, generator=rng)
    return z, RoutePlan(K3_TP8, mode="none", block=block)(z, logits, bias)


def run(
    first: AiterKernel, second: AiterKernel, z: torch.Tensor, front: Front, weights: tuple[Matrix, Matrix],
    betas: tuple[float, float] = BETAS, fill: float = math.nan,
) -> tuple[torch.Tensor, tuple[int, int]]:  # fmt: skip
    """Both stages; y is in `front.zeroed`. Returns the intermediate [sorted rows, I] and wave instructions executed."""
    inter = torch.full((front.sorted.sorted_ids.numel(), K3_TP8.inter), fill, dtype=torch.bfloat16)
    stats1 = aiter_kernels.stage1(first, z, weights[0], front.sorted, inter, betas)
    stats2 = aiter_kernels.stage2(second, inter, weights[1], front.sorted, front.zeroed)
    return inter, (stats1.instructions, stats2.instructions)


def oracle(z: torch.Tensor, front: Front, inter: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """fp32: the intermediate [sorted rows, I], 0 in padding; y [M, L] of the intermediate given; and y of z."""
    m, order = len(z), front.sorted
    block = order.sorted_ids.numel() // order.sorted_expert_ids.numel()
    want, own = torch.zeros(inter.shape), torch.zeros(z.shape, dtype=torch.float64)
    for row in range(0, int(order.num_valid_ids[0]), block):
        w13, w2 = (w.float() for w in dense(int(order.sorted_expert_ids[row // block])))
        token = order.sorted_ids[row : row + block] & 0xFFFFFF
        token = token[token < m].long()
        rows = slice(row, row + len(token))  # padding comes last
        want[rows] = situ(*(z[token].float() @ w13.T).chunk(2, dim=1))
        part = inter[rows].float() @ w2.T
        own.index_add_(0, token, order.sorted_weights[rows, None].double() * part.double())
    return want, own.float(), experts(z, front.ids, front.weights, dense)


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative L2."""
    return float((got.float() - want).norm() / want.norm())


@pytest.mark.parametrize("first, second, m", CASES)
def test_numbers(first, second, m, weights, rng):
    """Stage 1; stage 2 on the intermediate that stage 1 wrote; both. Padding rows stay as they were."""
    z, front = route(m, BLOCK, rng)
    inter, counts = run(load(first), load(second), z, front, weights)
    assert front.zeroed is not None
    want, own, y = oracle(z, front, inter)
    real = (front.sorted.sorted_ids & 0xFFFFFF) < m
    real[int(front.sorted.num_valid_ids[0]) :] = False
    assert inter[~real].isnan().all()
    errors = error(inter[real], want[real]), error(front.zeroed, own), error(front.zeroed, y)
    print(f"M={m} {first} {second}: {int(front.sorted.num_valid_ids[0]) // BLOCK} blocks")
    print(f"  wave instructions {counts[0]}, {counts[1]}; errors " + ", ".join(f"{e:.2e}" for e in errors))
    assert errors[0] < STAGE1_LIMIT and errors[1] < STAGE2_LIMIT and errors[2] < STAGE2_LIMIT


@pytest.mark.parametrize("mistake", [*aiter_weights.MISTAKES, "betas of 1", "blocks of 32"])
def test_mistakes_show(mistake, rng):
    """What somebody might get wrong gives numbers that are plainly wrong: the limits above can fail."""
    z, front = route(1, 2 * BLOCK if mistake == "blocks of 32" else BLOCK, rng)
    if mistake == "blocks of 32":  # the kernels see twice as many blocks, and would read past the end of our list
        order = front.sorted
        front = front._replace(sorted=order._replace(sorted_expert_ids=order.sorted_expert_ids.repeat(2)))
    weights = aiter_weights.tensors(front.ids.unique().tolist(), K3_TP8, mistake)
    run(load(FIRST), load(SECOND), z, front, weights, (1.0, 1.0) if mistake == "betas of 1" else BETAS, fill=0)
    assert front.zeroed is not None
    wrong = error(front.zeroed, experts(z, front.ids, front.weights, dense))
    print(f"{mistake}: {wrong:.2f}")
    assert WRONG < wrong < math.inf
