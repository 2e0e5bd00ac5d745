"""Cases that move data: LDS, global memory by buffers and by addresses, and between lanes."""

# ruff: noqa: E501  a table, one case a line

import re
from collections.abc import Callable

import numpy as np

from instruction_case import Case
from instruction_form import parse
from one_instruction import LANES, LDS_BYTES, MEMORY, MEMORY_BYTES, State

ADDRESS, DATA, RESULT, DESCRIPTOR = 1, 2, 8, 4  # registers: v1, v[2:5], v[8:11], s[4:7]
VISIBLE = MEMORY_BYTES - 1024  # bytes that the buffer descriptor allows; the rest must stay untouched


def _offset(asm: str, name: str) -> int:
    found = re.search(rf"\b{name}:(\d+)", asm)
    return int(found[1]) if found else 0


def _width(asm: str) -> tuple[int, bool]:
    """Bytes of one access, and whether they are sign-extended."""
    name = parse(asm).name
    for pattern, size in (("b8|byte", 1), ("[ui]8", 1), ("b16|[ui]16|short", 2), ("dwordx4|b128", 16),
                          ("dwordx2|b64", 8), ("dwordx3|b96", 12)):  # fmt: skip
        if re.search(f"_({pattern}|[us](byte|short))(_|$)" if size < 4 else f"_({pattern})$", name):
            if size == 1 and "short" in name:
                continue
            return size, bool(re.search("_i8|_i16|_sbyte|_sshort", name))
    return 4, False


def _aligned_addresses(state: State, rng: np.random.Generator, size: int, room: int) -> None:
    """Different for every lane, so that the order of stores does not matter."""
    slots = rng.permutation(room // size)[:LANES]
    state.v[ADDRESS] = slots.astype(np.uint32) * size


def _get(memory: np.ndarray, at: int, size: int, signed: bool) -> list[int]:
    raw = memory[at : at + size].tobytes()
    if size < 4:
        return [int.from_bytes(raw, "little", signed=signed) & 0xFFFFFFFF]
    return [int(w) for w in np.frombuffer(raw, np.uint32)]


def _put(state: State, memory: np.ndarray, at: int, size: int, register: int, lane: int, shift: int = 0) -> None:
    value = b"".join(int(state.v[register + i, lane]).to_bytes(4, "little") for i in range(max(size // 4, 1)))
    memory[at : at + size] = np.frombuffer(value[shift : shift + size], np.uint8)


def lds(asm: str) -> Case:
    """ds_read, ds_write and their forms with two offsets, which count elements (st64: 64 elements)."""
    name = parse(asm).name
    load, two = "_read" in name, re.search("(read|write)2", name)
    size, signed = _width(asm)
    scale = size * (64 if "st64" in name else 1)
    offsets = [_offset(asm, "offset0") * scale, _offset(asm, "offset1") * scale] if two else [_offset(asm, "offset")]
    words = max(size // 4, 1)

    def prepare(state: State, rng: np.random.Generator) -> None:
        _aligned_addresses(state, rng, size * (2 if two and not load else 1), LDS_BYTES - max(offsets) - size)

    def oracle(state: State) -> None:
        for lane in np.flatnonzero(state.exec):
            for n, offset in enumerate(offsets):
                at = int(state.v[ADDRESS, lane]) + offset
                if load:
                    state.v[RESULT + n * words : RESULT + (n + 1) * words, lane] = _get(state.lds, at, size, signed)
                else:
                    _put(state, state.lds, at, size, DATA + 2 * n, lane, 2 if "d16_hi" in name else 0)

    return Case(asm, oracle, prepare)


def buffer(asm: str) -> Case:
    """Loads beyond the descriptor's size give 0, stores there do nothing."""
    load = "_load" in asm
    size, signed = _width(asm)
    offset = _offset(asm, "offset")

    def prepare(state: State, rng: np.random.Generator) -> None:
        _aligned_addresses(state, rng, size, MEMORY_BYTES - offset - size)
        state.set_pair(DESCRIPTOR, MEMORY.ctypes.data)
        state.s[DESCRIPTOR + 2], state.s[DESCRIPTOR + 3] = VISIBLE, 0x27000
        outside = rng.random(LANES) < 0.2
        state.v[ADDRESS, outside] = rng.choice(np.array([0x80000000, 0xFFFFFFF0, VISIBLE], np.uint32), outside.sum())

    def oracle(state: State) -> None:
        for lane in np.flatnonzero(state.exec):
            at = int(state.v[ADDRESS, lane]) + offset
            inside = at + size <= VISIBLE
            if load:
                words = _get(state.memory, at, size, signed) if inside else [0] * max(size // 4, 1)
                state.v[RESULT : RESULT + len(words), lane] = words
            elif inside:
                _put(state, state.memory, at, size, DATA, lane)

    return Case(asm, oracle, prepare)


def global_store(asm: str, base: bool) -> Case:
    """To a 32-bit offset from s[4:5], or to the 64-bit address in v[6:7]."""
    size, _ = _width(asm)
    offset = _offset(asm, "offset")

    def prepare(state: State, rng: np.random.Generator) -> None:
        _aligned_addresses(state, rng, size, MEMORY_BYTES - offset - size)
        state.set_pair(DESCRIPTOR, MEMORY.ctypes.data)
        addresses = MEMORY.ctypes.data + state.v[ADDRESS].astype(np.uint64)
        if not base:
            state.v[6], state.v[7] = addresses & np.uint64(0xFFFFFFFF), addresses >> np.uint64(32)

    def oracle(state: State) -> None:
        for lane in np.flatnonzero(state.exec):
            _put(state, state.memory, int(state.v[ADDRESS, lane]) + offset, size, DATA, lane)

    return Case(asm, oracle, prepare)


def _bpermute(offset: int) -> Callable[[State], None]:
    """Each lane reads the lane that its address names, 4 bytes a lane, modulo the wave; an inactive one gives 0."""

    def oracle(state: State) -> None:
        lane = (state.v[ADDRESS] + np.uint32(offset)) // 4 % LANES
        value = np.where(state.exec[lane], state.v[DATA][lane], 0)
        state.v[RESULT] = np.where(state.exec, value, state.v[RESULT])

    return oracle


def _swap(distance: int) -> Callable[[State], None]:
    """The odd rows (halves) of the first register change places with the even ones of the second."""

    def oracle(state: State) -> None:
        even = np.array([lane for lane in range(LANES) if not lane & distance])
        both = even[state.exec[even] & state.exec[even + distance]]  # a lane whose partner is inactive keeps its own
        old = state.v[RESULT, both + distance].copy()
        state.v[RESULT, both + distance] = state.v[1, both]
        state.v[1, both] = old

    return oracle


def _read_first_lane(state: State) -> None:
    active = np.flatnonzero(state.exec)
    state.s[8] = state.v[1, active[0] if active.size else 0]


def _read_lane(constant: int | None) -> Callable[[State], None]:
    def oracle(state: State) -> None:
        state.s[8] = state.v[1, int(state.s[2]) % LANES if constant is None else constant]

    return oracle


def _write_lane(lane: int) -> Callable[[State], None]:
    """Whether or not the lane is active."""

    def oracle(state: State) -> None:
        state.v[8, lane] = state.s[1]

    return oracle


LDS = tuple(
    lds(asm)
    for asm in (
        *(f"ds_read_{t} v8, v1{o}" for t in ("u8", "i8", "u16", "i16", "b32") for o in ("", " offset:512")),
        *(f"ds_read_{t} v[8:{7 + n}], v1{o}" for t, n in (("b64", 2), ("b128", 4)) for o in ("", " offset:64")),
        *(f"ds_write_{t} v1, v2{o}" for t in ("b8", "b8_d16_hi", "b16", "b16_d16_hi", "b32") for o in ("", " offset:260")),
        *(f"ds_write_{t} v1, v[2:{1 + n}]{o}" for t, n in (("b64", 2), ("b128", 4)) for o in ("", " offset:128")),
        *(f"ds_read2{st}_b{32 * n} v[8:{7 + 2 * n}], v1{o}" for st in ("", "st64") for n in (1, 2)
          for o in (" offset1:2", " offset0:3 offset1:7")),
        *(f"ds_write2st64_b32 v1, v2, v4{o}" for o in (" offset1:1", " offset0:2 offset1:5")),
        *(f"ds_write2_b{32 * n} v1, {d}{o}" for n, d in ((1, "v2, v4"), (2, "v[2:3], v[4:5]"))
          for o in (" offset1:1", " offset0:200 offset1:7")),
    )
)  # fmt: skip
GLOBAL = (
    *(buffer(f"buffer_{name}, v1, s[4:7], 0 offen{o}") for o in ("", " offset:48") for name in (
        "load_ubyte v8", "load_sbyte v8", "load_ushort v8", "load_dword v8", "load_dwordx2 v[8:9]", "load_dwordx4 v[8:11]",
        "store_byte v2", "store_short v2", "store_dword v2", "store_dwordx2 v[2:3]", "store_dwordx4 v[2:5]",
    )),
    global_store("global_store_dword v1, v2, s[4:5]", base=True),
    global_store("global_store_dword v1, v2, s[4:5] offset:24", base=True),
    global_store("global_store_dwordx2 v1, v[2:3], s[4:5]", base=True),
    global_store("global_store_dwordx2 v1, v[2:3], s[4:5] offset:24", base=True),
    global_store("global_store_dwordx2 v[6:7], v[2:3], off", base=False),
)  # fmt: skip
BETWEEN_LANES = (
    Case("ds_bpermute_b32 v8, v1, v2", _bpermute(0)),
    Case("ds_bpermute_b32 v8, v1, v2 offset:36", _bpermute(36)),
    Case("v_permlane16_swap_b32_e32 v8, v1", _swap(16)),
    Case("v_permlane32_swap_b32_e32 v8, v1", _swap(32)),
    Case("v_readfirstlane_b32 s8, v1", _read_first_lane),
    Case("v_readlane_b32 s8, v1, 47", _read_lane(47)),
    Case("v_readlane_b32 s8, v1, s2", _read_lane(None)),
    Case("v_writelane_b32 v8, s1, 63", _write_lane(63)),
)
