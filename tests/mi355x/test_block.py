"""The routed experts of a layer on an MI355X: AITER's GEMMs behind our front, against the oracle. Never run yet.

    python benchmarks/gpu_tests.py benchmarks/results/mi355x-block.csv -- -m mi355x tests/mi355x

Needs torch for ROCm, triton, aiter and one whole MI355X. vLLM is not needed: the weights are put into AITER's layout by
AITER's own shuffles, as vLLM does it. Every M of 1 to 32 and every bucket of the tile table, in all three modes.
"""

import pytest
import torch

from vllm_k3moe import tables
from vllm_k3moe.canary import disagreement
from vllm_k3moe.envs import PARTS
from vllm_k3moe.experts import Weights, aiter_contract
from vllm_k3moe.experts.build import build_experts
from vllm_k3moe.gates import MODES
from vllm_k3moe.method import K3FusedMoEMethod
from vllm_k3moe.reference.block import quantised, shared_hidden
from vllm_k3moe.reference.experts import experts as oracle_experts
from vllm_k3moe.reference.mx import dequantise_mxfp4
from vllm_k3moe.reference.routing import route
from vllm_k3moe.shapes import K3_TP8, SITU_BETA, SITU_LINEAR_BETA
from vllm_k3moe.sort_plan import K3SortPlan
from vllm_k3moe.warmup import warm_up

pytestmark = pytest.mark.mi355x
# Relative L2 of a sum in bf16 atomics (a16w4: 5.7e-3 on emulated gfx950); MXFP8 and MXFP4 also quantise the
# intermediate, which the oracle does not
LIMITS = {"a16w4": 0.01, "a8w4": 0.06, "a4w4": 0.25}
TABLE = tables.load("gfx950", "a16w4", K3_TP8)
COUNTS = sorted({*range(1, 33), *(row.tokens for row in TABLE.rows if row.tokens <= 4096), *TABLE.batches()})


class Checkpoint:
    """Random MXFP4 experts on the GPU, as a checkpoint holds them."""

    def __init__(self) -> None:
        rng = torch.Generator("cuda").manual_seed(1)

        def make(low: int, high: int, *size: int) -> torch.Tensor:
            return torch.randint(low, high, size, dtype=torch.uint8, device="cuda", generator=rng)

        e, i, width = K3_TP8.experts, K3_TP8.inter, K3_TP8.latent
        self.w13, self.w13_scale = make(0, 256, e, 2 * i, width // 2), make(118, 122, e, 2 * i, width // 32)
        self.w2, self.w2_scale = make(0, 256, e, width, i // 2), make(118, 122, e, width, i // 32)

    def __call__(self, expert: int) -> tuple[torch.Tensor, torch.Tensor]:
        pairs = ((self.w13, self.w13_scale), (self.w2, self.w2_scale))
        first, second = (dequantise_mxfp4(w[expert].cpu(), s[expert].cpu()) for w, s in pairs)
        return first, second

    def shuffled(self, interleaved: bool) -> Weights:
        """As vLLM leaves them (model_executor/layers/fused_moe/oracle/mxfp4.py of 0.33)."""
        from aiter.ops.shuffle import shuffle_scale_a16w4, shuffle_weight_a16w4
        from aiter.utility.fp4_utils import e8m0_shuffle

        fp4, e8m0 = torch.float4_e2m1fn_x2, torch.float8_e8m0fnu
        rows13, rows2 = self.w13_scale.flatten(0, 1).view(e8m0), self.w2_scale.flatten(0, 1).view(e8m0)
        w13 = shuffle_weight_a16w4(self.w13.view(fp4), 16, interleaved)
        w2 = shuffle_weight_a16w4(self.w2.view(fp4), 16, False)
        w13.is_shuffled = w2.is_shuffled = True
        return Weights(w13, w2, shuffle_scale_a16w4(rows13, K3_TP8.experts, interleaved), e8m0_shuffle(rows2))


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    assert torch.version.hip and "gfx950" in torch.cuda.get_device_properties(0).gcnArchName, "needs an MI355X"
    return Checkpoint()


@pytest.fixture(scope="module", params=MODES)
def layer(request, checkpoint):
    """(mode, bias, method) after a warm-up."""
    mode = request.param
    assert aiter_contract.missing(MODES[mode]) == []
    weights = checkpoint.shuffled(interleaved=mode == "a8w4")
    experts, reasons = build_experts(K3_TP8, MODES[mode], weights)
    assert reasons == []
    bias = (torch.randn(K3_TP8.experts, generator=torch.Generator().manual_seed(2)) * 0.1).cuda()

    def select(x, logits):
        ids, routed = route(logits.cpu(), bias.cpu(), K3_TP8.topk)
        return routed.cuda(), ids.cuda()

    method = K3FusedMoEMethod(K3_TP8, bias, experts, select)
    warm_up(method, torch.device("cuda"), print, PARTS)
    assert disagreement(experts, weights, K3_TP8, K3_TP8.experts - 1) is None
    return mode, bias, method


@pytest.mark.parametrize("m", COUNTS)
def test_routed_experts(m, layer, checkpoint):
    mode, bias, method = layer
    if method.refuses(m):
        pytest.skip(method.refuses(m))
    rng = torch.Generator().manual_seed(m)
    # few distinct experts beyond small M, or the oracle would dequantise all 896 each time
    offset = torch.zeros(K3_TP8.experts)
    offset[torch.randperm(K3_TP8.experts, generator=rng)[64:]] = -30.0
    logits = torch.randn(m, K3_TP8.experts, generator=rng) + (offset if m > 4 else 0)
    x = torch.randn(m, K3_TP8.latent, generator=rng).to(torch.bfloat16)
    ids, weights = route(logits, bias.cpu(), K3_TP8.topk)
    want = oracle_experts(quantised(x, MODES[mode]), ids, weights, checkpoint)
    got = method(x.cuda(), logits.cuda()).float().cpu()
    per_row = (got - want).norm(dim=1) / want.norm(dim=1)
    assert float(per_row.max()) < LIMITS[mode], f"row {int(per_row.argmax())} of {m}"


@pytest.mark.parametrize("m", [1, 8, 16, 33, 128])
def test_the_shared_expert_rides(m, layer):
    """In the front's launches: its output the oracle's, the routed experts' what they are without it."""
    _, _, method = layer
    rng = torch.Generator("cuda").manual_seed(m)
    sizes = (m, K3_TP8.latent), (m, 2 * K3_TP8.shared_inter), (K3_TP8.hidden, K3_TP8.shared_inter)
    x, gate_up, weight = (torch.randn(*n, generator=rng, device="cuda").to(torch.bfloat16) for n in sizes)
    logits = torch.randn(m, K3_TP8.experts, generator=rng, device="cuda")
    with K3SortPlan(gate_up, weight, SITU_BETA, SITU_LINEAR_BETA) as shared:
        routed = method(x, logits, shared)
    want = shared_hidden(gate_up.cpu()).double() @ weight.cpu().double().T
    assert float((shared.out.cpu().double() - want).norm() / want.norm()) < 2**-8
    torch.testing.assert_close(routed.float(), method(x, logits).float(), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("m", [1, 3, 16, 256])
def test_graph_replay_is_the_eager_result(m, layer):
    """Routing, sort and quantisation are exact, stage 2's sum is in bf16 atomics: within their reordering."""
    _, _, method = layer
    x = torch.randn(m, K3_TP8.latent, device="cuda").to(torch.bfloat16)
    logits = torch.randn(m, K3_TP8.experts, device="cuda")
    method(x, logits)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = method(x, logits)
    for _ in range(20):
        x.normal_()
        logits.normal_()
        graph.replay()
        torch.testing.assert_close(captured.float(), method(x, logits).float(), rtol=0.05, atol=0.05)
