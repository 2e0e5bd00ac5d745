"""Cases of the small float formats and of MFMA. The formats are tables of their values here, not bit arithmetic."""

import numpy as np

from instruction_case import Case
from instruction_form import parse
from one_instruction import LANES, State

# The non-negative numbers of a format, and behind them the one at which values begin to overflow
FP8 = np.array([m * 2.0**-9 for m in range(8)] + [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8)])
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 8])
FORMATS = {"fp8": (FP8, 8), "fp4": (FP4, 4)}


def _operands(state: State, rng: np.random.Generator, values: np.ndarray) -> None:
    """v1 and v2: numbers of the format, ties between them, numbers beside the ties, any; v3: scales with mantissas."""
    exponent = rng.integers(-8, 9, LANES)
    for register in (1, 2):
        at = rng.integers(0, len(values) - 1, LANES)
        tie = (values[at] + values[at + 1]) / 2
        beside = tie * (1 + rng.choice([-1, 1], LANES) * 2.0**-20)
        wild = np.exp2(rng.uniform(-20, 20, LANES))
        chosen = np.choose(rng.integers(0, 4, LANES), [values[at], tie, beside, wild])
        chosen = chosen * rng.choice([-1.0, 1.0], LANES) * 2.0**exponent
        state.v[register] = chosen.astype(np.float32).view(np.uint32)
    state.v[3] = (exponent + 127).astype(np.uint32) << 23 | rng.integers(0, 1 << 23, LANES, dtype=np.uint32)


def _nearest_even(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The place in `values` of the nearest to |x|; of two equally near ones, the even place."""
    high = np.clip(np.searchsorted(values, np.abs(x)), 1, len(values) - 1)
    low = high - 1
    below, above = np.abs(x) - values[low], values[high] - np.abs(x)
    return np.where((below < above) | ((below == above) & (low % 2 == 0)), low, high)


def narrow(asm: str) -> Case:
    """Two floats to fp8 or fp4: fp8 overflows to its NaN (MODE does not ask for saturation), fp4 to its largest."""
    name, _, modifiers = parse(asm)
    values, bits = FORMATS["fp4" if "fp4" in name else "fp8"]
    flags = [int(n) for m in modifiers for n in m if n.isdigit()]
    if bits == 4:  # a byte of the destination
        shift = 8 * (flags[2] + 2 * flags[3]) if flags else 0
    else:
        shift = 16 * flags[-1] if flags else 0

    def oracle(state: State) -> None:
        scale = np.exp2((state.v[3] >> 23).astype(np.float64) - 127) if "scale" in name else 1.0
        codes = []
        for register in (1, 2):
            x = state.v[register].view(np.float32) / scale
            code = np.minimum(_nearest_even(x, values), len(values) - (2 if bits == 4 else 1))
            codes.append(code.astype(np.uint32) | np.signbit(x).astype(np.uint32) << (bits - 1))
        mask = np.uint32(((1 << 2 * bits) - 1) << shift)
        result = state.v[8] & ~mask | (codes[0] | codes[1] << bits) << shift
        state.v[8] = np.where(state.exec, result, state.v[8])

    return Case(asm, oracle, lambda state, rng: _operands(state, rng, values))


def mfma_bf16(asm: str, size: int) -> Case:
    """size x size x (512 / size) on small integers, so that every sum is exact in any order. EXEC does not matter."""
    lane, depth, sums = np.arange(LANES), 512 // size, size * size // LANES
    k = lane[:, None] // size * 8 + np.arange(8)  # of a lane's eight numbers
    i = np.arange(sums)[:, None]
    row = i // 4 * (256 // size) + lane // size * 4 + i % 4  # of a lane's sums: four in a row, the next lanes' below

    def matrix(state: State, register: int) -> np.ndarray:
        pairs = state.v[register : register + 4]  # (register, lane), two bf16 in each
        numbers = np.stack([pairs << 16, pairs & np.uint32(0xFFFF0000)], axis=1).reshape(8, LANES).view(np.float32)
        out = np.zeros((size, depth))
        out[lane[:, None] % size, k] = numbers.T
        return out

    def prepare(state: State, rng: np.random.Generator) -> None:
        small = rng.integers(-8, 9, (8, 2, LANES)).astype(np.float32).view(np.uint32)
        state.v[24:32] = small[:, 0] >> 16 | small[:, 1]
        state.v[32 : 32 + sums] = rng.integers(-64, 65, (sums, LANES)).astype(np.float32).view(np.uint32)

    def oracle(state: State) -> None:
        product = matrix(state, 24) @ matrix(state, 28).T
        c = state.v[32 : 32 + sums].view(np.float32)
        state.v[8 : 8 + sums] = (product[row, lane % size] + c).astype(np.float32).view(np.uint32)

    return Case(asm, oracle, prepare)


SMALL_FLOATS = tuple(narrow(asm) for asm in (
    "v_cvt_pk_fp8_f32 v8, v1, v2",
    "v_cvt_pk_fp8_f32 v8, v1, v2 op_sel:[0,0,1]",
    "v_cvt_scalef32_pk_fp8_f32 v8, v1, v2, v3",
    "v_cvt_scalef32_pk_fp8_f32 v8, v1, v2, v3 op_sel:[0,0,0,1]",
    "v_cvt_scalef32_pk_fp4_f32 v8, v1, v2, v3",
    "v_cvt_scalef32_pk_fp4_f32 v8, v1, v2, v3 op_sel:[0,0,1,0]",
    "v_cvt_scalef32_pk_fp4_f32 v8, v1, v2, v3 op_sel:[0,0,1,1]",
))  # fmt: skip
MATRIX = (
    mfma_bf16("v_mfma_f32_16x16x32_bf16 v[8:11], v[24:27], v[28:31], v[32:35]", 16),
    mfma_bf16("v_mfma_f32_32x32x16_bf16 v[8:23], v[24:27], v[28:31], v[32:47]", 32),
)
