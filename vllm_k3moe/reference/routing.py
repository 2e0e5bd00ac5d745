"""Routing: sigmoid, correction bias, top-k, renormalise.

The ideal fp32 path: sigmoid in fp64, rounded once to fp32 (and to 0 below the smallest normal fp32), plus the bias in
fp32. Experts rank by that fp32 score, so logits 40 and 100, whose sigmoids are both 1.0f, tie. Higher scores come
first, ties go to the lower id, -0.0 equals +0.0, NaN ranks below -inf. Weights are s / sum(s) * scaling in fp64,
rounded once; one that would be NaN or divide by 0 is 0.
"""

import numpy as np
import torch
from numpy.typing import NDArray

_SMALLEST_NORMAL = 2.0**-126  # of fp32
_INFINITE, _NAN = 1e300, -1e301  # stand-ins for +-inf and NaN that fp64 can subtract and compare


def _sigmoid(logits: torch.Tensor) -> NDArray[np.float64]:
    """fp64 [M, E]; 0 where it rounds to less than the smallest normal fp32, NaN where the logit is."""
    s = torch.sigmoid(logits.to(torch.float64)).numpy()
    return np.where(s.astype(np.float32) < _SMALLEST_NORMAL, 0.0, s)


def _scores(s: NDArray[np.float64], bias: torch.Tensor) -> NDArray[np.float32]:
    return s.astype(np.float32) + bias.to(torch.float32).numpy()


def _weights(s: NDArray[np.float64], ids: NDArray[np.int64], scaling: float) -> NDArray[np.float64]:
    chosen = np.nan_to_num(np.take_along_axis(s, ids, axis=1), nan=0.0)
    total = chosen.sum(axis=1, keepdims=True)
    return np.divide(chosen, total, out=np.zeros_like(chosen), where=total > 0) * scaling


def route(logits: torch.Tensor, bias: torch.Tensor, k: int, scaling: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """The k experts of every token and their weights, in falling order of score.

    logits fp32|bf16 [M, E], any row stride; bias fp32|bf16 [E].
    Returns ids int32 [M, k], distinct in a row whatever the logits hold, and weights fp32 [M, k].
    """
    s = _sigmoid(logits)
    score = _scores(s, bias)
    nan = np.isnan(score)
    # lexsort takes its main key last and is stable: first the numbers, the larger ahead, then by id
    ids = np.lexsort((np.where(nan, 0, -score), nan), axis=1)[:, :k]
    weights = _weights(s, ids, scaling)
    return torch.from_numpy(ids.astype(np.int32)), torch.from_numpy(weights.astype(np.float32))


def routing_faults(
    ids: torch.Tensor,
    weights: torch.Tensor,
    logits: torch.Tensor,
    bias: torch.Tensor,
    scaling: float = 1.0,
    gap_ulp: float = 8,
    weight_ulp: float = 4,
) -> list[str]:
    """What is wrong with a device's routing, one line per kind of fault naming its first place; empty if nothing is.

    ids int32 [M, K] and weights fp32 [M, K] as the device gave them for logits [M, E] and bias [E]; all on CPU.

    A device's sigmoid differs from the ideal one in its last bits. So an expert must precede another only where its
    score is larger by more than `gap_ulp` fp32 ulp, inside the K and across their border alike, or where the two tie
    on every device: same logit and bias, the same infinity, or both NaN; then the lower id goes first.
    Weights are compared for the ids GIVEN, with fp64, to `weight_ulp` fp32 ulp.
    """
    (m, e), k = logits.shape, ids.shape[-1]
    if ids.shape != (m, k) or weights.shape != (m, k) or not 1 <= k <= e:
        return [f"shapes: ids {tuple(ids.shape)}, weights {tuple(weights.shape)} for logits {(m, e)}"]
    if (ids.dtype, weights.dtype) != (torch.int32, torch.float32):
        return [f"dtypes: got {ids.dtype}, {weights.dtype}, expected int32, float32"]
    got, got_weights = ids.numpy().astype(np.int64), weights.numpy()

    stray = (got < 0) | (got >= e)
    if stray.any():
        token, slot = np.argwhere(stray)[0]
        return [f"range: token {token} slot {slot}: got expert {got[token, slot]}, expected one of 0..{e - 1}"]
    seen_before = (got[:, :, None] == got[:, None, :]) & np.tri(k, k=-1, dtype=bool)
    if seen_before.any():
        token, slot, first = np.argwhere(seen_before)[0]
        return [f"distinct: token {token} slot {slot}: got expert {got[token, slot]} again, as in slot {first}"]
    s = _sigmoid(logits)
    return _order_faults(got, s, logits, bias, gap_ulp) + _weight_faults(
        got_weights, _weights(s, got, scaling), weight_ulp
    )


def _order_faults(
    got: NDArray[np.int64], s: NDArray[np.float64], logits: torch.Tensor, bias: torch.Tensor, gap_ulp: float
) -> list[str]:
    score = _scores(s, bias)
    finite = np.isfinite(score)
    # A score is as uncertain as its sigmoid, which a bias near -s leaves far larger than the score itself. Where the
    # score is infinite or NaN nothing is uncertain.
    size = np.where(finite, np.maximum(np.abs(score), s.astype(np.float32)), 1)
    slack = np.where(finite, gap_ulp * np.spacing(size.astype(np.float32)), 0.0)
    value = np.nan_to_num(score.astype(np.float64), nan=_NAN, posinf=_INFINITE, neginf=-_INFINITE)
    logit_key = np.where(finite, logits.to(torch.float64).numpy(), 0.0)
    bias_key = np.where(finite, bias.to(torch.float64).numpy(), value)

    def beside(per_expert: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """[M, 1, E] and, for the expert in each slot, [M, K, 1]."""
        return per_expert[:, None, :], np.take_along_axis(per_expert, got, axis=1)[:, :, None]

    other, here = beside(value)
    other_slack, here_slack = beside(slack)
    ahead = (other - other_slack > here) & (other > here + here_slack)  # a gap above the larger of the two slacks
    other_logit, here_logit = beside(logit_key)
    other_bias, here_bias = beside(bias_key)
    tied = (other_logit == here_logit) & (other_bias == here_bias)
    expert, slots = np.arange(score.shape[1]), np.arange(got.shape[1])
    ahead |= tied & (expert < got[:, :, None])

    slot_of = np.full(score.shape, got.shape[1])  # of every expert; the number of slots where it was not chosen
    np.put_along_axis(slot_of, got, np.broadcast_to(slots, got.shape), axis=1)
    wrong = ahead & (slot_of[:, None, :] > slots[:, None])
    if not wrong.any():
        return []
    token, slot = np.argwhere(wrong.any(axis=2))[0]
    want = max(np.flatnonzero(wrong[token, slot]), key=lambda i: (value[token, i], -i))
    have = got[token, slot]
    return [
        f"order: token {token} slot {slot}: got expert {have} (score {score[token, have]!r}), "
        f"expected expert {want} (score {score[token, want]!r}) before it; "
        f"{wrong.any(axis=(1, 2)).sum()} of {len(got)} tokens differ"
    ]


def _weight_faults(got: NDArray[np.float32], want: NDArray[np.float64], weight_ulp: float) -> list[str]:
    ulp = np.spacing(want.astype(np.float32)).astype(np.float64)
    wrong = ~(np.abs(got - want) <= weight_ulp * np.abs(ulp))  # so that NaN is wrong
    if not wrong.any():
        return []
    token, slot = np.argwhere(wrong)[0]
    off = abs(got[token, slot] - want[token, slot]) / abs(ulp[token, slot])
    return [
        f"weight: token {token} slot {slot}: got {got[token, slot]!r}, "
        f"expected {np.float32(want[token, slot])!r}, {off:.1f} ulp off; {wrong.sum()} of {wrong.size} differ"
    ]
