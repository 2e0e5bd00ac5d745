"""The whole front through RoutePlan: route, sort, quantise, zero at K3's shape, in one launch and in two."""

import pytest
import torch

import cases
from fronts import LAUNCH, MODES, check, inputs, limit, run
from vllm_k3moe import reference
from vllm_k3moe.kernels.front import Front
from vllm_k3moe.kernels.topk import topk
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.shapes import K3_TP8, MoEShape

NAN = float("nan")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.tokens(interpreter=(1, 3), gfx950=cases.TRUE_SHAPE, gpu=(*cases.TOKENS, *cases.VERIFY))
def test_plan_at_the_true_shape(m, mode, order, device, rng):
    plan = RoutePlan(K3_TP8, mode, block=32)
    x, logits, bias = inputs(m, K3_TP8, rng, device)
    check_fresh(plan(x, logits, bias), plan, x, logits, bias)


def check_fresh(front: Front, plan: RoutePlan, x, logits, bias) -> None:
    """`check` for buffers that the plan allocated: what lies outside the valid region is nobody's."""
    rows = int(front.sorted.num_valid_ids[0])
    for tensor, size in zip(front.sorted, (rows, rows, rows // plan.block), strict=False):
        cases.poison(tensor[size:])
    if front.scales is not None:
        _, written = reference.scatter_scales(
            torch.zeros(len(x), plan.shape.latent // 32, dtype=torch.uint8), front.sorted.sorted_ids[:rows].cpu(),
            len(x), *front.scales.shape,
        )  # fmt: skip
        front.scales.view(-1)[~written.to(front.scales.device)] = cases.POISON
    check(front, plan, x, logits, bias)


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("block", cases.BLOCKS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("launch, m", [("one", 1), ("two", 1), ("two", 32), ("two", 40), ("two", 130)])
def test_every_block(launch, m, mode, block, order, device, rng):
    plan = RoutePlan(K3_TP8, mode, block)
    args = inputs(m, K3_TP8, rng, device)
    check(run(launch, plan, *args), plan, *args)


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.tokens(gfx950=(63, 128, 255, 512), gpu=(9, *cases.TOKENS, *cases.VERIFY))
def test_two_launches_to_their_limit(m, mode, device, rng):
    plan = RoutePlan(K3_TP8, mode, block=16)
    args = inputs(m, K3_TP8, rng, device)
    check(run("two", plan, *args), plan, *args)


@pytest.mark.parametrize("launch", LAUNCH)
@pytest.mark.parametrize("mode", ["mxfp8", "mxfp4"])
@pytest.mark.parametrize("latent", [32, 544, 2080])
def test_other_shapes(launch, mode, latent, device, rng):
    """Rows whose last slice and last scale tile are not full; fewer experts than a mask word, an odd K."""
    plan = RoutePlan(MoEShape(64, latent, 27, 5, 32, 32), mode, block=16)
    args = inputs(limit(launch, 5), plan.shape, rng, device)
    check(run(launch, plan, *args), plan, *args)


@pytest.mark.parametrize("launch", LAUNCH)
@pytest.mark.parametrize("e, k", [(2, 1), (33, 1), (1024, 32)])
def test_fewest_and_most_experts_of_a_token(launch, e, k, device, rng):
    plan = RoutePlan(MoEShape(64, 64, e, k, 32, 32), "mxfp8", block=16)
    args = inputs(limit(launch, 4), plan.shape, rng, device)
    check(run(launch, plan, *args), plan, *args)


@pytest.mark.parametrize("launch", LAUNCH)
def test_strides_alignment_and_bf16_logits(launch, device, rng):
    plan = RoutePlan(MoEShape(64, 96, 40, 4, 32, 32), "mxfp8", block=16)
    x = torch.randn(6, 136, generator=rng).to(torch.bfloat16).to(device)[:, 8:104]  # rows at multiples of 16 bytes
    logits = torch.randn(6, 51, generator=rng).to(torch.bfloat16).to(device)[:, 3:43]
    bias = (torch.randn(41, generator=rng) * 0.1).to(device)[1:]
    m = limit(launch, 6)
    check(run(launch, plan, x[:m], logits[:m], bias), plan, x[:m], logits[:m], bias)


@pytest.mark.parametrize("launch", LAUNCH)
@pytest.mark.parametrize("skew", ["same", "one hot"])
@pytest.mark.tokens(interpreter=(17,), gfx950=(40,), gpu=(40,))
def test_skewed_routing(launch, skew, m, device, rng):
    """All tokens on the same experts, and one expert in every token among others; more than one block of them."""
    plan = RoutePlan(MoEShape(64, 64, 64, 4, 32, 32), "mxfp8", block=16)
    m = limit(launch, m)
    x, logits, bias = inputs(m, plan.shape, rng, device)
    if skew == "same":
        logits = logits[:1].expand(m, -1).contiguous()
    else:
        bias[37] = 4.0
    check(run(launch, plan, x, logits, bias), plan, x, logits, bias)


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("m", [32, 257])
def test_one_expert_of_all_tokens(m, device, rng):
    """32: its count is the largest of its bucket. 257: of the programs with two tokens, the last has one."""
    plan = RoutePlan(MoEShape(64, 64, 64, 4, 32, 32), "mxfp8", block=16)
    x, logits, bias = inputs(m, plan.shape, rng, device)
    bias[37] = 4.0
    front = run("two", plan, x, logits, bias)
    check(front, plan, x, logits, bias)
    assert torch.equal(front.weights, topk(logits, bias, 4, plan.scaling)[1])


@pytest.mark.on("gfx950", "gpu")
def test_rows_wider_than_a_slice_of_many_tokens(device, rng):
    """From 33 tokens on a slice is 4096 columns, more than a row of Kimi-K3's."""
    plan = RoutePlan(MoEShape(64, 4128, 32, 1, 32, 32), "mxfp8", block=16)
    args = inputs(33, plan.shape, rng, device)
    check(run("two", plan, *args), plan, *args)


@pytest.mark.parametrize("launch", LAUNCH)
def test_weight_of_exactly_zero(launch, device, rng):
    """Its pair keeps its row and ordinary scale bytes; stage 2 multiplies by 0."""
    plan = RoutePlan(MoEShape(64, 64, 32, 4, 32, 32), "mxfp8", block=16)
    x, logits, bias = inputs(limit(launch, 3), plan.shape, rng, device)
    bias[5], logits[-1, 5] = 9.0, -100.0
    front = run(launch, plan, x, logits, bias)
    check(front, plan, x, logits, bias)
    assert front.ids[-1, 0] == 5 and front.weights[-1, 0] == 0


@pytest.mark.parametrize("garbage", [0.0, NAN, 3e38])
def test_padding_tokens_change_nothing(garbage, device, rng):
    """A captured batch is padded with whatever is in memory: the real tokens' products are those of the bare batch."""
    plan = RoutePlan(MoEShape(64, 96, 48, 4, 32, 32), "mxfp8", block=32)
    x, logits, bias = inputs(5, plan.shape, rng, device)
    bare = run("two", plan, x[:3], logits[:3], bias)
    x[3:], logits[3:] = garbage, garbage
    padded = run("two", plan, x, logits, bias)
    check(padded, plan, x, logits, bias)
    for name in ("ids", "weights", "rows"):
        assert torch.equal(getattr(padded, name)[:3].view(torch.uint8), getattr(bare, name).view(torch.uint8)), name


@pytest.mark.tokens(interpreter=(2,), gfx950=(2, 129), gpu=(1, 2, 32, 33, 129, 257, 512))
def test_a_tokens_weights_do_not_depend_on_its_batch(m, device, rng):
    """Bit for bit: the router alone, two launches and one. K=3: of 129 tokens a program has more slots to add up."""
    plan = RoutePlan(MoEShape(64, 64, 48, 3, 32, 32), "none", block=16, zero=False)
    x, logits, bias = inputs(m, plan.shape, rng, device)
    logits[0, :6] = torch.tensor([NAN, float("inf"), -float("inf"), -100.0, -87.0, 30.0])
    _, weights = topk(logits, bias, 3, plan.scaling)
    assert torch.equal(run("two", plan, x, logits, bias).weights, weights)
    for token in (0, m - 1):
        one = run("one", plan, x[token : token + 1], logits[token : token + 1], bias)
        assert torch.equal(one.weights, weights[token : token + 1])
