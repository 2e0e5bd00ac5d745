"""One test of an instruction: its assembly, how its operands are drawn, and the NumPy oracle that does the same.

`vector(asm, out, into, function)` makes the case of a vector instruction from a function on whole registers: `out` and
`into` give the types of the operands in the order in which the assembly names them. The function sees one value per
lane; modifiers, EXEC and the write-back are done here.

| type | operand |
|---|---|
| `u` `i` `f` | 32 bits: unsigned, signed, float |
| `U` `I` | 64 bits in two registers |
| `P` | two floats in two registers, shape (2, 64), op_sel and neg applied |
| `m` | one bit a lane, in two SGPRs |
| `+` | the old destination as a float; no operand of its own |
| `c` | VCC, one bit a lane; no operand of its own |
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import instruction_lanes as lanes
from instruction_form import parse, sign
from one_instruction import EXEC, LANES, VCC, State

TYPES = {"u": np.uint32, "i": np.int32, "f": np.float32, "U": np.uint64, "I": np.int64}
# fmt: off
INTEGERS = np.array((
    0, 1, 2, 5, 15, 16, 31, 32, 33, 63, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000,
    0xFFFFFF, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFF8000, 0xFFFFFF80, 0xFFFFFFFE, 0xFFFFFFFF,
), np.uint32)
FLOATS = np.array((  # of either sign: zero, denormals, near 1, around 2^31 and 2^32, the largest, infinity, NaNs
    0, 0, 0, 0, 1, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x33800000, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001,
    0x3FC00000, 0x40200000, 0x4B7FFFFF, 0x4EFFFFFF, 0x4F000000, 0x4F7FFFFF, 0x4F800000, 0x7F000000, 0x7F7FFFFF,
    0x7F800000, 0x7FC00000, 0x7FC12345, 0x7F800001,
), np.uint32)
# fmt: on


class Case(NamedTuple):
    asm: str
    oracle: Callable[[State], None]
    prepare: Callable[[State, np.random.Generator], None] = lambda state, rng: None
    floats: bool = False


def draw(kind: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """Edge values, random bits and, for floats, numbers close enough to one another to be rounded when added."""
    edges = FLOATS if kind in "fP+" else INTEGERS
    values = np.where(rng.random(size) < 0.5, rng.choice(edges, size), rng.integers(0, 1 << 32, size, dtype=np.uint32))
    if kind in "fP+":
        near = (rng.standard_normal(size) * 4.0 ** rng.integers(-6, 6, size)).astype(np.float32).view(np.uint32)
        values = np.where(rng.random(size) < 0.4, near, values ^ (rng.integers(0, 2, size, dtype=np.uint32) << 31))
    return values.astype(np.uint32)


def register(operand: str) -> tuple[str, int]:
    """The file and the number of the first register; "" for a constant."""
    operand = re.sub(r"^-|\||^sext\(|\)$", "", operand)
    if operand in ("vcc", "exec"):
        return "s", VCC if operand == "vcc" else EXEC
    match = re.match(r"([vs])\[?(\d+)", operand)
    return (match[1], int(match[2])) if match else ("", 0)


def constant(operand: str) -> int:
    if "." in operand:
        return int(np.float32(operand).view(np.uint32))
    return int(operand, 0) & 0xFFFFFFFF


def words(state: State, operand: str) -> np.ndarray:
    """A source's first and second register for each lane; a constant fills the first alone."""
    file, number = register(operand)
    if file == "v":
        return state.v[number : number + 2].copy()
    pair = state.s[number : number + 2] if file else np.array([constant(operand), 0], np.uint32)
    return np.repeat(pair[:, None], LANES, axis=1)


def choose(modifiers: list[str], name: str, default: int) -> list[int]:
    """op_sel and the like, one for each source."""
    found = [re.findall(r"\d", m.partition(":")[2]) for m in modifiers if m.startswith(name + ":")]
    return [int(n) for n in found[0]] if found else [default] * 3


def source(state: State, operand: str, kind: str, index: int, modifiers: list[str]) -> np.ndarray:
    if kind == "m":
        return state.lanes(register(operand)[1])
    both = words(state, operand)
    if kind in "UI":
        return (both[0].astype(np.uint64) | both[1].astype(np.uint64) << np.uint64(32)).view(TYPES[kind])
    if kind == "P":
        low, high = (choose(modifiers, name, d)[index] for name, d in (("op_sel", 0), ("op_sel_hi", 1)))
        flip = [choose(modifiers, name, 0)[index] for name in ("neg_lo", "neg_hi")]
        return (both[[low, high]] ^ np.array(flip, np.uint32)[:, None] << 31).view(np.float32)
    value = lanes.signed(sign(operand), both[0]) if kind == "f" else both[0]
    for selection in (m for m in modifiers if m.startswith(f"src{index}_sel:")):
        value = lanes.sdwa(selection.partition(":")[2], value, sign(operand) == "sext")
    return value.view(TYPES[kind])


def write(state: State, operand: str, kind: str, value: np.ndarray, active: np.ndarray) -> None:
    _, number = register(operand)
    if kind == "m":
        state.set_lanes(number, np.asarray(value) & state.exec)
        return
    if kind == "P":
        value = np.stack([np.asarray(value[0], np.float32), np.asarray(value[1], np.float32)]).view(np.uint32)
    elif kind in "UI":
        value = np.asarray(value).astype(TYPES[kind]).view(np.uint32).reshape(LANES, 2).T
    else:
        value = np.asarray(value).astype(TYPES[kind]).view(np.uint32)[None]
    state.v[number : number + len(value)] = np.where(active, value, state.v[number : number + len(value)])


def vector(asm: str, out: str, into: str, function: Callable) -> Case:
    _, operands, modifiers = parse(asm)
    results, sources = operands[: len(out)], operands[len(out) :]
    assert len(sources) == len(re.sub("[+c]", "", into)), asm

    def prepare(state: State, rng: np.random.Generator) -> None:
        for operand, kind in zip([*sources, *results[:1]], into, strict=False):
            file, number = register(operand)
            for n in range(number, number + (2 if kind in "UIP" else 1)):
                if file == "v":
                    state.v[n] = draw(kind, LANES, rng)
                elif file == "s" and kind not in "mc":
                    state.s[n] = draw(kind, 1, rng)[0]
        # Now and then the second source is the first, or its negative
        if len(into) > 1 and into[0] == into[1] and {register(o)[0] for o in sources[:2]} == {"v"}:
            first, second = (register(o)[1] for o in sources[:2])
            same = rng.random(LANES) < 0.25
            for n in range(2 if into[0] in "UIP" else 1):
                flip = rng.integers(0, 2, LANES, dtype=np.uint32) << 31 if into[0] in "fP" else 0
                state.v[second + n, same] = (state.v[first + n] ^ flip)[same]

    def oracle(state: State) -> None:
        values = [source(state, o, k, i, modifiers) for i, (o, k) in enumerate(zip(sources, into, strict=False))]
        if "+" in into:
            values.append(state.v[register(results[0])[1]].view(np.float32).copy())
        if "c" in into:
            values.append(state.lanes(VCC))
        active = state.exec
        if "_dpp" in asm:
            values[0], written = lanes.dpp(modifiers, values[0], active)
            active = active & written
        with np.errstate(all="ignore"):
            result = function(*values)
        for operand, kind, value in zip(results, out, result if len(out) > 1 else [result], strict=True):
            write(state, operand, kind, value, active)

    return Case(asm, oracle, prepare, floats=out[0] in "fP")
