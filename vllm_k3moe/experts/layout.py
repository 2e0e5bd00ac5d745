"""AITER's layouts of MXFP4 expert weights, read backwards: one expert's plain rows out of what vLLM loaded.

Formulas from ROCm/aiter at e4048607a5, aiter/ops/shuffle.py:165 (weights) and :339 (scales). Weights: 16 rows by 64
bytes (128 columns) are 4 runs of 16 bytes per row, the runs outermost. Scales: 32 rows by 8 groups, the bytes of one
lane together. `interleaved` (a8w4): rows alternate, 16 of the gate, 16 of up; otherwise all of the gate come first.
"""

import torch

GROUP = 32  # columns of a scale


def weight_rows(shuffled: torch.Tensor, interleaved: bool = False) -> torch.Tensor:
    """uint8 [N, C] of one expert as stored -> the same by rows, the gate's first; N % 16 == C % 64 == 0."""
    n, c = shuffled.shape
    if interleaved:
        tiles = shuffled.reshape(n // 32, 2, c // 64, 4, 16, 16)
        return tiles.permute(1, 0, 4, 2, 3, 5).reshape(n, c)
    return shuffled.reshape(n // 16, c // 64, 4, 16, 16).permute(0, 3, 1, 2, 4).reshape(n, c)


def scale_rows(shuffled: torch.Tensor, rows: int, interleaved: bool = False) -> torch.Tensor:
    """uint8 of one expert as stored, any shape of rows * G bytes -> uint8 [rows, G]; rows % 32 == G % 8 == 0."""
    groups = shuffled.numel() // rows
    tiles = shuffled.reshape(rows // 32, groups // 8, 4, 16, 2, 2)  # .., group % 4, row % 16, group / 4 % 2, half
    order = (5, 0, 3, 1, 4, 2) if interleaved else (0, 5, 3, 1, 4, 2)
    return tiles.permute(order).reshape(rows, groups)
