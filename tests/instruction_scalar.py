"""Scalar cases: arithmetic on SGPRs and SCC, loads of kernel arguments, and branches."""

# ruff: noqa: E501  a table, one case a line

from collections.abc import Callable

import numpy as np

from instruction_case import INTEGERS, Case, constant, register
from instruction_form import parse
from one_instruction import EXEC, MEMORY, VCC, State

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def _wide(operand: str) -> bool:
    return operand in ("vcc", "exec") or "[" in operand


def _signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> bits - 1 else x


def _read(state: State, operand: str) -> int:
    file, number = register(operand)
    if not file:
        return constant(operand)
    return state.pair(number) if _wide(operand) else int(state.s[number])


def scalar(asm: str, function: Callable) -> Case:
    """function(sources..., scc) gives the result, or None for none, and SCC, or None where it stays as it was."""
    name, operands, _ = parse(asm)
    result, sources = operands[0], operands[1:]
    if name.startswith(("s_cmp", "s_bitcmp")) or name in ("s_addk_i32", "s_mulk_i32", "s_bitset1_b32"):
        sources = operands

    def prepare(state: State, rng: np.random.Generator) -> None:
        for operand in sources:
            file, number = register(operand)
            for n in range(number, number + 1 + _wide(operand)) if file else ():
                if rng.random() < 0.6:
                    state.s[n] = rng.choice(INTEGERS)
        if len(sources) == 2 and rng.random() < 0.3:  # equal ones
            (_, a), (file, b) = register(sources[0]), register(sources[1])
            if file:
                state.s[b : b + 2] = state.s[a : a + 2]

    def oracle(state: State) -> None:
        value, scc = function(*(_read(state, operand) for operand in sources), state.scc)
        _, number = register(result)
        if value is not None and _wide(result):
            state.set_pair(number, value)
        elif value is not None:
            state.s[number] = value & M32
        state.scc = state.scc if scc is None else int(scc)

    return Case(asm, oracle, prepare)


def _logic(operation: Callable, bits: int = 32) -> Callable:
    """The result, and whether it is anything but 0."""

    def function(*arguments: int) -> tuple[int, bool]:
        value = operation(*arguments[:-1]) & (1 << bits) - 1
        return value, value != 0

    return function


def _overflow(operation: Callable) -> Callable:
    def function(a: int, b: int, _: int) -> tuple[int, bool]:
        value = operation(_signed(a), _signed(b))
        return value, value != _signed(value)

    return function


def _field(x: int, where: int, signed: bool) -> int:
    offset, width = where & 31, where >> 16 & 127
    value = (_signed(x) if signed else x) >> offset
    return _signed(value, width) if signed and 0 < width < 32 else value & (1 << width) - 1


def _quiet(operation: Callable) -> Callable:
    """Leaves SCC alone."""
    return lambda *arguments: (operation(*arguments[:-1]), None)


def _compare(operation: Callable, signed: bool) -> Callable:
    return lambda a, b, _: (None, operation(*((_signed(a), _signed(b)) if signed else (a, b))))


_RELATIONS: dict[str, Callable] = {
    "eq": int.__eq__, "lg": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__,
}  # fmt: skip


def _save_exec(state: State) -> None:
    old = state.pair(EXEC)
    new = state.pair(2) & old
    state.set_pair(8, old)
    state.set_pair(EXEC, new)
    state.scc = int(new != 0)


ARITHMETIC = (
    *(scalar(f"s_{name}_b32 s8, s1, {b}", _logic(f)) for b in ("s2", "15", "0x7f00ff") for name, f in (
        ("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__), ("lshl", lambda a, b: a << (b & 31)), ("lshr", lambda a, b: a >> (b & 31)),
    )),
    *(scalar(f"s_{name}_b64 {operands}", _logic(f, 64)) for operands in ("s[8:9], s[2:3], vcc", "vcc, exec, s[2:3]")
      for name, f in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__), ("andn2", lambda a, b: a & ~b))),
    scalar("s_andn2_b64 exec, exec, s[2:3]", _logic(lambda a, b: a & ~b, 64)),
    scalar("s_lshl_b64 s[8:9], s[2:3], s4", _logic(lambda a, b: a << (b & 63), 64)),
    scalar("s_ashr_i32 s8, s1, s2", _logic(lambda a, b: _signed(a) >> (b & 31))),
    scalar("s_add_i32 s8, s1, s2", _overflow(int.__add__)),
    scalar("s_sub_i32 s8, s1, s2", _overflow(int.__sub__)),
    scalar("s_addk_i32 s8, 0x7fff", _overflow(int.__add__)),
    scalar("s_bitset1_b32 s8, s1", _quiet(lambda a, b: a | 1 << (b & 31))),
    scalar("s_mulk_i32 s8, 0x381", _quiet(lambda a, b: a * b)),
    scalar("s_mul_i32 s8, s1, s2", _quiet(lambda a, b: a * b)),
    scalar("s_mul_hi_i32 s8, s1, s2", _quiet(lambda a, b: _signed(a) * _signed(b) >> 32)),
    scalar("s_mul_hi_u32 s8, s1, s2", _quiet(lambda a, b: a * b >> 32)),
    scalar("s_abs_i32 s8, s1", _logic(lambda a: abs(_signed(a)))),
    scalar("s_bfe_u32 s8, s1, s2", _logic(lambda a, b: _field(a, b, False))),
    scalar("s_bfe_u32 s8, s1, 0x50003", _logic(lambda a, b: _field(a, b, False))),
    scalar("s_bfe_i32 s8, s1, s2", _logic(lambda a, b: _field(a, b, True))),
    scalar("s_bfe_i32 s8, s1, 0x50003", _logic(lambda a, b: _field(a, b, True))),
    scalar("s_sext_i32_i16 s8, s1", _quiet(lambda a: _signed(a, 16))),
    scalar("s_brev_b32 s8, s1", _quiet(lambda a: int(f"{a:032b}"[::-1], 2))),
    *(scalar(f"s_lshl{n}_add_u32 s8, s1, s2", lambda a, b, _, n=n: (total := (a << n) + b, total > M32)) for n in range(1, 5)),
    scalar("s_cselect_b32 s8, s1, s2", lambda a, b, scc: (a if scc else b, None)),
    scalar("s_cselect_b64 s[8:9], s[2:3], s[4:5]", lambda a, b, scc: (a if scc else b, None)),
    scalar("s_cselect_b64 vcc, -1, 0", lambda a, b, scc: (M64 if scc else 0, None)),
    scalar("s_mov_b32 s8, s1", _quiet(lambda a: a)),
    scalar("s_mov_b32 s8, 0x12345678", _quiet(lambda a: a)),
    scalar("s_mov_b64 vcc, s[2:3]", _quiet(lambda a: a)),
    scalar("s_mov_b64 s[8:9], -1", _quiet(lambda a: M64)),
    scalar("s_movk_i32 s8, 0x8000", _quiet(lambda a: _signed(a, 16))),
    *(scalar(f"s_cmp_{r}_{t}32 s1, {b}", _compare(f, t == "i")) for r, f in _RELATIONS.items() for t in "iu" for b in ("s2", "5")),
    *(scalar(f"s_cmpk_{r}_i32 s1, 0x8000", _compare(lambda a, b, f=f: f(a, _signed(b, 16)), True)) for r, f in _RELATIONS.items()),
    *(scalar(f"s_cmpk_{r}_u32 s1, 0x8000", _compare(f, False)) for r, f in _RELATIONS.items()),
    scalar("s_bitcmp0_b32 s1, s2", lambda a, b, _: (None, not a >> (b & 31) & 1)),
    scalar("s_bitcmp1_b32 s1, 31", lambda a, b, _: (None, a >> (b & 31) & 1)),
    Case("s_and_saveexec_b64 s[8:9], s[2:3]", _save_exec),
)  # fmt: skip


def _branch(condition: str, taken: Callable[[State], bool]) -> Case:
    """A branch over a move: the move shows whether it was taken."""

    def prepare(state: State, rng: np.random.Generator) -> None:
        for mask in (VCC, EXEC):
            if rng.random() < 0.5:
                state.set_pair(mask, int(rng.choice([0, 1 << 31, 1 << 63])))

    def oracle(state: State) -> None:
        if not taken(state):
            state.s[8] = 1

    return Case(f"s_{condition} 1\ns_mov_b32 s8, 1", oracle, prepare)


BRANCHES = (
    _branch("branch", lambda state: True),
    _branch("cbranch_scc0", lambda state: not state.scc),
    _branch("cbranch_scc1", lambda state: bool(state.scc)),
    _branch("cbranch_vccz", lambda state: state.pair(VCC) == 0),
    _branch("cbranch_vccnz", lambda state: state.pair(VCC) != 0),
    _branch("cbranch_execz", lambda state: state.pair(EXEC) == 0),
    _branch("cbranch_execnz", lambda state: state.pair(EXEC) != 0),
)


def _load(words: int) -> Case:
    def prepare(state: State, rng: np.random.Generator) -> None:
        state.set_pair(4, MEMORY.ctypes.data)

    def oracle(state: State) -> None:
        state.s[16 : 16 + words] = state.memory.view(np.uint32)[0x40 // 4 :][:words]

    suffix, last = ("", "s16") if words == 1 else (f"x{words}", f"s[16:{15 + words}]")
    return Case(f"s_load_dword{suffix} {last}, s[4:5], 0x40", oracle, prepare)


LOADS = tuple(_load(words) for words in (1, 2, 4, 8))
