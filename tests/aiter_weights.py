"""MXFP4 expert weights, plain and as AITER's a16w4 kernels read them.

A matrix is packed e2m1 codes uint8 [N, K/2], the even column in the low nibble, and scale bytes uint8 [N, K/32].
AITER's layouts, from ROCm/aiter at e4048607a5:
- codes: tiles of 16 rows by 16 bytes, row by row inside, tile after tile along K, then along N
  (aiter/ops/shuffle.py, `shuffle_weight` with layout (16, 16))
- scales: docs/contracts.md's offset of a scale byte, K/32 rounded up to 8 (`shuffle_scale` in the same file)
- w13's rows are all of the gate's, then all of the up projection's
"""

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from vllm_k3moe.reference import dequantise_mxfp4, scale_offset
from vllm_k3moe.shapes import MoEShape

Bytes = NDArray[np.uint8]
Matrix = tuple[Bytes, Bytes]  # codes, scales
POISON = 0xFF  # NaN as a scale

# Each changes what AITER is given, as somebody might by mistake
MISTAKES = ("interleaved", "up first", "unshuffled codes", "unshuffled scales", "swapped nibbles")


def draw(e: int, shape: MoEShape) -> tuple[Matrix, Matrix]:
    """w13 [2I, L] and w2 [L, I] of expert e: all sixteen codes, scales of 2^-9 to 2^-6."""
    rng = np.random.default_rng(e)

    def matrix(n: int, k: int) -> Matrix:
        return rng.integers(0, 256, (n, k // 2), np.uint8), rng.integers(118, 122, (n, k // 32), np.uint8)

    return matrix(2 * shape.inter, shape.latent), matrix(shape.latent, shape.inter)


def dense(shape: MoEShape) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    """The oracle's `expert_weights` of the same experts; bf16 holds every value exactly."""

    @cache
    def of(e: int) -> tuple[torch.Tensor, torch.Tensor]:
        w13, w2 = (dequantise_mxfp4(*map(torch.from_numpy, matrix)).bfloat16() for matrix in draw(e, shape))
        return w13, w2

    return of


def shuffle_codes(codes: Bytes) -> Bytes:
    """[N, K/2] -> the same bytes in AITER's order, flat."""
    n, width = codes.shape
    return codes.reshape(n // 16, 16, width // 16, 16).swapaxes(1, 2).reshape(-1)


def shuffle_scales(scales: Bytes) -> Bytes:
    """[N, G] -> flat [N * G rounded up to 8], N a multiple of 32; the groups from G on are poison."""
    n, groups = scales.shape
    padded = -(-groups // 8) * 8
    out = np.full(n * padded, POISON, np.uint8)
    out[scale_offset(np.arange(n)[:, None], np.arange(groups)[None, :], padded)] = scales
    return out


def _rows(matrix: Matrix, order: NDArray[np.int64]) -> Matrix:
    return matrix[0][order], matrix[1][order]


def arrange(w13: Matrix, w2: Matrix, mistake: str = "") -> tuple[Matrix, Matrix]:
    """Both matrices of an expert in AITER's layout, or in one that a mistake would give."""
    inter = len(w13[0]) // 2
    gate, up = np.arange(inter), np.arange(inter, 2 * inter)
    if mistake == "interleaved":  # 16 rows of the gate, 16 of the up projection, and so on: a8w4's layout
        w13 = _rows(w13, np.stack([gate.reshape(-1, 16), up.reshape(-1, 16)], axis=1).reshape(-1))
    if mistake == "up first":
        w13 = _rows(w13, np.concatenate([up, gate]))

    def one(codes: Bytes, scales: Bytes) -> Matrix:
        if mistake == "swapped nibbles":
            codes = codes >> np.uint8(4) | codes << np.uint8(4)
        padding = ((0, 0), (0, -scales.shape[1] % 8))
        return (
            codes.reshape(-1) if mistake == "unshuffled codes" else shuffle_codes(codes),
            np.pad(scales, padding, mode="edge").reshape(-1)
            if mistake == "unshuffled scales"
            else shuffle_scales(scales),
        )

    return one(*w13), one(*w2)


def tensors(experts: Iterable[int], shape: MoEShape, mistake: str = "") -> tuple[Matrix, Matrix]:
    """w13 and w2 of all E experts, of which those of `experts` are filled in.

    The rest is address space: 1.9 GB for K3, of which the system gives memory only where something is written.
    """

    def empty(n: int, k: int) -> Matrix:
        groups = -(-k // 256) * 8
        return np.zeros((shape.experts, n * k // 2), np.uint8), np.zeros((shape.experts, n * groups), np.uint8)

    out = empty(2 * shape.inter, shape.latent), empty(shape.latent, shape.inter)
    for e in experts:
        for whole, part in zip(out, arrange(*draw(e, shape), mistake), strict=True):
            whole[0][e], whole[1][e] = part
    return out
