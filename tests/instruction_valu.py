"""Vector ALU cases: every form that the served kernels use, and forms beside them that mutants hide behind.

Registers: results in v8 and up or s10 and up, operands in v1 to v7 and s1 and up.
"""

# ruff: noqa: E501  a table, one case a line

import numpy as np

import instruction_float as fp
from instruction_case import Case, vector
from one_instruction import State

U32, MASK5 = np.uint32, np.uint32(31)


def _i24(x: np.ndarray) -> np.ndarray:
    return x << 8 >> 8


def _bfe(x: np.ndarray, offset: np.ndarray, width: np.ndarray, signed: bool) -> np.ndarray:
    out = np.zeros(64, np.uint32)
    for lane in range(64):
        o, n, value = int(offset[lane]) & 31, int(width[lane]) & 31, int(x[lane]) & 0xFFFFFFFF
        if signed and value >> 31:
            value |= 0xFFFFFFFF << 32
        field = value >> o & (1 << n) - 1
        out[lane] = (field - (1 << n) if signed and n and field >> n - 1 else field) & 0xFFFFFFFF
    return out


def _bit_reverse(x: np.ndarray) -> np.ndarray:
    return np.array([int(f"{n:032b}"[::-1], 2) for n in x], np.uint32)


def _perm(a: np.ndarray, b: np.ndarray, select: np.ndarray) -> np.ndarray:
    out = np.zeros(64, np.uint32)
    for lane in range(64):
        data = int(b[lane]).to_bytes(4, "little") + int(a[lane]).to_bytes(4, "little")
        table = [*data, *(255 if data[2 * i + 1] & 0x80 else 0 for i in range(4)), 0]
        chosen = [table[s] if s < 13 else 255 for s in int(select[lane]).to_bytes(4, "little")]
        out[lane] = int.from_bytes(bytes(chosen), "little")
    return out


def _add_carry(a: np.ndarray, b: np.ndarray, carry: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = a.astype(np.uint64) + b + carry
    return total & np.uint64(0xFFFFFFFF), total >> np.uint64(32) != 0


def _mad_wide(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    totals = [int(x) * int(y) + int(z) for x, y, z in zip(a, b, c, strict=True)]
    return np.array([t & (1 << 64) - 1 for t in totals], np.uint64), np.array([t >> 64 != 0 for t in totals])


def _bitop3(table: int):
    def function(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        out = np.zeros(64, np.uint32)
        for bit in range(32):
            index = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)
            out |= (table >> index & 1).astype(np.uint32) << U32(bit)
        return out

    return function


def _halves(function):
    """A 16-bit operation: on the low halves, the high half of the result 0."""
    return lambda *values: function(*(v & U32(0xFFFF) for v in values)) & U32(0xFFFF)


def _ashr16_of_byte(shift: np.ndarray, value: np.ndarray) -> np.ndarray:
    return (value.view(np.int32).astype(np.int16) >> (shift & 15).astype(np.int16)).view(np.uint16)


def _shift_both_halves(shift: np.ndarray, value: np.ndarray) -> np.ndarray:
    low, high = value & U32(0xFFFF), value >> U32(16)
    return low >> (shift & U32(15)) | high >> (shift & U32(15)) << U32(16)


def _quiet(case: Case) -> Case:
    """Without signalling NaNs: what med3 makes of one in IEEE mode is not documented."""

    def prepare(state: State, rng: np.random.Generator) -> None:
        case.prepare(state, rng)
        for registers in (state.v, state.s):
            registers[np.isnan(registers.view(np.float32))] |= U32(0x400000)

    return case._replace(prepare=prepare)


def _selecting(case: Case) -> Case:
    """Byte selectors of v_perm below 16: all of the others mean 0xff."""

    def prepare(state: State, rng: np.random.Generator) -> None:
        case.prepare(state, rng)
        state.s[3] &= U32(0x0F0F0F0F)

    return case._replace(prepare=prepare)


INTEGER = (
    *(vector(f"v_{name}_b32_e32 v8, v1, v2", "u", "uu", f) for name, f in (
        ("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor),
        ("lshlrev", lambda n, x: x << (n & MASK5)), ("lshrrev", lambda n, x: x >> (n & MASK5)),
    )),
    vector("v_and_b32_e32 v8, 0xff00ff, v2", "u", "uu", np.bitwise_and),
    vector("v_or_b32_e32 v8, s1, v2", "u", "uu", np.bitwise_or),
    vector("v_lshlrev_b32_e64 v8, v1, s2", "u", "uu", lambda n, x: x << (n & MASK5)),
    vector("v_ashrrev_i32_e32 v8, v1, v2", "i", "ui", lambda n, x: x >> (n & MASK5).view(np.int32)),
    vector("v_not_b32_e32 v8, v1", "u", "u", np.invert),
    vector("v_bfrev_b32_e32 v8, v1", "u", "u", _bit_reverse),
    vector("v_bfe_u32 v8, v1, v2, v3", "u", "uuu", lambda x, o, n: _bfe(x, o, n, False)),
    vector("v_bfe_i32 v8, v1, v2, v3", "u", "uuu", lambda x, o, n: _bfe(x, o, n, True)),
    vector("v_bfi_b32 v8, v1, v2, v3", "u", "uuu", lambda m, a, b: (m & a) | (~m & b)),
    vector("v_perm_b32 v8, v1, v2, v3", "u", "uuu", _perm),
    _selecting(vector("v_perm_b32 v8, v1, v2, s3", "u", "uuu", _perm)),
    vector("v_add_u32_e32 v8, v1, v2", "u", "uu", np.add),
    vector("v_add_u32_e32 v8, -16, v2", "u", "uu", np.add),
    vector("v_sub_u32_e32 v8, v1, v2", "u", "uu", np.subtract),
    vector("v_sub_u32_e64 v8, v1, v2", "u", "uu", np.subtract),
    vector("v_sub_u32_e64 v8, v1, v2 clamp", "u", "uu", lambda a, b: np.where(a > b, a - b, 0)),
    vector("v_subrev_u32_e32 v8, v1, v2", "u", "uu", lambda a, b: b - a),
    vector("v_add3_u32 v8, v1, v2, v3", "u", "uuu", lambda a, b, c: a + b + c),
    vector("v_add_lshl_u32 v8, v1, v2, v3", "u", "uuu", lambda a, b, c: a + b << (c & MASK5)),
    vector("v_lshl_add_u32 v8, v1, v2, v3", "u", "uuu", lambda a, b, c: (a << (b & MASK5)) + c),
    vector("v_lshl_or_b32 v8, v1, v2, v3", "u", "uuu", lambda a, b, c: a << (b & MASK5) | c),
    vector("v_and_or_b32 v8, v1, v2, v3", "u", "uuu", lambda a, b, c: a & b | c),
    vector("v_or3_b32 v8, v1, v2, v3", "u", "uuu", lambda a, b, c: a | b | c),
    vector("v_xad_u32 v8, v1, v2, v3", "u", "uuu", lambda a, b, c: (a ^ b) + c),
    vector("v_max_u32_e32 v8, v1, v2", "u", "uu", np.maximum),
    vector("v_max_i32_e32 v8, v1, v2", "i", "ii", np.maximum),
    vector("v_min_u32_e32 v8, v1, v2", "u", "uu", np.minimum),
    vector("v_min_i32_e32 v8, v1, v2", "i", "ii", np.minimum),
    vector("v_max3_u32 v8, v1, v2, v3", "u", "uuu", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    vector("v_lshl_add_u64 v[8:9], v[2:3], v1, v[4:5]", "U", "UuU", lambda a, n, b: (a << (n & U32(7)).astype(np.uint64)) + b),
    vector("v_mul_lo_u32 v8, v1, v2", "u", "uu", np.multiply),
    vector("v_mul_i32_i24_e32 v8, v1, v2", "i", "ii", lambda a, b: _i24(a) * _i24(b)),
    vector("v_mul_u32_u24_e32 v8, v1, v2", "u", "uu", lambda a, b: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF))),
    vector("v_mad_u32_u24 v8, v1, s2, v3", "u", "uuu", lambda a, b, c: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)) + c),
    vector("v_mad_u64_u32 v[8:9], s[10:11], v1, s2, v[4:5]", "Um", "uuU", _mad_wide),
    vector("v_addc_co_u32_e32 v8, vcc, v1, v2, vcc", "um", "uum", _add_carry),
    vector("v_addc_co_u32_e64 v8, s[10:11], v1, v2, s[12:13]", "um", "uum", _add_carry),
    vector("v_addc_co_u32_e64 v8, vcc, -1, v2, s[12:13]", "um", "uum", _add_carry),
    vector("v_cndmask_b32_e32 v8, v1, v2, vcc", "u", "uum", lambda a, b, m: np.where(m, b, a)),
    vector("v_cndmask_b32_e64 v8, v1, v2, s[12:13]", "u", "uum", lambda a, b, m: np.where(m, b, a)),
    vector("v_mov_b32_e32 v8, v1", "u", "u", lambda a: a),
    vector("v_mov_b32_e32 v8, 0x12345678", "u", "u", lambda a: a),
    vector("v_mov_b64_e32 v[8:9], s[4:5]", "U", "U", lambda a: a),
    vector("v_mov_b64_e32 v[8:9], v[4:5]", "U", "U", lambda a: a),
    *(vector(f"v_bitop3_b32 v8, v1, v2, v3 bitop3:{t:#x}", "u", "uuu", _bitop3(t)) for t in (1, 0x1E, 0x6C, 0x8E, 0xC8, 0xF6)),
    *(vector(f"v_bitop3_b16 v8, v1, v2, v3 bitop3:{t:#x}", "u", "uuu", _halves(_bitop3(t))) for t in (0x1B, 0xEC)),
    vector("v_add_u16_e32 v8, v1, v2", "u", "uu", _halves(np.add)),
    vector("v_lshlrev_b16_e32 v8, v1, v2", "u", "uu", _halves(lambda n, x: x << (n & U32(15)))),
    vector("v_lshrrev_b16_e32 v8, v1, v2", "u", "uu", _halves(lambda n, x: x >> (n & U32(15)))),
    vector("v_pk_lshrrev_b16 v8, v1, v2 op_sel_hi:[0,1]", "u", "uu", _shift_both_halves),
    vector("v_bcnt_u32_b32 v8, v1, v2", "u", "uu", lambda a, b: np.bitwise_count(a).astype(U32) + b),
    vector("v_lshlrev_b32_sdwa v8, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_3",
           "u", "uu", lambda n, x: x << (n & U32(31))),
    vector("v_lshlrev_b32_sdwa v8, v1, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_0",
           "u", "uu", lambda n, x: x << (n & U32(31))),
    vector("v_add_u32_sdwa v8, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_3",
           "u", "uu", np.add),
    vector("v_add_u32_sdwa v8, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:BYTE_1",
           "u", "uu", np.add),
    *(vector(f"v_or_b32_sdwa v8, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_{i}", "u", "uu", np.bitwise_or)
      for i in (0, 1)),
    vector("v_ashrrev_i16_sdwa v8, v1, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_0",
           "u", "uu", _ashr16_of_byte),
)  # fmt: skip

_CONTROLS = ("quad_perm:[1,0,3,2]", "quad_perm:[2,3,0,1]", "quad_perm:[3,2,1,0]", "quad_perm:[0,0,2,1]",
             "row_shr:1", "row_shr:2", "row_shr:4", "row_shr:8", "row_shl:3", "row_ror:8", "row_ror:5",
             "row_half_mirror", "row_mirror", "row_bcast:15", "row_bcast:31")  # fmt: skip
_ENABLES = tuple(f"row_mask:{r} bank_mask:{b}{c}"
                 for r, b in (("0xf", "0xf"), ("0xa", "0xf"), ("0x5", "0x9")) for c in ("", " bound_ctrl:1"))  # fmt: skip
_FULL = _ENABLES[1]
DPP = (
    *(vector(f"v_mov_b32_dpp v8, v1 {c} {e}", "u", "u", lambda a: a) for c in _CONTROLS for e in _ENABLES),
    *(vector(f"v_{name}_dpp v8, v1, v2 {c} {_FULL}", kind, kind * 2, f)
      for name, kind, f in (("add_f32", "f", np.add), ("add_u32", "u", np.add), ("max_i32", "i", np.maximum), ("or_b32", "u", np.bitwise_or), ("and_b32", "u", np.bitwise_and),
                            ("xor_b32", "u", np.bitwise_xor)) for c in _CONTROLS),
)  # fmt: skip

_RELATIONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
# an unordered pair, one with a NaN, is less, equal and greater never; the n.. relations are what is left
_FLOAT_RELATIONS = {
    **{r: f for r, f in _RELATIONS.items() if r != "ne"},
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b), "ngt": lambda a, b: ~(a > b), "nlt": lambda a, b: ~(a < b), "nle": lambda a, b: ~(a <= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)), "neq": lambda a, b: ~(a == b),
}  # fmt: skip
COMPARE = (
    *(vector(f"v_cmp_{r}_{'iu'[k == 'u']}32_{e}", "m", k * 2, f)
      for r, f in _RELATIONS.items() for k in "iu" for e in ("e32 vcc, v1, v2", "e32 vcc, s1, v2", "e64 s[10:11], 15, v2")),
    *(vector(f"v_cmp_{r}_i64_{e}", "m", "II", f) for r, f in _RELATIONS.items()
      for e in ("e32 vcc, v[2:3], v[4:5]", "e32 vcc, s[4:5], v[4:5]", "e64 s[10:11], v[2:3], v[4:5]")),
    *(vector(f"v_cmp_{r}_f32_{e}", "m", "ff", f) for r, f in _FLOAT_RELATIONS.items()
      for e in ("e32 vcc, v1, v2", "e32 vcc, s1, v2", "e64 s[10:11], v1, v2", "e64 s[10:11], s1, 0")),
    vector("v_cmp_ngt_f32_e64 s[10:11], |v1|, s2", "m", "ff", _FLOAT_RELATIONS["ngt"]),
)  # fmt: skip

FLOAT = (
    vector("v_add_f32_e32 v8, v1, v2", "f", "ff", np.add),
    vector("v_sub_f32_e32 v8, v1, v2", "f", "ff", np.subtract),
    vector("v_subrev_f32_e32 v8, v1, v2", "f", "ff", lambda a, b: b - a),
    vector("v_mul_f32_e32 v8, v1, v2", "f", "ff", np.multiply),
    vector("v_mul_f32_e64 v8, |v1|, s2", "f", "ff", np.multiply),
    vector("v_max_f32_e64 v8, v1, v2", "f", "ff", fp.maximum),
    vector("v_max_f32_e32 v8, v1, v2", "f", "ff", fp.maximum),
    vector("v_min_f32_e32 v8, v1, v2", "f", "ff", lambda a, b: -fp.maximum(-a, -b)),
    vector("v_max_f32_e64 v8, -v1, -v2", "f", "ff", fp.maximum),
    vector("v_max_f32_e64 v8, |v1|, -|v2|", "f", "ff", fp.maximum),
    _quiet(vector("v_med3_f32 v8, v1, v2, v3", "f", "fff", fp.median)),
    _quiet(vector("v_med3_f32 v8, v1, s2, v3", "f", "fff", fp.median)),
    vector("v_fma_f32 v8, v1, v2, v3", "f", "fff", fp.fma),
    vector("v_fma_f32 v8, -v1, v2, v3", "f", "fff", fp.fma),
    vector("v_fma_f32 v8, v1, v2, v3 clamp", "f", "fff",
           lambda *x: np.where(np.isnan(fp.fma(*x)), 0, np.clip(fp.fma(*x), 0, 1))),
    vector("v_fma_f32 v8, v1, v2, 1.0", "f", "fff", fp.fma),
    vector("v_fmac_f32_e32 v8, v1, v2", "f", "ff+", fp.fma),
    vector("v_fmamk_f32 v8, v1, 0x3fb8aa3b, v3", "f", "fff", fp.fma),
    vector("v_fmaak_f32 v8, v1, v2, 0x3fb8aa3b", "f", "fff", fp.fma),
    vector("v_cndmask_b32_e64 v8, v1, -v2, s[12:13]", "f", "ffm", lambda a, b, m: np.where(m, b, a)),
    vector("v_cndmask_b32_e64 v8, v1, -|v2|, s[12:13]", "f", "ffm", lambda a, b, m: np.where(m, b, a)),
    vector("v_rsq_f32_e32 v8, v1", "f", "f", lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(np.float32)),
    vector("v_rcp_f32_e32 v8, v1", "f", "f", lambda a: np.float32(1) / a),
    vector("v_cvt_f32_i32_e32 v8, v1", "f", "i", lambda a: a.astype(np.float32)),
    vector("v_cvt_i32_f32_e32 v8, v1", "i", "f", fp.to_int),
    vector("v_cvt_f32_u32_e32 v8, v1", "f", "u", lambda a: a.astype(np.float32)),
    vector("v_cvt_u32_f32_e32 v8, v1", "u", "f", fp.to_unsigned),
    vector("v_cvt_pk_bf16_f32 v8, v1, v2", "u", "ff", lambda a, b: fp.to_bf16(a) | fp.to_bf16(b) << U32(16)),
    vector("v_div_scale_f32 v8, s[10:11], v2, v2, v1", "fm", "fff", fp.div_scale),
    vector("v_div_scale_f32 v8, vcc, v1, v2, v1", "fm", "fff", fp.div_scale),
    vector("v_div_scale_f32 v8, vcc, 1.0, v2, 1.0", "fm", "fff", fp.div_scale),
    vector("v_div_fmas_f32 v8, v1, v2, v3", "f", "fffc", fp.div_fmas),
    vector("v_div_fixup_f32 v8, v1, v2, v3", "f", "fff", fp.div_fixup),
    vector("v_pk_add_f32 v[8:9], v[2:3], v[4:5]", "P", "PP", np.add),
    vector("v_pk_add_f32 v[8:9], v[2:3], 1.0 op_sel_hi:[1,0]", "P", "PP", np.add),
    vector("v_pk_mul_f32 v[8:9], v[2:3], v[4:5]", "P", "PP", np.multiply),
    vector("v_pk_mul_f32 v[8:9], s[4:5], v[4:5] op_sel_hi:[0,1]", "P", "PP", np.multiply),
    vector("v_pk_mul_f32 v[8:9], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,1]", "P", "PP", np.multiply),
    vector("v_pk_mul_f32 v[8:9], v[2:3], v[4:5] op_sel_hi:[1,0]", "P", "PP", np.multiply),
    vector("v_pk_add_f32 v[8:9], v[2:3], v[4:5] neg_lo:[0,1] neg_hi:[0,1]", "P", "PP", np.add),
    vector("v_pk_add_f32 v[8:9], v[2:3], v[4:5] neg_lo:[1,0] neg_hi:[0,1]", "P", "PP", np.add),
    vector("v_pk_add_f32 v[8:9], v[2:3], s[4:5] op_sel_hi:[1,0] neg_lo:[1,0] neg_hi:[1,0]", "P", "PP", np.add),
    vector("v_pk_fma_f32 v[8:9], v[2:3], v[4:5], v[6:7] neg_lo:[1,0,0] neg_hi:[1,0,0]", "P", "PPP", fp.fma),
    vector("v_pk_fma_f32 v[8:9], v[2:3], v[4:5], s[6:7] op_sel_hi:[1,1,0] neg_lo:[1,0,0] neg_hi:[1,0,0]", "P", "PPP", fp.fma),
    vector("v_pk_fma_f32 v[8:9], s[4:5], v[4:5], v[6:7] op_sel_hi:[0,1,1]", "P", "PPP", fp.fma),
    vector("v_pk_mov_b32 v[8:9], v[2:3], v[4:5] op_sel:[1,0]", "P", "PP", lambda a, b: (a[0], b[0])),
    vector("v_pk_mov_b32 v[8:9], v[2:3], v[4:5] op_sel:[0,1]", "P", "PP", lambda a, b: (a[0], b[0])),
    *(vector(f"v_pk_fma_f32 v[8:9], v[2:3], {b}, {c}", "P", "PPP", fp.fma) for b, c in (
        ("v[4:5]", "v[6:7]"), ("s[4:5]", "v[6:7] op_sel_hi:[1,0,0]"), ("s[4:5]", "v[6:7] op_sel_hi:[1,0,1]"),
        ("v[4:5]", "s[6:7] op_sel_hi:[1,1,0]"), ("v[4:5]", "1.0 op_sel_hi:[1,1,0]"))),
)  # fmt: skip
