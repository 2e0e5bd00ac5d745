"""What the kernels do not serve: an error that names the argument, its value and what is accepted; nothing launched."""

import pytest
import torch

from vllm_k3moe.kernels.moe_sort import moe_sort
from vllm_k3moe.kernels.mx import quantise
from vllm_k3moe.kernels.shared_expert import down
from vllm_k3moe.kernels.situ import activate
from vllm_k3moe.kernels.topk import topk
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.shapes import MoEShape

pytestmark = pytest.mark.on("interpreter", "gpu")
SHAPE = MoEShape(64, 64, 32, 4, 32, 32)
PLAN = RoutePlan(SHAPE, "mxfp8", block=16)


def arguments(device, m=2):
    return {
        "x": torch.zeros(m, 64, dtype=torch.bfloat16, device=device),
        "logits": torch.zeros(m, 32, device=device),
        "bias": torch.zeros(32, device=device),
    }


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"x": torch.zeros(2, 64)}, TypeError, "x has dtype float32; accepted: bfloat16"),
        ({"x": torch.zeros(64, dtype=torch.bfloat16)}, ValueError, "x has 1 dimensions, shape [64]"),
        ({"x": torch.zeros(3, 64, dtype=torch.bfloat16)}, ValueError, "x has shape [3, 64]; accepted: [2, 64]"),
        ({"x": torch.zeros(2, 32, dtype=torch.bfloat16)}, ValueError, "x has shape [2, 32]; accepted: [2, 64]"),
        ({"x": torch.zeros(2, 33, dtype=torch.bfloat16)}, ValueError, "rows of 33 columns; accepted: a multiple of 32"),
        ({"x": torch.zeros(64, 2, dtype=torch.bfloat16).T}, ValueError, "x has stride 2 in its last dimension"),
        ({"x": None}, TypeError, "x is a NoneType; a plain torch.Tensor is needed"),
        (
            {"logits": torch.zeros(2, 32, dtype=torch.float64)},
            TypeError,
            "logits has dtype float64; accepted: float32 or",
        ),
        ({"logits": torch.zeros(2, 32, dtype=torch.float16)}, TypeError, "logits has dtype float16"),
        ({"logits": torch.zeros(2, 31)}, ValueError, "logits has shape [2, 31]; accepted: [any, 32]"),
        ({"logits": torch.zeros(32, 2).T}, ValueError, "logits has stride 2 in its last dimension"),
        ({"bias": torch.zeros(31)}, ValueError, "bias has shape [31]; accepted: [32]"),
        ({"bias": torch.zeros(32, dtype=torch.int32)}, TypeError, "bias has dtype int32"),
        ({"bias": torch.zeros(32, 1)}, ValueError, "bias has 2 dimensions"),
        ({"bias": torch.zeros(32, device="meta")}, ValueError, "bias is on meta; the other arguments are on"),
        ({"x": torch.zeros(2, 64, dtype=torch.bfloat16, device="meta")}, ValueError, "x is on meta"),
        ({"logits": torch.zeros(2, 32, device="meta")}, ValueError, "logits is on meta"),
    ],
)
def test_plan_arguments(change, error, message, device):
    moved = {
        k: v.to(device) if isinstance(v, torch.Tensor) and v.device.type == "cpu" else v for k, v in change.items()
    }
    with pytest.raises(error) as raised:
        PLAN(**{**arguments(device), **moved})
    assert message in str(raised.value)


def test_lazy_and_sparse_tensors(device):
    for logits in (torch._neg_view(torch.zeros(2, 32, device=device)), torch.zeros(2, 32, device=device).to_sparse()):
        with pytest.raises(TypeError, match=r"logits is a lazy or torch.* tensor; a plain torch\.Tensor is needed"):
            PLAN(**{**arguments(device), "logits": logits})


def test_x_must_be_aligned(device):
    """Elsewhere a kernel of its own would be compiled, in mid-serving."""
    x = torch.zeros(2, 80, dtype=torch.bfloat16, device=device)
    for wrong in (x[:, 1:65], torch.zeros(2, 65, dtype=torch.bfloat16, device=device)[:, :64]):
        with pytest.raises(ValueError, match="accepted: rows at multiples of 16 bytes"):
            PLAN(**{**arguments(device), "x": wrong})


@pytest.mark.on("interpreter", "gpu")
def test_logits_in_a_storage_beyond_32_bits(device):
    """Triton would compile another kernel for them."""
    far = torch.empty(2**29, device=device)[:64].view(2, 32)  # not touched
    with pytest.raises(ValueError, match="logits lies in a storage of 2147483648 bytes; accepted: below 2"):
        PLAN(**{**arguments(device), "logits": far})


def test_too_many_tokens(device):
    with pytest.raises(ValueError, match="M=513 tokens; accepted: 0 to 512"):
        PLAN(**arguments(device, m=513))
    with pytest.raises(ValueError, match="M=513 tokens"):
        moe_sort(torch.zeros(513, 4, dtype=torch.int32, device=device), torch.zeros(513, 4, device=device), 32, 16)


@pytest.mark.parametrize(
    "shape, mode, block, message",
    [
        (SHAPE, "fp8", 16, "mode='fp8'; accepted: none, mxfp8, mxfp4"),
        (SHAPE, "none", 48, "block=48 rows; accepted: 16, 32, 64, 128"),
        (SHAPE, "none", 32.0, "block=32.0 is a float; accepted: int"),
        (SHAPE, "none", True, "block=True is a bool; accepted: int"),
        (MoEShape(64, 33, 8, 2, 32, 32), "none", 16, "rows of 33 columns"),
        (MoEShape(64, 64, 8.0, 2, 32, 32), "none", 16, "E=8.0 is a float"),
        (MoEShape(64, 64, 1025, 4, 32, 32), "none", 16, "E=1025 experts; accepted: 1 to 1024"),
        (MoEShape(64, 64, 64, 33, 32, 32), "none", 16, "K=33 experts per token; accepted: 1 to 32"),
        (MoEShape(64, 64, 8, 9, 32, 32), "none", 16, "K=9 experts per token"),
        (MoEShape(64, 64, 8, 0, 32, 32), "none", 16, "K=0 experts per token"),
    ],
)
def test_plan_settings(shape, mode, block, message):
    with pytest.raises((ValueError, TypeError)) as raised:
        RoutePlan(shape, mode, block)
    assert message in str(raised.value)


@pytest.mark.parametrize("scaling", [float("nan"), float("inf"), 0.0, -1.0, "1", None, True])
def test_scaling(scaling, device):
    with pytest.raises((ValueError, TypeError), match=f"scaling={scaling!r}"):
        RoutePlan(SHAPE, "none", 16, scaling=scaling)
    with pytest.raises((ValueError, TypeError), match=f"scaling={scaling!r}"):
        topk(torch.zeros(1, 8, device=device), torch.zeros(8, device=device), 2, scaling)


def test_batch_sizes():
    for m in (-1, 513):
        with pytest.raises(ValueError, match=f"M={m} tokens"):
            PLAN.launches(m)
        with pytest.raises(ValueError, match=f"M={m} tokens"):
            PLAN.allocate(m, torch.device("cpu"))
    with pytest.raises(TypeError, match=r"M=2\.5 is a float"):
        PLAN.launches(2.5)


@pytest.mark.parametrize(
    "ids, weights, e, block, error, message",
    [
        (torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, 4), 32, 16, TypeError, "ids has dtype int64"),
        (torch.zeros(2, 4, dtype=torch.int32), torch.zeros(2, 3), 32, 16, ValueError, "weights has shape [2, 3]"),
        (torch.zeros(2, 4, dtype=torch.int32), torch.zeros(2, 4), 2000, 16, ValueError, "E=2000"),
        (torch.zeros(2, 4, dtype=torch.int32), torch.zeros(2, 4), 32, 8, ValueError, "block=8"),
    ],
)
def test_sort_arguments(ids, weights, e, block, error, message, device):
    with pytest.raises(error) as raised:
        moe_sort(ids.to(device), weights.to(device), e, block)
    assert message in str(raised.value)


def test_sort_takes_dense_rows_only(device):
    ids, weights = torch.zeros(2, 8, dtype=torch.int32, device=device), torch.zeros(2, 8, device=device)
    with pytest.raises(ValueError, match=r"ids has strides \(8, 1\); accepted: contiguous"):
        moe_sort(ids[:, :4], weights[:, :4].contiguous(), 32, 16)
    with pytest.raises(ValueError, match=r"weights has strides \(8, 1\); accepted: contiguous"):
        moe_sort(ids[:, :4].contiguous(), weights[:, :4], 32, 16)


def test_quantise_and_topk_arguments(device):
    x = torch.zeros(2, 64, dtype=torch.bfloat16, device=device)
    with pytest.raises(ValueError, match="mode='none' quantises nothing"):
        quantise(x, "none")
    with pytest.raises(ValueError, match="mode='nvfp4'; accepted"):
        quantise(x, "nvfp4")
    with pytest.raises(ValueError, match="K=33"):
        topk(torch.zeros(2, 64, device=device), torch.zeros(64, device=device), 33)


@pytest.mark.parametrize(
    "gate_up, betas, error, message",
    [
        (torch.zeros(2, 64), (4.0, 25.0), TypeError, "gate_up has dtype float32; accepted: bfloat16"),
        (
            torch.zeros(2, 33, dtype=torch.bfloat16),
            (4.0, 25.0),
            ValueError,
            "gate_up has 33 columns; accepted: an even",
        ),
        (torch.zeros(2, 48, dtype=torch.bfloat16), (4.0, 25.0), ValueError, "S=24 columns; accepted: a multiple of 16"),
        (torch.zeros(2, 0, dtype=torch.bfloat16), (4.0, 25.0), ValueError, "S=0 columns"),
        (torch.zeros(129, 64, dtype=torch.bfloat16), (4.0, 25.0), ValueError, "M=129 tokens; accepted: 0 to 128"),
        (torch.zeros(64, 2, dtype=torch.bfloat16).T, (4.0, 25.0), ValueError, "gate_up has stride 2"),
        (torch.zeros(2, 64, dtype=torch.bfloat16), (0.0, 25.0), ValueError, "beta=0.0; accepted: 2^-20 to 2^20"),
        (torch.zeros(2, 64, dtype=torch.bfloat16), (4.0, 1e-39), ValueError, "linear_beta=1e-39; accepted: 2^-20"),
        (torch.zeros(2, 64, dtype=torch.bfloat16), (4.0, True), TypeError, "linear_beta=True is a bool"),
        (torch.zeros(2, 64, dtype=torch.bfloat16, device="meta"), (4.0, 25.0), ValueError, "gate_up is on meta"),
    ],
)
def test_situ_arguments(gate_up, betas, error, message, device):
    with pytest.raises(error) as raised:
        activate(gate_up if gate_up.device.type == "meta" else gate_up.to(device), *betas)
    assert message in str(raised.value)


@pytest.mark.on("interpreter", "gpu")
def test_what_the_shared_expert_reads_must_be_aligned_and_dense(device):
    """Another alignment would compile kernels of its own, in mid-serving."""
    off = torch.zeros(4 + 2 * 64, dtype=torch.bfloat16, device=device)[4:].view(2, 64)
    with pytest.raises(ValueError, match="gate_up starts 8 bytes past a multiple of 16"):
        activate(off, 4.0, 25.0)
    with pytest.raises(ValueError, match=r"gate_up has strides \(80, 1\)"):
        activate(torch.zeros(2, 80, dtype=torch.bfloat16, device=device)[:, :64], 4.0, 25.0)
    with pytest.raises(ValueError, match="weight starts 8 bytes past a multiple of 16"):
        down(torch.zeros(2, 64, dtype=torch.bfloat16, device=device), off)


def test_down_arguments(device):
    hidden = torch.zeros(2, 64, dtype=torch.bfloat16, device=device)
    weight = torch.zeros(32, 64, dtype=torch.bfloat16, device=device)
    with pytest.raises(ValueError, match=r"weight has shape \[32, 64\]; accepted: \[any, 32\]"):
        down(hidden[:, :32].contiguous(), weight)
    with pytest.raises(TypeError, match="weight has dtype uint8; accepted: bfloat16"):
        down(hidden, weight.view(torch.uint8)[:, :64])
    with pytest.raises(ValueError, match=r"weight has strides \(1, 32\)|weight has stride 32"):
        down(hidden, torch.zeros(64, 32, dtype=torch.bfloat16, device=device).T)
    with pytest.raises(ValueError, match="weight is on meta; the other arguments are on"):
        down(hidden, weight.to("meta"))
    with pytest.raises(ValueError, match="M=129 tokens; accepted: 0 to 128"):
        down(torch.zeros(129, 64, dtype=torch.bfloat16, device=device), weight)
    with pytest.raises(ValueError, match=r"weight has shape \[0, 64\]; accepted: 1 to 2\^30 - 1 elements"):
        down(hidden, weight[:0])
    apart = torch.zeros(2 * 64 + 1, dtype=torch.bfloat16, device=device)[1:].view(2, 64)
    with pytest.raises(ValueError, match="hidden starts 2 bytes past"):
        down(apart, weight)
