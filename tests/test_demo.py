"""`k3moe demo` as a stranger runs it, and that a wrong product is named."""

import json
import os
import subprocess
import sys

import pytest
import torch

from vllm_k3moe import device as devices
from vllm_k3moe.kernels.front import Front
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.shapes import K3_TP8
from vllm_k3moe.verify import compare, inputs, to_cpu

pytestmark = pytest.mark.host


def k3moe(*arguments: str) -> subprocess.CompletedProcess:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "vllm_k3moe.cli", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("device", ["interpreter", "gfx950"])
def test_json(device):
    done = k3moe("--device", device, "--m", "1", "--mode", "mxfp8", "--json")
    assert done.returncode == 0, done.stderr
    doc = json.loads(done.stdout)
    [case], [block] = doc["cases"], doc["block"]
    assert doc["ok"]
    assert [case[k] for k in ("m", "mode", "launches", "ids", "sorted", "quantised")] == [1, "mxfp8", 1] + ["equal"] * 3
    assert 0 <= case["weight_ulp"] <= 4
    assert case["us"] is None
    assert block["error"] < 1e-6
    assert doc["launches"]["mxfp8"][-1] == {"step": "sum", "stock": [10, 11], "ours": [7, 7]}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--m", "513"), "M = 513; accepted: 1 to 512"),
        (("--m", "0"), "M = 0; accepted: 1 to 512"),
        (("--m", "two"), "'two' is not a comma-separated list of integers"),
        (("--mode", "fp8"), "invalid choice: 'fp8'"),
        (("--m", "2,1,2"), "M = 2 twice"),
        (("--mode", "none", "none"), "mode 'none' twice"),
        (("--device", "tpu"), "invalid choice: 'tpu'"),
        (("--seed", "-1"), "'-1'; accepted: an integer from 0 to 2147483647"),
        (("--seed", "99999999999999999999"), "accepted: an integer from 0 to"),
    ],
)
def test_wrong_usage(arguments, message):
    done = k3moe(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert not done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu():
    done = k3moe("--device", "cuda")
    assert done.returncode == 2
    assert "torch sees no GPU here" in done.stderr


@pytest.mark.parametrize("device", ["gfx950", "cuda"])
def test_the_interpreter_takes_no_other_name(monkeypatch, device):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(devices.DeviceError, match="TRITON_INTERPRET=1 is set"):
        devices.start(device)


PLAN = RoutePlan(K3_TP8, "mxfp8", block=32)


@pytest.fixture(scope="module")
def front() -> Front:
    return to_cpu(PLAN(*inputs(1, seed=3)))


def test_equal_products(front):
    case = compare(front, PLAN, *inputs(1, seed=3))
    assert (case.ids, case.sorted, case.quantised, case.faults) == ("equal", "equal", "equal", [])


@pytest.mark.parametrize(
    "product, at, verdict, fault",
    [
        ("sorted_ids", (33,), "sorted", "sorted_ids[33]: got"),
        ("sorted_weights", (64,), "sorted", "sorted_weights[64]: got"),
        ("sorted_expert_ids", (5,), "sorted", "sorted_expert_ids[5]: got"),
        ("num_valid_ids", (1,), "sorted", "num_valid_ids[1]: got"),
        ("rows", (0, 3583), "quantised", "rows[0, 3583]: got"),
        ("scales", (0, 0), "quantised", "scales[0, 0]: got"),
        ("ids", (0, 2), "ids", "token 0 slot"),
        ("weights", (0, 7), "ids", "weight: token 0 slot 7"),
        ("zeroed", (0, 11), None, "zeroed[0, 11]: got"),
    ],
)
def test_a_wrong_product_is_named(front, product, at, verdict, fault):
    inner = product in front.sorted._fields
    wrong = getattr(front.sorted if inner else front, product).clone()
    wrong[at] += 1
    changed = {product: wrong}
    broken = front._replace(sorted=front.sorted._replace(**changed)) if inner else front._replace(**changed)
    case = compare(broken, PLAN, *inputs(1, seed=3))
    assert verdict is None or getattr(case, verdict) == "DIFFER"
    assert any(fault in line for line in case.faults), case.faults


@pytest.mark.parametrize("expert", [-1, 896])
def test_an_expert_that_does_not_exist_is_named(front, expert):
    ids = front.ids.clone()
    ids[0, 2] = expert
    case = compare(front._replace(ids=ids), PLAN, *inputs(1, seed=3))
    assert case.ids == "DIFFER"
    assert f"token 0 slot 2: got expert {expert}" in case.faults[0]
