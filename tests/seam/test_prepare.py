"""What the first call of a layer does: build, compile, canary; and what becomes of a fault in any of it."""

import aiter
import layers
import pytest
import torch
from aiter import stages

from vllm_k3moe import runner as runners
from vllm_k3moe.canary import plain_expert
from vllm_k3moe.envs import read
from vllm_k3moe.shapes import K3_TP8

pytestmark = pytest.mark.on("gfx950")
LAST = K3_TP8.experts - 1


@pytest.fixture
def fresh(layer, environment, monkeypatch):
    """The layer's runner as it was before its first call; warm-up is not this file's matter."""
    runner = layer.runner
    monkeypatch.setattr(runners, "warm_up", lambda *arguments: 0)
    monkeypatch.setattr(runner, "_k3_method", None)
    monkeypatch.setattr(runner, "_k3_reasons", [])
    monkeypatch.setattr(runner, "_k3_settings", read())
    monkeypatch.setattr(runner, "_k3_canary", True)
    return runner


def batch(m: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(m, K3_TP8.latent, dtype=torch.bfloat16), torch.zeros(m, K3_TP8.experts)


def test_a_sound_layer_is_prepared_by_its_first_call(fresh, calls):
    assert fresh._k3_call_reasons(*batch()) == []
    assert [call.name for call in calls] == ["flydsl_moe_stage1", "flydsl_moe_stage2"]  # the canary's
    assert fresh._k3_method is not None


def test_it_is_prepared_once(fresh, calls):
    fresh._k3_call_reasons(*batch())
    calls.clear()
    assert fresh._k3_call_reasons(*batch()) == [] and calls == []


@pytest.mark.parametrize("layer", ["a16w4", "a8w4"], indirect=True)
def test_plain_expert_is_the_checkpoints(layer):
    """Out of vLLM's processed weights, in the layout of each mode."""
    from vllm_k3moe import report

    for expert in (0, LAST):
        want = layer.weights.expert_weights(expert)
        got = plain_expert(layer.runner._k3_weights(), expert, K3_TP8, report.situ_mode() == "a8w4")
        assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


def swapped_betas(**named):
    return stages.flydsl_moe_stage1(**{**named, "situ_beta": 1.0, "situ_linear_beta": 1.0})


def up_before_gate(**named):
    other = torch.cat(named["w1"].view(torch.uint8).chunk(2, dim=1)[::-1], dim=1).view(named["w1"].dtype)
    return stages.flydsl_moe_stage1(**{**named, "w1": other})


def other_layout(**named):
    """A stage 1 that reads gate and up by turns, as a8w4's does, out of a16w4's weights."""
    w1 = named["w1"].view(torch.uint8)
    address = torch.from_numpy(stages.weight_address(*w1.shape[1:], gate_up=True))
    read = w1[LAST:].flatten(1)[:, address]
    other = w1.clone()
    other[LAST:] = stages.shuffle_weight_a16w4(read, 16, False)
    return stages.flydsl_moe_stage1(**{**named, "w1": other.view(named["w1"].dtype)})


def nan(**named):
    return stages.flydsl_moe_stage1(**named) * float("nan")


FAULTS = {
    "betas of another release": swapped_betas,
    "up before gate": up_before_gate,
    "the layout of a8w4": other_layout,
    "NaN": nan,
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_canary_refuses(fault, fresh, calls):
    aiter.DO["flydsl_moe_stage1"] = fault
    [reason] = fresh._k3_call_reasons(*batch())
    assert reason.startswith(f"canary: expert {LAST} differs") and reason.endswith(f" in {fresh.layer_name}")
    assert fresh._k3_call_reasons(*batch()) == [reason]


def test_strict_raises_what_the_canary_found(fresh, environment, monkeypatch):
    environment.setenv("K3MOE", "strict")
    monkeypatch.setattr(fresh, "_k3_settings", read())
    aiter.DO["flydsl_moe_stage1"] = nan
    try:
        with pytest.raises(runners.InactiveError, match=r"canary: .*K3MOE=auto"):
            fresh._k3_call_reasons(*batch())
    finally:
        aiter.DO.clear()


def test_no_canary_where_it_is_off(fresh, monkeypatch, calls):
    monkeypatch.setattr(fresh, "_k3_canary", False)
    assert fresh._k3_call_reasons(*batch()) == [] and calls == []


def test_dummy_weights_have_no_canary(one_rank, environment, tmp_path):
    config = layers.engine_config(tmp_path, layers.text_config(), load_format="dummy")
    assert not layers.build(config, "meta").experts._k3_canary


def test_a_fault_of_aiters_is_a_reason(fresh, calls):
    def broken(**named):
        raise RuntimeError("hipErrorNoBinaryForGpu")

    aiter.DO["flydsl_moe_stage1"] = broken
    [reason] = fresh._k3_call_reasons(*batch())
    assert reason == "preparing failed: RuntimeError: hipErrorNoBinaryForGpu"


def test_unmarked_weights_are_a_reason(fresh, monkeypatch):
    weights = fresh._k3_weights()
    monkeypatch.setattr(weights.w2, "is_shuffled", False)
    [reason] = fresh._k3_call_reasons(*batch())
    assert reason.startswith("weights: w2 is not marked is_shuffled")


def test_a_first_call_in_a_capture_is_vllms(fresh, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert fresh._k3_call_reasons(*batch()) == [runners.NOT_PREPARED]
    monkeypatch.undo()
    assert fresh._k3_reasons == []


def test_weights_that_moved(fresh, monkeypatch, caplog):
    fresh._k3_call_reasons(*batch())
    monkeypatch.setattr(runners, "_pointers", lambda weights: (0, 0, 0, 0))
    for _ in range(3):
        assert fresh._k3_call_reasons(*batch()) == ["weights moved since they were checked"]
    said = f"k3moe: a call of {fresh.layer_name} is vLLM's: weights moved since they were checked"
    assert caplog.text.count(said) == 1  # the first line of the log had promised something else


@pytest.mark.parametrize(
    "x, logits, words",
    [
        (torch.zeros(0, 3584, dtype=torch.bfloat16), torch.zeros(0, 896), "0 tokens"),
        (torch.zeros(1, 3584), torch.zeros(1, 896), "x has dtype float32"),
        (torch.zeros(1, 3584, dtype=torch.bfloat16), torch.zeros(2, 896), "shape"),
        (torch.zeros(1, 3584, dtype=torch.bfloat16), torch.zeros(1, 896, dtype=torch.float16), "logits has dtype"),
        (torch.zeros(1, 3584, dtype=torch.bfloat16), torch.zeros(1, 896, dtype=torch.bfloat16), "served: float32"),
        (torch.zeros(16385, 3584, dtype=torch.bfloat16), torch.zeros(16385, 896), "more than 16384 tokens"),
    ],
)
def test_batches_that_are_vllms(x, logits, words, fresh):
    fresh._k3_call_reasons(*batch())
    [reason] = fresh._k3_call_reasons(x, logits)
    assert words in reason


class TestAFaultInServing:
    """Our kernels or AITER's raise after the layer was prepared."""

    @pytest.fixture
    def broken(self, fresh, monkeypatch):
        assert fresh._k3_call_reasons(*batch()) == []

        def fail(x, logits):
            raise RuntimeError("broken on purpose")

        monkeypatch.setattr(type(fresh._k3_method), "__call__", lambda self, x, logits, shared: fail(x, logits))
        return fresh

    def test_vllms_experts_answer_from_then_on(self, broken, monkeypatch, caplog):
        monkeypatch.setattr(broken.routed_experts, "forward_modular", lambda **named: named["topk_ids"])
        x, logits = batch(2)
        assert broken._k3_routed(x, logits).shape == (2, K3_TP8.topk)
        assert broken._k3_call_reasons(x, logits) == ["failed in serving: RuntimeError: broken on purpose"]
        assert "failed in serving: RuntimeError: broken on purpose" in caplog.text

    def test_strict_raises(self, broken, environment, monkeypatch):
        environment.setenv("K3MOE", "strict")
        monkeypatch.setattr(broken, "_k3_settings", read())
        with pytest.raises(RuntimeError, match="broken on purpose"):
            broken._k3_routed(*batch())
