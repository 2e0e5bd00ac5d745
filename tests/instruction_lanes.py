"""What the modifiers of a vector instruction do to its operands, in NumPy: signs, DPP, SDWA."""

import re

import numpy as np

LANE = np.arange(64)
ROW, IN_ROW = LANE // 16, LANE % 16


def _dpp_source(control: str) -> np.ndarray:
    """The lane that each lane reads; -1: none."""
    name, _, value = control.partition(":")
    if name == "quad_perm":
        return LANE // 4 * 4 + np.array([int(n) for n in re.findall(r"\d", value)])[LANE % 4]
    if name == "row_half_mirror":
        return LANE ^ 7
    if name == "row_mirror":
        return LANE ^ 15
    n = int(value)
    if name == "row_shr":
        return np.where(n <= IN_ROW, LANE - n, -1)
    if name == "row_shl":
        return np.where(IN_ROW + n < 16, LANE + n, -1)
    if name == "row_ror":
        return ROW * 16 + (IN_ROW - n) % 16
    if name == "row_bcast" and n == 15:  # the last lane of each row, to the row behind it
        return np.where(ROW > 0, ROW * 16 - 1, -1)
    if name == "row_bcast" and n == 31:  # lane 31, to the upper half
        return np.where(ROW > 1, 31, -1)
    raise ValueError(control)


def dpp(modifiers: list[str], values: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The permuted source, and the lanes that may be written.

    A lane without a source (outside of its row, or inactive) keeps its destination, or with bound_ctrl reads 0.
    """
    flags = {key: int(value, 0) for key, _, value in (m.partition(":") for m in modifiers) if key.endswith("_mask")}
    [control] = [m for m in modifiers if not m.startswith(("row_mask", "bank_mask", "bound_ctrl"))]
    source = _dpp_source(control)
    valid = (source >= 0) & active[source]
    enabled = (flags["row_mask"] >> ROW & 1 == 1) & (flags["bank_mask"] >> IN_ROW // 4 & 1 == 1)
    # LLVM spells the bit bound_ctrl:1; assemblers of old wrote bound_ctrl:0 for the same bit
    zero_fill = any(m.startswith("bound_ctrl") for m in modifiers)
    return np.where(valid, values[source], 0).astype(values.dtype), enabled & (valid | zero_fill)


def sdwa(selection: str, values: np.ndarray, signed: bool) -> np.ndarray:
    """A byte or word of each lane, extended to 32 bits."""
    if selection == "DWORD":
        return values
    kind, index = selection.split("_")
    bits = {"BYTE": 8, "WORD": 16}[kind]
    part = values >> np.uint32(int(index) * bits) & np.uint32((1 << bits) - 1)
    if signed:
        part = part.astype({8: np.uint8, 16: np.uint16}[bits]).view({8: np.int8, 16: np.int16}[bits])
        return part.astype(np.int32).view(np.uint32)
    return part


def signed(mark: str, values: np.ndarray) -> np.ndarray:
    """Source modifiers |x| and -x, on the bits of a float."""
    if "|" in mark:
        values = values & np.uint32(0x7FFFFFFF)
    if "-" in mark:
        values = values ^ np.uint32(0x80000000)
    return values
