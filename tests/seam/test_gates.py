"""Every gate, tripped alone on a real layer: its reason, nothing else, and vLLM's own path."""

from typing import Any

import pytest
import torch
from changed import DELETED, With, change, wrong

from vllm_k3moe import gates
from vllm_k3moe.envs import PARTS
from vllm_k3moe.parts import fusible
from vllm_k3moe.shapes import K3_TP8
from vllm_k3moe.tail import of_layer

pytestmark = pytest.mark.on("gfx950")


@pytest.fixture(scope="module")
def built(one_rank, tmp_path_factory):
    """A layer without memory: gates ask about types and shapes only."""
    import layers

    config = layers.engine_config(tmp_path_factory.mktemp("config"), layers.text_config())
    moe = layers.build(config, "meta")
    return moe.experts, config


@pytest.fixture
def envs(vllm):
    from vllm import envs

    return envs


def reasons_of(runner: Any, config: Any, envs: Any, mode: str = "a16w4", units: int = 256) -> list[str]:
    return gates.static_reasons(runner, config, envs, mode, units)


def test_nothing_speaks_against_kimi_k3(built, envs):
    assert reasons_of(built[0], built[1], envs) == []


@pytest.mark.parametrize("gate", gates.RUNNER, ids=lambda g: g.path)
def test_runner_gate(gate, built, envs):
    runner, config = built
    [reason] = reasons_of(change(runner, gate.path, wrong(gate)), config, envs)
    assert reason.startswith(f"{gate.what}: {gate.path} is ")


@pytest.mark.parametrize("gate", gates.CONFIG, ids=lambda g: g.path)
def test_config_gate(gate, built, envs):
    runner, config = built
    if gate.younger and gates.ask(config, gate.path) is gates._ABSENT:
        pytest.skip(f"this vLLM has no {gate.path}")
    if gates.ask(config, gate.path.rpartition(".")[0] or gate.path) is None and "." in gate.path:
        pytest.skip(f"{gate.path.rpartition('.')[0]} is None here: the feature is off")
    [reason] = reasons_of(runner, change(config, gate.path, wrong(gate)), envs)
    assert reason.startswith(f"{gate.what}: {gate.path} is ")


@pytest.mark.parametrize("gate", gates.SWITCHES, ids=lambda g: g.path)
def test_switch(gate, built, envs):
    [reason] = reasons_of(built[0], built[1], With(envs, gate.path, wrong(gate)))
    assert reason.startswith(f"{gate.what}: {gate.path} is ")


@pytest.mark.parametrize("gate", [*gates.RUNNER, *gates.CONFIG], ids=lambda g: g.path)
def test_an_attribute_that_is_gone(gate, built, envs):
    """Default-deny: what cannot be read is a reason, unless its absence means that the feature is not there."""
    root = built[0] if gate in gates.RUNNER else built[1]
    parent = gates.ask(root, gate.path.rpartition(".")[0]) if "." in gate.path else root
    if parent in (None, gates._ABSENT) or gate.path.endswith(("__name__", "__module__")):
        pytest.skip("nothing to take away")
    reason = gate.reason(change(root, gate.path, DELETED))
    assert (reason is None) if gate.younger else reason == f"{gate.what}: this vLLM has no {gate.path}"


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_experts", 512), ("num_local_experts", 112), ("num_logical_experts", 900), ("experts_per_token", 8),
        ("hidden_dim", 4096), ("hidden_dim_unpadded", 3500), ("intermediate_size_per_partition", 512),
        ("intermediate_size_per_partition_unpadded", 192),
    ],
)  # fmt: skip
def test_another_shape(name, value, built, envs):
    runner, config = built
    [reason] = reasons_of(change(runner, f"moe_config.{name}", value), config, envs)
    assert reason.startswith("shape: (") and str(value) in reason


@pytest.mark.parametrize(
    "what, path, value",
    [
        ("dtype: torch.float16", "moe_config.in_dtype", torch.float16),
        ("routing: no e_score_correction_bias", "routed_experts.e_score_correction_bias", None),
    ],
)
def test_other_reasons_of_a_layer(what, path, value, built, envs):
    runner, config = built
    [reason] = reasons_of(change(runner, path, value), config, envs)
    assert reason.startswith(what)


def test_other_reasons_of_the_configuration(built, envs):
    runner, config = built
    [decode] = reasons_of(runner, change(config, "additional_config", {"decode_backend": "latency_specialized"}), envs)
    assert decode.startswith("decode_backend=latency_specialized")
    [compiled] = reasons_of(runner, change(config, "compilation_config.mode.name", "STOCK_TORCH_COMPILE"), envs)
    assert "STOCK_TORCH_COMPILE" in compiled
    assert reasons_of(runner, None, envs) == ["no vLLM configuration is set"]


def test_an_unknown_mode_and_a_partitioned_gpu(built, envs):
    assert reasons_of(built[0], built[1], envs, mode="a32w4") == ["SiTU mode 'a32w4'; served: a16w4, a8w4, a4w4"]
    [reason] = reasons_of(built[0], built[1], envs, units=128)
    assert reason.startswith("128 compute units")


def test_all_reasons_are_reported(built, envs):
    broken = change(change(built[0], "enable_dbo", True), "moe_config.has_bias", True)
    found = reasons_of(broken, None, envs, mode="?", units=64)
    assert len(found) == 5


@pytest.mark.parametrize("gate", gates.CALL, ids=lambda g: g.path)
def test_call_gate(gate, built):
    runner, _ = built
    assert gates.failed(gates.CALL, runner) == []
    assert gates.failed(gates.CALL, change(runner, gate.path, object()))


@pytest.mark.parametrize("gate", [*gates.SHARED, *gates.TAIL], ids=lambda g: g.path)
def test_gate_of_a_part(gate, built):
    runner, _ = built
    assert gates.failed(gates.SHARED, runner) == gates.failed(gates.TAIL, runner) == []
    own = gates.SHARED if gate in gates.SHARED else gates.TAIL
    [reason] = gates.failed(own, change(runner, gate.path, wrong(gate)))
    assert reason.startswith(f"{gate.what}: {gate.path} is ")


def test_a_part_that_a_layer_cannot_fuse_is_vllms(built):
    """With the reason; the others are not."""
    runner, _ = built
    parts, [other] = fusible(change(runner, "_shared_experts._layer.act_fn.beta", 1.0), PARTS)
    assert parts == {"route", "sort"}  # one rank shards no tail
    assert other == "shared is vLLM's: shared SiTU beta: _shared_experts._layer.act_fn.beta is 1.0; served: 4.0"


@pytest.mark.parametrize("rank", [0, 5])
def test_the_tail_of_any_vllm(rank, built):
    """Until 0.31 every rank holds all rows of the up-projection."""
    size = K3_TP8.hidden // 8
    transform = built[0].routed_output_transform
    tail = of_layer(transform, rank, size)
    assert (len(tail.up), tail.first_column) == (size, rank * size)
    own = of_layer(change(transform, "up_proj.weight.data", tail.up), rank, size)
    assert (len(own.up), own.first_column) == (size, rank * size)


class TestTheRunnersAnswer:
    """What a reason does."""

    @pytest.fixture
    def stock(self, vllm, monkeypatch):
        """vLLM's own path answers with a mark."""
        from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner

        monkeypatch.setattr(MoERunner, "_forward_impl", lambda self, *arguments: "stock")

    def build(self, tmp_path, **changes):
        import layers

        return layers.build(layers.engine_config(tmp_path, layers.text_config(**changes)), "meta").experts

    def test_another_shape_runs_vllms_path(self, one_rank, tmp_path, environment, stock):
        from vllm_k3moe.counters import CALLS

        runner = self.build(tmp_path, moe_intermediate_size=512)
        [reason] = runner._k3_reasons
        assert reason.startswith("shape: ")
        assert runner._forward_impl(torch.zeros(1, 3584), torch.zeros(1, 896), None) == "stock"
        assert CALLS.fallback[reason] > 0

    def test_strict_raises_with_every_reason_and_the_way_out(self, one_rank, tmp_path, environment):
        environment.setenv("K3MOE", "strict")
        with pytest.raises(RuntimeError, match=r"(?s)shape: .*K3MOE=auto runs vLLM's own path") as caught:
            self.build(tmp_path, moe_intermediate_size=512)
        assert type(caught.value).__name__ == "InactiveError"

    def test_a_name_does_not_matter(self, one_rank, tmp_path, environment):
        """K3.1 under another name, K3's shapes: no reason."""
        assert self.build(tmp_path, model_type="kimi_linear", _name_or_path="kimi-k3.1")._k3_reasons == []
