"""All instruction cases, and the forms of instructions that they cover."""

import instruction_matrix as matrix
import instruction_memory as memory
import instruction_scalar as scalar
import instruction_valu as valu
from instruction_form import form

# IEEE division as LLVM expands it, v1 / v2 to v8
DIVISION = """v_div_scale_f32 v3, s[10:11], v2, v2, v1
v_div_scale_f32 v4, vcc, v1, v2, v1
v_rcp_f32_e32 v5, v3
v_fma_f32 v6, -v3, v5, 1.0
v_fmac_f32_e32 v5, v6, v5
v_mul_f32_e32 v6, v4, v5
v_fma_f32 v7, -v3, v6, v4
v_fmac_f32_e32 v6, v7, v5
v_fma_f32 v3, -v3, v6, v4
v_div_fmas_f32 v3, v3, v5, v6
v_div_fixup_f32 v8, v3, v2, v1"""

GROUPS = {
    "integer": valu.INTEGER,
    "dpp": valu.DPP,
    "compare": valu.COMPARE,
    "float": valu.FLOAT,
    "scalar": (*scalar.ARITHMETIC, *scalar.BRANCHES, *scalar.LOADS),
    "lds": memory.LDS,
    "global": memory.GLOBAL,
    "lanes": memory.BETWEEN_LANES,
    "small floats": matrix.SMALL_FLOATS,
    "matrix": matrix.MATRIX,
}
CASES = {case.asm: case for group in GROUPS.values() for case in group}
PROGRAMS = (*CASES, DIVISION)
TESTED = {form(line) for program in PROGRAMS for line in program.splitlines()}
