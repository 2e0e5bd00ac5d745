"""Ways to break the emulator's C core, and an instruction case that must notice."""

# ruff: noqa: E501  one mutant is two lines, however long the line it breaks

from typing import NamedTuple


class Mutant(NamedTuple):
    what: str
    old: str
    new: str
    asm: str


FULL = "row_mask:0xf bank_mask:0xf bound_ctrl:1"
MUTANTS = (
    Mutant("DPP row mask by bank", "I->row_mask >> (l >> 4) & 1", "I->row_mask >> (l >> 2 & 3) & 1",
           "v_mov_b32_dpp v8, v1 row_bcast:15 row_mask:0xa bank_mask:0xf bound_ctrl:1"),
    Mutant("DPP bank mask ignored", "&& (I->bank_mask >> (l >> 2 & 3) & 1)", "",
           "v_mov_b32_dpp v8, v1 row_ror:8 row_mask:0x5 bank_mask:0x9"),
    Mutant("DPP bound_ctrl always on", "(ok || I->bc)", "(ok || 1)",
           "v_mov_b32_dpp v8, v1 row_shr:4 row_mask:0xf bank_mask:0xf"),
    Mutant("DPP bound_ctrl never on", "(ok || I->bc)", "ok",
           f"v_mov_b32_dpp v8, v1 row_shr:4 {FULL}"),
    Mutant("DPP reads inactive lanes", "s >= 0 && (ex >> s & 1)", "s >= 0",
           f"v_add_u32_dpp v8, v1, v2 quad_perm:[2,3,0,1] {FULL}"),
    Mutant("DPP row_shr turned into row_shl", "i >= (c & 15) ? l - (c & 15) : -1", "i + (c & 15) <= 15 ? l + (c & 15) : -1",
           f"v_add_f32_dpp v8, v1, v2 row_shr:2 {FULL}"),
    Mutant("row_bcast:31 to the last row only", "l >= 32 ? 31 : -1", "l >= 48 ? 31 : -1",
           f"v_add_u32_dpp v8, v1, v2 row_bcast:31 {FULL}"),
    Mutant("v_addc drops its carry-out", "+ (cin >> l & 1); D[l] = (u32)r; cout |= (r >> 32 & 1) << l;", "+ (cin >> l & 1); D[l] = (u32)r;",
           "v_addc_co_u32_e64 v8, s[10:11], v1, v2, s[12:13]"),
    Mutant("v_addc drops its carry-in", "(u64)A[l] + B[l] + (cin >> l & 1)", "(u64)A[l] + B[l]",
           "v_addc_co_u32_e32 v8, vcc, v1, v2, vcc"),
    Mutant("carry of inactive lanes", "cout & em", "cout",
           "v_addc_co_u32_e32 v8, vcc, v1, v2, vcc"),
    Mutant("v_sub clamp does not saturate", "I->clamp && A[l] < B[l] ? 0 : A[l] - B[l]; break;\n    case OP_v_subrev_u32", "A[l] - B[l]; break;\n    case OP_v_subrev_u32",
           "v_sub_u32_e64 v8, v1, v2 clamp"),
    Mutant("conversion to integer wraps", "x >= 2147483647.0 ? INT32_MAX : (i32)x", "(i32)(i64)x",
           "v_cvt_i32_f32_e32 v8, v1"),
    Mutant("conversion to integer rounds to nearest", "case OP_v_cvt_i32_f32: FOR D[l] = f2i(fA[l])", "case OP_v_cvt_i32_f32: FOR D[l] = f2i(nearbyint(fA[l]))",
           "v_cvt_i32_f32_e32 v8, v1"),
    Mutant("conversion to float rounds towards 0", "case OP_v_cvt_f32_i32: FOR fD[l] = (i32)A[l]", "case OP_v_cvt_f32_i32: FOR fD[l] = (i32)A[l] / 256 * 256",
           "v_cvt_f32_i32_e32 v8, v1"),
    Mutant("fma rounds twice", "FOR fD[l] = fmaf(fA[l], fB[l], fC[l])", "FOR fD[l] = fA[l] * fB[l] + fC[l]",
           "v_fma_f32 v8, v1, v2, v3"),
    Mutant("max of -0 and +0", "(signbit(a) ? b : a) : a > b ? a : b; }\nstatic inline double dminx", "b : a > b ? a : b; }\nstatic inline double dminx",
           "v_max_f32_e64 v8, -v1, -v2"),
    Mutant("denormals flushed", "if ((w->mode >> 4 & 3) == 0) m |= 0x8040;", "m |= 0x8040;",
           "v_mul_f32_e32 v8, v1, v2"),
    Mutant("LDS st64 offsets in elements", "(u64)I->x[6] * I->x[7]; if (lds_oob(w, a0, n, l) || lds_oob(w, a1, n, l)) return R_FAULT;\n        load_regs", "(u64)I->x[6] * n; if (lds_oob(w, a0, n, l) || lds_oob(w, a1, n, l)) return R_FAULT;\n        load_regs",
           "ds_read2st64_b32 v[8:9], v1 offset0:3 offset1:7"),
    Mutant("second LDS store writes the first's data", "rf + (I->s2 + i) * NL + l, 4); } break; }", "rf + (I->s1 + i) * NL + l, 4); } break; }",
           "ds_write2_b64 v1, v[2:3], v[4:5] offset1:1"),
    Mutant("d16_hi stores the low half", "u32 v = rf[I->s1 * NL + l] >> (I->x[3] == 2 ? 16 : 0);", "u32 v = rf[I->s1 * NL + l];",
           "ds_write_b8_d16_hi v1, v2"),
    Mutant("permlane16 swaps halves", "I->op == L_SWAP16 ? 16 : 32", "I->op == L_SWAP16 ? 32 : 16",
           "v_permlane16_swap_b32_e32 v8, v1"),
    Mutant("permlane swap ignores EXEC", "wr_s = em >> l & 1, wr_d = em >> o & 1", "wr_s = 1, wr_d = 1",
           "v_permlane32_swap_b32_e32 v8, v1"),
    Mutant("bpermute forgets the offset", "int s = (va[l] + off) / 4 & 63; if", "int s = va[l] / 4 & 63; if",
           "ds_bpermute_b32 v8, v1, v2 offset:36"),
    Mutant("s_sext does not", "D32((i32)(i16)A)", "D32((u16)A)",
           "s_sext_i32_i16 s8, s1"),
    Mutant("s_bfe_i32 without its sign", "else v = (i32)(A << (32 - n - o)) >> (32 - n);", "else v = A << (32 - n - o) >> (32 - n);",
           "s_bfe_i32 s8, s1, 0x50003"),
    Mutant("SDWA without sign extension", "v = v >> 8 * sel & 255; return sext ? (u32)(i32)(i8)v : v;", "return v >> 8 * sel & 255;",
           "v_ashrrev_i16_sdwa v8, v1, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_0"),
    Mutant("vector results ignore EXEC", "wm &= em;", "",
           "v_add_u32_e32 v8, v1, v2"),
    Mutant("comparisons ignore EXEC", "r &= em;", "",
           "v_cmp_gt_i64_e32 vcc, v[2:3], v[4:5]"),
    Mutant("64-bit comparison unsigned", "case 'I': FOR r |= CMP((i64)A8[l], (i64)B8[l]) << l;", "case 'I': FOR r |= CMP(A8[l], B8[l]) << l;",
           "v_cmp_gt_i64_e32 vcc, v[2:3], v[4:5]"),
    Mutant("packed op_sel_hi ignored", "(h ? I->opsel_hi : I->opsel) >> n & 1, ng", "h, ng",
           "v_pk_mul_f32 v[8:9], v[2:3], v[4:5] op_sel_hi:[1,0]"),
    Mutant("buffer size off by one", "off + n > (num > soff ? num - soff : 0)) ok[l] = 2;", "off + n > (num > soff ? num - soff : 0) + 1) ok[l] = 2;",
           "buffer_store_byte v2, v1, s[4:7], 0 offen"),
    Mutant("saveexec forgets SCC", "st64(s + EXEC, r); SC(r); break; }\n  switch", "st64(s + EXEC, r); break; }\n  switch",
           "s_and_saveexec_b64 s[8:9], s[2:3]"),
)  # fmt: skip
