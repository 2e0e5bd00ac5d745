"""vLLM's KimiMoE at full K3 shape through our runner: our kernels on emulated gfx950, oracle experts for AITER's."""

import aiter
import pytest
import torch

from vllm_k3moe.counters import CALLS
from vllm_k3moe.gates import MODES
from vllm_k3moe.reference.block import latent_moe
from vllm_k3moe.shapes import K3_TP8

pytestmark = pytest.mark.on("gfx950")
# stage 1 rounds its output, stage 2 its sum, and the tail three times, to bf16; the oracle nothing
BF16 = 0.01


def tokens(m: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(m, K3_TP8.hidden, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.float() - want).norm() / want.norm())


@pytest.mark.parametrize("layer", MODES, indirect=True)
class TestEveryMode:
    @pytest.mark.parametrize("m", [1, 3, pytest.param(9, marks=pytest.mark.slow)])
    def test_the_layer_is_the_oracles(self, layer, m):
        x, before = tokens(m), CALLS.fused
        got = layer(x)
        assert layer.runner._k3_reasons == []
        assert CALLS.fused == before + 1
        mode = MODES[layer_mode(layer)]
        assert error(got, latent_moe(x, layer.weights, K3_TP8.topk, mode=mode)) < BF16

    def test_garbage_in_other_rows_changes_no_real_row(self, layer):
        """Captured batches are padded with whatever is in the buffer."""
        x = tokens(5)
        x[3:] = float("nan")
        alone = layer(x[:3])
        # torch's CPU GEMMs in front and behind sum differently at another M; ours would give the same bits
        assert error(layer(x)[:3], alone.float()) < BF16

    def test_the_result_is_fresh(self, layer):
        method = layer.runner._k3_method
        x = torch.ones(2, K3_TP8.latent, dtype=torch.bfloat16)
        logits = torch.randn(2, K3_TP8.experts)
        first, second = method(x, logits), method(x, logits)
        assert first.is_contiguous() and first.dtype == torch.bfloat16 and first.shape == x.shape
        assert first.data_ptr() not in (second.data_ptr(), x.data_ptr())


def layer_mode(layer) -> str:
    return {"none": "a16w4", "mxfp8": "a8w4", "mxfp4": "a4w4"}[layer.runner._k3_method.experts.mode]


class TestCallsOfAiter:
    """What reaches the stand-in, argument by argument, in a16w4."""

    @pytest.fixture(autouse=True)
    def prepared(self, layer, calls):
        layer(tokens(1))
        calls.clear()

    @pytest.mark.parametrize("m", [1, 2, 3, 8, 17, 512])
    def test_every_argument_of_both_stages(self, layer, calls, m):
        method, runner = layer.runner._k3_method, layer.runner
        x = torch.zeros(m, K3_TP8.latent, dtype=torch.bfloat16)
        out = method(x, torch.randn(m, K3_TP8.experts, generator=torch.Generator().manual_seed(m)))
        first, second = calls
        assert (first.name, second.name) == ("flydsl_moe_stage1", "flydsl_moe_stage2")
        row, experts = method.experts.table.row(m), runner.routed_experts
        one, two = first.arguments, second.arguments
        for stage, tile in ((one, row.stage1), (two, row.stage2)):
            assert (stage["tile_m"], stage["tile_n"], stage["tile_k"]) == (tile.m, tile.n, tile.k)
            assert (stage["b_nt"], stage["xcd_swizzle"]) == (tile.b_nt, tile.xcd_swizzle)
            assert (stage["a_dtype"], stage["b_dtype"], stage["out_dtype"]) == ("bf16", "fp4", "bf16")
            assert stage["topk"] == K3_TP8.topk
            ids, blocks = stage["sorted_token_ids"], stage["sorted_expert_ids"]
            assert ids.dtype == blocks.dtype == stage["num_valid_ids"].dtype == torch.int32
            assert len(ids) == len(blocks) * tile.m
            assert int(stage["num_valid_ids"][0]) % tile.m == 0 and int(stage["num_valid_ids"][1]) == m
        assert (one["act"], one["situ_beta"], one["situ_linear_beta"]) == ("situv2", 4.0, 25.0)
        assert (one["k_wave"], one["waves_per_eu"]) == (row.stage1.k_wave, 1)
        assert one["a"] is x and one["out"] is None
        assert one["w1"] is experts.w13_weight and one["w1"].is_shuffled
        assert one["w1_scale"] is experts.w13_weight_scale
        assert two["w2"] is experts.w2_weight and two["w2"].is_shuffled and two["w2_scale"] is experts.w2_weight_scale
        assert two["mode"] == "atomic" and two["out"] is out and two["inter_states"].dtype == torch.bfloat16
        assert two["sorted_weights"].dtype == torch.float32 and len(two["sorted_weights"]) == len(ids)

    def test_stage_2_gets_a_zeroed_output(self, layer):
        seen = []
        aiter.DO["flydsl_moe_stage2"] = lambda inter_states, w2, *a, out, **k: seen.append(out.clone())
        layer.runner._k3_method(tokens(3)[:, : K3_TP8.latent].contiguous(), torch.randn(3, K3_TP8.experts))
        assert seen[0].shape == (3, K3_TP8.latent) and not seen[0].any()

    def test_prefill_takes_our_wide_tiles(self, layer, calls):
        """From 2048 tokens on: vLLM's router, AITER's sort with our block, and n=192 reaches stage 1."""
        m = 2048
        layer.runner._k3_method(
            torch.zeros(m, K3_TP8.latent, dtype=torch.bfloat16),
            torch.randn(m, K3_TP8.experts, generator=torch.Generator().manual_seed(0)),
        )
        sort, one, two = calls
        assert [call.name for call in calls] == ["moe_sorting", "flydsl_moe_stage1", "flydsl_moe_stage2"]
        assert sort.arguments["block_size"] == 32 and "dispatch_policy" not in sort.arguments
        assert (one.arguments["tile_m"], one.arguments["tile_n"], two.arguments["tile_n"]) == (32, 192, 256)


@pytest.mark.parametrize("layer", ["a8w4", "a4w4"], indirect=True)
def test_quantised_stages_get_the_layout_of_the_mode(layer, calls):
    layer(tokens(1))
    configs = [call for call in aiter.CALLS if call.name == "get_2stage_cfgs"]
    wanted = "interleave" if layer_mode(layer) == "a8w4" else "separated"
    rows = torch.float8_e4m3fn if layer_mode(layer) == "a8w4" else torch.float4_e2m1fn_x2
    method = layer.runner._k3_method
    assert method.experts.refuses(513) and not method.experts.refuses(512)
    for call in configs:
        assert (call.arguments["gate_mode"], call.arguments["q_dtype_a"]) == (wanted, rows)
        sizes = [call.arguments[name] for name in ("model_dim", "inter_dim", "expert", "topk")]
        assert sizes == [3584, 384, 896, 16]
