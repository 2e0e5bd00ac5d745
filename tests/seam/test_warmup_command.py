"""`k3moe warmup` on emulated gfx950 with the stand-in AITER: what is compiled, into which folder, and its errors."""

import os
from pathlib import Path

import pytest
import torch
from triton.runtime.jit import JITFunction

from vllm_k3moe import cli, envs, precompile
from vllm_k3moe.experts.aiter import A16W4Experts
from vllm_k3moe.shapes import K3_TP8
from vllm_k3moe.warmup import token_counts

pytestmark = pytest.mark.on("gfx950")
CPU = torch.device("cpu")


@pytest.fixture
def forget(vllm):
    """Make Triton forget, in this process, what it has compiled: what it needs next comes from a folder or is new."""
    from vllm_k3moe.kernels import (
        latent_tail,
        moe_sort,
        mx,
        route_sort,
        route_sort_mid,
        shared_expert,
        situ,
        token_sort,
        topk,
    )

    modules = latent_tail, moe_sort, mx, route_sort, route_sort_mid, shared_expert, situ, token_sort, topk

    def run() -> None:
        for module in modules:
            for value in vars(module).values():
                if isinstance(value, JITFunction):
                    value.device_caches.clear()

    return run


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", ["a16w4", *(pytest.param(m, marks=pytest.mark.slow) for m in ("a8w4", "a4w4"))])
def test_every_tile_pair_is_launched_and_our_kernels_are_kept(mode, environment, calls, forget, capsys):
    forget()
    assert precompile.run(mode, 8, CPU) == 0
    cache = envs.read().cache
    method = precompile.build(mode, 8, CPU)
    out = capsys.readouterr().out
    assert (
        out == f"compiled {method.experts.description} for {len(token_counts(method, True))} batch sizes into {cache}\n"
    )
    assert any(name.endswith(".hsaco") for name in files(cache / "triton"))
    assert isinstance(method.experts, A16W4Experts) is (mode == "a16w4")
    if isinstance(method.experts, A16W4Experts):
        seen = {
            (c.arguments["tile_m"], c.arguments["tile_n"], c.arguments["tile_k"])
            for c in calls
            if c.name == "flydsl_moe_stage1"
        }
        assert seen == {(r.stage1.m, r.stage1.n, r.stage1.k) for r in method.experts.table.rows}
        assert {c.arguments["w1"].dtype for c in calls if "w1" in c.arguments} == {torch.float4_e2m1fn_x2}


@pytest.mark.slow
def test_the_first_call_of_a_layer_finds_all_of_it(environment, one_rank, forget, tmp_path):
    """vLLM's own layer, prepared after the command into the same folder, adds no file to it."""
    import layers
    from vllm._aiter_ops import rocm_aiter_ops

    environment.setenv("VLLM_ROCM_USE_AITER_MOE_SITUV2", "a16w4")
    environment.setenv("K3MOE_CANARY", "0")
    rocm_aiter_ops.refresh_env_variables()
    forget()
    assert precompile.run(None, 8, CPU) == 0  # in the mode that vLLM chooses
    cache = envs.read().cache
    before = files(cache)
    runner = layers.build(layers.engine_config(tmp_path, layers.text_config()), "meta").experts
    weights = precompile.zero_weights(K3_TP8, CPU)
    runner._k3_weights = lambda: weights
    runner.routed_experts.e_score_correction_bias = torch.nn.Parameter(torch.zeros(K3_TP8.experts), False)
    zeros = torch.zeros(K3_TP8.hidden, K3_TP8.shared_inter, dtype=torch.bfloat16)
    runner._shared_experts._layer.down_proj.weight = torch.nn.Parameter(zeros, False)
    runner._tail_shardable = True
    forget()
    runner._k3_prepare()
    assert runner._k3_reasons == [] and runner._k3_parts == set(envs.PARTS)
    assert before and files(cache) == before
    rocm_aiter_ops.refresh_env_variables()


@pytest.mark.slow
def test_the_weights_are_what_vllm_leaves(layer):
    """Types, sizes and marks, of a layer that vLLM has loaded."""
    for ours, theirs in zip(precompile.zero_weights(K3_TP8, CPU), layer.runner._k3_weights(), strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        assert getattr(ours, "is_shuffled", None) == getattr(theirs, "is_shuffled", None)


class TestErrors:
    """Each is one line on stderr and exit status 2."""

    def line(self, capsys) -> str:
        [line] = capsys.readouterr().err.strip().splitlines()
        return line

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_no_gpu(self, environment, capsys):
        assert cli.main(["warmup", "--mode", "a16w4"]) == 2
        assert self.line(capsys).startswith("k3moe warmup: torch sees no GPU here")

    @pytest.mark.parametrize(
        "arch, units, words",
        [("gfx942", 304, "the GPU is gfx942; served: gfx950"), ("gfx950", 128, "128 compute units")],
    )
    def test_another_gpu(self, vllm, environment, capsys, monkeypatch, arch, units, words):
        import cpu_ops

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(cpu_ops.MI355X, "gcnArchName", f"{arch}:sramecc+:xnack-")
        monkeypatch.setattr(cpu_ops.MI355X, "multi_processor_count", units)
        assert cli.main(["warmup", "--mode", "a16w4"]) == 2
        assert words in self.line(capsys)

    def test_an_aiter_that_lacks_a_name(self, environment, capsys, monkeypatch):
        import aiter.ops.flydsl

        monkeypatch.setattr(aiter.ops.flydsl, "flydsl_moe_stage2", lambda inter_states: None)
        assert precompile.run("a16w4", 8, CPU) == 2
        assert "AITER: aiter.ops.flydsl.flydsl_moe_stage2 takes (inter_states) where we pass" in self.line(capsys)

    def test_no_aiter(self, environment, capsys, monkeypatch):
        from vllm_k3moe.experts import aiter_contract

        monkeypatch.setattr(aiter_contract, "find_spec", lambda name: None)
        assert precompile.run("a16w4", 8, CPU) == 2
        assert self.line(capsys) == "k3moe warmup: AITER is not installed"

    @pytest.mark.parametrize("mode, tp, words", [("a32w4", 8, "mode 'a32w4'; served: a16w4"), ("a16w4", 4, "size 4")])
    def test_wrong_mode_and_size(self, environment, capsys, mode, tp, words):
        assert precompile.run(mode, tp, CPU) == 2
        assert words in self.line(capsys)

    def test_the_command_line_refuses_a_mode(self, capsys):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["warmup", "--mode", "a32w4"])
        assert "invalid choice: 'a32w4'" in capsys.readouterr().err

    def test_a_wrong_setting(self, environment, capsys):
        environment.setenv("K3MOE_CANARY", "perhaps")
        assert precompile.run("a16w4", 8, CPU) == 2
        assert self.line(capsys) == "k3moe warmup: K3MOE_CANARY='perhaps'; accepted: 1, 0"

    def test_a_cache_that_others_can_write(self, environment, capsys, tmp_path):
        os.makedirs(tmp_path / "cache")
        (tmp_path / "cache").chmod(0o777)
        assert precompile.run("a16w4", 8, CPU) == 2
        assert "mode 777" in self.line(capsys)
