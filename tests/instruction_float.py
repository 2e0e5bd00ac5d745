"""Single-precision arithmetic of the device in NumPy, where NumPy has no function for it or another rule."""

import numpy as np


def _fma_to_odd(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c as a double whose last bit is set where it is not exact: safe to round again, to fewer bits."""
    product, addend = a.astype(np.float64) * b, np.broadcast_to(c, np.shape(a)).astype(np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    inexact = np.isfinite(total) & (error != 0) & (total.view(np.uint64) & np.uint64(1) == 0)
    return np.where(inexact, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c, rounded once."""
    return _fma_to_odd(a, b, c).astype(np.float32)


def _is_signalling(x: np.ndarray) -> np.ndarray:
    return np.isnan(x) & (x.view(np.uint32) & np.uint32(0x400000) == 0)


def _order(x: np.ndarray) -> np.ndarray:
    """An integer that sorts as the number does, -0 below +0."""
    bits = x.view(np.int32)
    return bits ^ (bits >> 31 & np.int32(0x7FFFFFFF))


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger; of a quiet NaN and a number the number, of a signalling NaN (IEEE mode) a NaN."""
    larger = np.where(_order(a) > _order(b), a, b)
    numbers = np.where(np.isnan(a), b, np.where(np.isnan(b), a, larger))
    return np.where(_is_signalling(a) | _is_signalling(b), np.float32(np.nan), numbers)


def median(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The one in the middle; with a NaN among them the smallest number."""
    three = np.stack(np.broadcast_arrays(a, b, c))
    order = np.argsort(np.where(np.isnan(three), np.int32(0x7FFFFFFF), _order(three)), axis=0)
    ranked = np.take_along_axis(three, order, axis=0)
    return np.where(np.isnan(three).any(axis=0), ranked[0], ranked[1])


def to_int(x: np.ndarray) -> np.ndarray:
    """Towards zero, into the range, NaN to 0."""
    return np.clip(np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0)), -(2.0**31), 2.0**31 - 1).astype(np.int32)


def to_unsigned(x: np.ndarray) -> np.ndarray:
    """The same for 0 to 2^32 - 1."""
    return np.clip(np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0)), 0, 2.0**32 - 1).astype(np.uint32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Bits of the nearest of the two neighbours that truncation and the next step away from 0 give; ties to even."""
    bits = x.view(np.uint32)
    low, high = bits >> 16, (bits >> 16) + 1
    below, above = ((n << 16).astype(np.uint32).view(np.float32).astype(np.float64) for n in (low, high))
    above = np.where(np.isinf(above), np.copysign(2.0**128, above), above)  # what would come next if infinity did not
    near, far = np.abs(x - below), np.abs(above - x)
    up = (far < near) | ((far == near) & (low % 2 == 1))
    return np.where(np.isnan(x), low | 0x40, np.where(up & np.isfinite(x), high, low)).astype(np.uint32)


def div_fixup(quotient: np.ndarray, denominator: np.ndarray, numerator: np.ndarray) -> np.ndarray:
    """The quotient with the right sign, what n / d is by definition, or 0 where that is far below the denormals."""
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    exact = numerator / denominator
    special = ~(np.isfinite(numerator) & np.isfinite(denominator) & (numerator != 0) & (denominator != 0))
    exponent = [(x.view(np.uint32) >> 23 & 255).astype(np.int32) for x in (numerator, denominator)]
    tiny = exponent[0] - exponent[1] < -150
    number = np.where(tiny, np.float32(0), np.where(np.isnan(quotient), np.float32(np.inf), quotient))
    return np.where(special, exact, np.copysign(number, exact))


def div_scale(operand: np.ndarray, denominator: np.ndarray, numerator: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An operand of a division as it is, or times 2^64 or 2^-64, and whether div_fmas must undo it."""
    n, d = (np.asarray(x, np.float32) for x in np.broadcast_arrays(numerator, denominator))
    wide, tiny = n.astype(np.float64) / d, 2.0**-126
    en, ed = ((x.view(np.uint32) >> 23 & 255).astype(np.int32) for x in (n, d))
    is_d, is_n = operand.view(np.uint32) == d.view(np.uint32), operand.view(np.uint32) == n.view(np.uint32)
    small_reciprocal, small_quotient = (ed >= 253) & (ed != 255), (np.abs(wide) < tiny) & (en != 255) & (ed != 255)
    rules: list[tuple] = [
        ((n == 0) | (d == 0), np.nan, False),
        (en - ed >= 96, np.where(is_d, 2.0**64, 1), True),
        (ed == 0, 2.0**64, False),
        (small_reciprocal & small_quotient, np.where(is_d, 2.0**-64, 1), True),
        (small_reciprocal, 2.0**-64, False),
        (small_quotient, np.where(is_n, 2.0**64, 1), True),
        (en <= 23, 2.0**64, False),
    ]
    factor = np.select([rule[0] for rule in rules], [rule[1] for rule in rules], 1)
    undo = np.select([rule[0] for rule in rules], [rule[2] for rule in rules], False)
    return (operand.astype(np.float64) * factor).astype(np.float32), undo


def div_fmas(a: np.ndarray, b: np.ndarray, c: np.ndarray, undo: np.ndarray) -> np.ndarray:
    """fma, times 2^64 or 2^-64 in the lanes that div_scale marked, rounded once after that."""
    exponent = np.broadcast_to(c, np.shape(a)).view(np.uint32) >> 23 & 255
    return (_fma_to_odd(a, b, c) * np.where(undo, np.where(exponent > 127, 2.0**64, 2.0**-64), 1)).astype(np.float32)
