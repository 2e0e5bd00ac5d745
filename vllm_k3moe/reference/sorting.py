"""Sorting: AITER's expert-blocked order of (token, slot) pairs."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Sorted:
    """The valid region of AITER's sort products, nothing more."""

    sorted_ids: torch.Tensor  # int32 [R]: slot << 24 | token; padding K << 24 | M
    sorted_weights: torch.Tensor  # fp32 [R]; padding 0
    sorted_expert_ids: torch.Tensor  # int32 [R / block]: the expert of each block of rows
    num_valid_ids: torch.Tensor  # int32 [2]: R, a multiple of block, and M


def sort(ids: torch.Tensor, weights: torch.Tensor, num_experts: int, block: int) -> Sorted:
    """Lay the pairs of a routing out in blocks of `block` rows, each of one expert.

    ids int32 [M, K], distinct in a row; weights fp32 [M, K]. Experts ascend, pairs of one expert keep token order,
    each expert fills whole blocks, and an expert without pairs takes none. ValueError for an id outside [0, E).
    """
    m, k = ids.shape
    expert = ids.numpy().ravel()  # pair p is (token p // k, slot p % k)
    if expert.size and not 0 <= expert.min() <= expert.max() < num_experts:
        raise ValueError(f"ids reach from {expert.min()} to {expert.max()}; accepted: 0 to {num_experts - 1}")

    pair = np.argsort(expert, kind="stable")
    pairs_of = np.bincount(expert, minlength=num_experts)
    blocks_of = -(-pairs_of // block)
    first_pair = np.cumsum(pairs_of) - pairs_of
    first_row = (np.cumsum(blocks_of) - blocks_of) * block
    row = first_row[expert[pair]] + np.arange(m * k) - first_pair[expert[pair]]

    rows = int(blocks_of.sum()) * block
    sorted_ids = np.full(rows, k << 24 | m, np.int32)
    sorted_ids[row] = (pair % k) << 24 | pair // k
    sorted_weights = np.zeros(rows, np.float32)
    sorted_weights[row] = weights.numpy().ravel()[pair]
    sorted_expert_ids = np.repeat(np.arange(num_experts, dtype=np.int32), blocks_of)
    return Sorted(
        torch.from_numpy(sorted_ids),
        torch.from_numpy(sorted_weights),
        torch.from_numpy(sorted_expert_ids),
        torch.tensor([rows, m], dtype=torch.int32),
    )


def max_blocks(num_tokens: int, k: int, num_experts: int, block: int) -> int:
    """Blocks that no routing of N = M * K pairs to E experts exceeds.

    An expert with c > 0 pairs takes 1 + (c - 1) // block blocks: its first pair opens one, and each further `block`
    pairs at most one more. With u <= min(N, E) experts in use that is at most u + (N - u) // block, which grows with
    u. So N while N <= E (a block per pair), else E + (N - E) // block. The bound is reached unless the cap of M pairs
    per expert forbids it: (N - E) // block further blocks need room for them, at most (M - 1) // block per expert.
    """
    pairs = num_tokens * k
    return pairs if pairs <= num_experts else num_experts + (pairs - num_experts) // block
