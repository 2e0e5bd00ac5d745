"""What the stand-in computes: AITER's shuffles byte by byte, and its two stages by the oracle's formulas in fp32.

The layouts are written down a second time here, as addresses, so that the plugin's inverse is tested against something
that shares no code with it. Formulas: ROCm/aiter e4048607a5, aiter/ops/shuffle.py:165 and :339.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from vllm_k3moe.reference.experts import situ
from vllm_k3moe.reference.mx import dequantise_mxfp4, dequantise_mxfp8, scale_offset
from vllm_k3moe.reference.sorting import sort


def weight_address(rows: int, columns: int, gate_up: bool) -> np.ndarray:
    """int64 [rows, columns]: where byte (row, column) of an expert lies."""
    r, c = np.arange(rows)[:, None], np.arange(columns)[None, :]
    tile = r // 16
    if gate_up:  # tiles of the gate and of up take turns
        half = rows // 2
        tile = r % half // 16 * 2 + r // half
    return ((tile * (columns // 64) + c // 64) * 4 + c % 64 // 16) * 256 + r % 16 * 16 + c % 16


def scale_address(rows: int, groups: int, gate_up: bool) -> np.ndarray:
    """int64 [rows, groups]: where the scale of (row, group) of an expert lies; groups a multiple of 8."""
    r, g = np.arange(rows)[:, None], np.arange(groups)[None, :]
    if not gate_up:
        return scale_offset(r, g, groups)
    half = rows // 2  # gate and up of the same row, in 16s, share a lane
    lane, pack = r % half, r // half
    return ((lane // 16 * (groups // 8) + g // 8) * 4 + g % 4) * 64 + lane % 16 * 4 + g % 8 // 4 * 2 + pack


def _scatter(plain: torch.Tensor, address: np.ndarray, run: int = 1) -> torch.Tensor:
    """uint8 [E, rows, columns] -> uint8 of the same shape, each expert's bytes at their addresses.

    `run`: so many bytes in a row stay together, and are moved together, since there are 2 GB of them.
    """
    runs = address.reshape(-1, run)
    first = runs[:, 0] // run
    assert (runs == first[:, None] * run + np.arange(run)).all()
    source = torch.empty(len(first), dtype=torch.int64)
    source[torch.from_numpy(first)] = torch.arange(len(first))
    return plain.reshape(len(plain), -1, run).index_select(1, source).view(plain.shape)


def shuffle_weight_a16w4(src: torch.Tensor, NLane: int, gate_up: bool) -> torch.Tensor:
    assert NLane == 16
    plain = src.view(torch.uint8)
    out = _scatter(plain, weight_address(plain.shape[1], plain.shape[2], gate_up), run=16).view(src.dtype)
    out.is_shuffled = True  # type: ignore[attr-defined]  # AITER hangs it on the tensor
    return out


def shuffle_scale_a16w4(src: torch.Tensor, experts_cnt: int, gate_up: bool) -> torch.Tensor:
    plain = src.view(torch.uint8).view(experts_cnt, -1, src.shape[-1])
    return _scatter(plain, scale_address(plain.shape[1], plain.shape[2], gate_up)).view(src.shape).view(src.dtype)


def e8m0_shuffle(scale: torch.Tensor) -> torch.Tensor:
    plain = scale.view(torch.uint8)
    padded = torch.nn.functional.pad(plain, (0, -plain.shape[1] % 8))
    assert len(padded) % 256 == 0
    out = _scatter(padded.view(-1, 256, padded.shape[1]), scale_address(256, padded.shape[1], False))
    return out.view(padded.shape).view(scale.dtype)


class _Plain:
    """One expert out of a shuffled tensor."""

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, gate_up: bool) -> None:
        self.weight, self.gate_up = weight.view(torch.uint8), gate_up
        experts, rows, columns = self.weight.shape
        self.groups = columns * 2 // 32
        self.scale = scale.view(torch.uint8).reshape(experts, rows, -1)
        self.weight_at = torch.from_numpy(weight_address(rows, columns, gate_up))
        self.scale_at = torch.from_numpy(scale_address(rows, self.scale.shape[2], gate_up)[:, : self.groups])

    def __call__(self, expert: int) -> torch.Tensor:
        values = self.weight[expert].flatten()[self.weight_at]
        return dequantise_mxfp4(values, self.scale[expert].flatten()[self.scale_at])


def _blocks(sorted_ids: torch.Tensor, sorted_expert_ids: torch.Tensor, num_valid_ids: torch.Tensor, block: int):
    """(first row, expert) of each block in use."""
    for start in range(0, int(num_valid_ids[0]), block):
        yield start, int(sorted_expert_ids[start // block])


def flydsl_moe_stage1(
    a, w1, sorted_token_ids, sorted_expert_ids, num_valid_ids, out=None, topk=1, *,
    tile_m, act, situ_beta, situ_linear_beta, w1_scale, **others: Any,
) -> torch.Tensor:  # fmt: skip
    assert act == "situv2"
    inter = w1.shape[1] // 2
    if not a.any():  # a warm-up's rows, and SiTU of 0 is 0
        return torch.zeros(len(sorted_expert_ids) * tile_m, inter, dtype=torch.bfloat16)
    plain = _Plain(w1, w1_scale, gate_up=False)
    result = torch.full((len(sorted_expert_ids) * tile_m, inter), float("nan"), dtype=torch.bfloat16)
    for start, expert in _blocks(sorted_token_ids, sorted_expert_ids, num_valid_ids, tile_m):
        token = sorted_token_ids[start : start + tile_m].long() & 0xFFFFFF
        real = token < len(a)
        gate, up = (a[token[real]].float() @ plain(expert).T).chunk(2, dim=1)
        result[start : start + tile_m][real] = situ(gate, up, situ_beta, situ_linear_beta).to(torch.bfloat16)
    return result


def flydsl_moe_stage2(
    inter_states, w2, sorted_token_ids, sorted_expert_ids, num_valid_ids, out=None, topk=1, *,
    tile_m, w2_scale, sorted_weights, **others: Any,
) -> torch.Tensor:  # fmt: skip
    if not inter_states.any():
        return out
    plain, total = _Plain(w2, w2_scale, gate_up=False), out.float()
    for start, expert in _blocks(sorted_token_ids, sorted_expert_ids, num_valid_ids, tile_m):
        token = sorted_token_ids[start : start + tile_m].long() & 0xFFFFFF
        real = token < len(out)
        rows = inter_states[start : start + tile_m][real].float() @ plain(expert).T
        total.index_add_(0, token[real], rows * sorted_weights[start : start + tile_m][real, None])
    out.copy_(total)
    return out


def moe_sorting(topk_ids, topk_weights, num_experts, model_dim, moebuf_dtype, block_size=32):
    s = sort(topk_ids, topk_weights, num_experts, block_size)
    zeroed = torch.zeros(len(topk_ids), model_dim, dtype=moebuf_dtype)
    return s.sorted_ids, s.sorted_weights, s.sorted_expert_ids, s.num_valid_ids, zeroed


def get_padded_M(M):  # noqa: N802  AITER's name
    return 1 << (M - 1).bit_length()


def get_2stage_cfgs(
    token, model_dim, inter_dim, expert, topk, dtype, q_dtype_a, *rest: Any, **others: Any
) -> SimpleNamespace:  # fmt: skip
    """As the bundled table picks for a4w4 and a8w4 at I=384: 32-row blocks, an intermediate quantised and sorted."""
    fp8 = q_dtype_a == torch.float8_e4m3fn
    stages = QuantisedStages(fp8)
    return SimpleNamespace(
        stage1=stages.stage1, stage2=stages.stage2, block_m=32, ksplit=0, run_1stage=False, output_aux=False,
        flat=False, prequant=True, skip_inter_quant=True, fuse_quant="fp8" if fp8 else "fp4",
    )  # fmt: skip


class QuantisedStages:
    """Stage 1 and 2 of a8w4 (rows e4m3fn, gate and up interleaved) or a4w4; the intermediate stays bf16 here."""

    def __init__(self, fp8: bool) -> None:
        self.fp8 = fp8

    def rows(self, values: torch.Tensor, scales: torch.Tensor, sorted_ids: torch.Tensor, tokens: int) -> torch.Tensor:
        """Dequantise each sorted row in use with the scales that lie where AITER reads them; NaN elsewhere."""
        codes, flat = values.view(torch.uint8), scales.view(torch.uint8).flatten()
        width = codes.shape[1] * (1 if self.fp8 else 2)
        token = sorted_ids.long() & 0xFFFFFF
        row = (token < tokens).nonzero()[:, 0]
        address = scale_offset(row.numpy()[:, None], np.arange(width // 32)[None, :], scales.shape[1])
        dequantise = dequantise_mxfp8 if self.fp8 else dequantise_mxfp4
        out = torch.full((len(sorted_ids), width), float("nan"))
        out[row] = dequantise(codes[token[row]], flat[torch.from_numpy(address)])
        return out

    def stage1(
        self, hidden_states, w1, w2, sorted_token_ids, sorted_expert_ids, num_valid_ids, out, topk, *,
        block_m, a1_scale, w1_scale, situ_beta, situ_linear_beta, **others: Any,
    ):  # fmt: skip
        if not hidden_states.view(torch.uint8).any():
            return torch.zeros(len(sorted_token_ids), w1.shape[1] // 2, dtype=torch.bfloat16), torch.empty(0)
        used = int(num_valid_ids[0])
        tokens = int(num_valid_ids[1])
        rows = self.rows(hidden_states, a1_scale, sorted_token_ids[:used], tokens)
        plain = _Plain(w1, w1_scale, gate_up=self.fp8)
        result = torch.full((len(sorted_token_ids), w1.shape[1] // 2), float("nan"), dtype=torch.bfloat16)
        for start, expert in _blocks(sorted_token_ids, sorted_expert_ids, num_valid_ids, block_m):
            gate, up = (rows[start : start + block_m] @ plain(expert).T).chunk(2, dim=1)
            result[start : start + block_m] = situ(gate, up, situ_beta, situ_linear_beta).to(torch.bfloat16)
        return result, torch.empty(0)

    def stage2(
        self, inter_states, w1, w2, sorted_token_ids, sorted_expert_ids, num_valid_ids, out, topk, *,
        w2_scale, a2_scale, block_m, sorted_weights,
    ):  # fmt: skip
        return flydsl_moe_stage2(
            inter_states, w2, sorted_token_ids, sorted_expert_ids, num_valid_ids, out, topk,
            tile_m=block_m, w2_scale=w2_scale, sorted_weights=sorted_weights,
        )  # fmt: skip
