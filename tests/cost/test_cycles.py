"""The clock against answers worked out by hand, on planted instructions and on planted kernels that the emulator ran.

By hand: an instruction takes 4 cycles, a VALU result 8, LDS 69, HBM 790. s_endpgm and s_barrier are instructions too.
"""

import importlib
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import gfx950emu
from cost.cycles import Trace, step, workgroup_cycles  # type: ignore[import-not-found]

pytestmark = pytest.mark.on("gfx950")


@pytest.fixture(scope="module")
def isa() -> Any:
    """tinygrad's CDNA instructions: a class the decoder returns for each, and registers v and s."""
    return importlib.import_module("tinygrad.runtime.autogen.amd.cdna.ins")


def cycles(*waves: list) -> int:
    return workgroup_cycles([[step(instruction) for instruction in wave] for wave in waves])


def chain(isa: Any, n: int) -> list:
    return [isa.v_add_u32_e32(isa.v[1], isa.v[1], isa.v[1])] * n


def streams(isa: Any, n: int) -> list:
    return [isa.v_add_u32_e32(isa.v[1], isa.v[2], isa.v[2])] * n


def test_a_dependent_chain_waits_for_each_result(isa):
    assert cycles([*chain(isa, 10), isa.s_endpgm()]) == 9 * 8 + 4 + 4


def test_independent_instructions_issue_back_to_back(isa):
    assert cycles([*streams(isa, 10), isa.s_endpgm()]) == 10 * 4 + 4


def test_two_interleaved_chains_hide_each_other(isa):
    v = isa.v
    pair = [isa.v_add_u32_e32(v[1], v[1], v[1]), isa.v_add_u32_e32(v[2], v[2], v[2])]
    assert cycles([*pair * 10, isa.s_endpgm()]) == 20 * 4 + 4


def test_every_way_to_need_a_result_waits_for_it(isa):
    v, s = isa.v, isa.s
    add = isa.v_add_u32_e32(v[1], v[8], v[9])
    compare, carry = isa.v_cmp_gt_i32_e32(v[8], v[9]), isa.v_addc_co_u32_e32(v[3], v[4], v[5])
    for first, second in (
        (add, isa.v_add_u32_e32(v[2], v[1], v[9])),
        (add, isa.v_add_u32_e32(v[2], v[9], v[1])),
        (add, isa.v_add3_u32_e64(v[2], v[9], v[9], v[1])),
        (add, isa.v_fmac_f32_e32(v[1], v[8], v[9])),  # accumulates
        (add, isa.v_pk_add_f32(v[2:3], v[4:5], v[0:1])),  # the high half
        (add, isa.v_permlane16_swap_b32_e32(v[1], v[2])),
        (isa.v_permlane16_swap_b32_e32(v[2], v[1]), isa.v_mov_b32_e32(v[3], v[1])),
        (add, isa.v_mov_b32_e32(v[2], isa.DPP, v[1], 177, 1, 15, 15)),
        (add, isa.ds_read_b32(v[2], v[1])),
        (add, isa.ds_write_b32(addr=v[2], data0=v[1])),
        (add, isa.buffer_store_dword(v[1], v[2], s[8:11], 0, 0, 1)),
        (compare, isa.v_cndmask_b32_e32(v[3], v[4], v[5])),
        (compare, carry),
        (carry, isa.s_cbranch_vccnz(0)),
        (isa.v_cmp_gt_i32_e64(s[2:3], v[8], v[9]), isa.v_cndmask_b32_e64(v[3], v[4], v[5], s[2:3])),
        (isa.v_addc_co_u32(v[6], s[2:3], v[7], v[8], s[4:5]), isa.v_cndmask_b32_e64(v[3], v[4], v[5], s[2:3])),
        (isa.v_readlane_b32(v[7], v[8], 63), isa.s_add_i32(s[8], s[7], s[7])),  # the decoder calls s7 v7 here
    ):
        assert cycles([first, second, isa.s_endpgm()]) == 8 + 4 + 4, (first, second)
    assert cycles([add, isa.buffer_load_dword(v[1], v[2], s[8:11], 0, 0, 1), isa.s_endpgm()]) == 3 * 4


def test_transcendentals_and_64_bits_are_quarter_rate(isa):
    v = isa.v
    assert cycles([isa.v_rcp_f32_e32(v[1], v[1])] * 5 + [isa.s_endpgm()]) == 4 * 20 + 16 + 4
    assert cycles([isa.v_cmp_gt_i64_e32(v[2:3], v[4:5])] * 5 + [isa.s_endpgm()]) == 5 * 16 + 4


def test_an_mfma_chain(isa):
    mfma = isa.v_mfma_f32_16x16x32_f16(isa.v[0:3], isa.v[4:7], isa.v[8:11], isa.v[0:3])
    assert cycles([mfma, mfma, mfma, isa.s_endpgm()]) == 2 * 17 + 16 + 4


def test_an_lds_chase(isa):
    link = [isa.ds_read_b32(isa.v[1], isa.v[1]), isa.s_waitcnt(0xC07F)]  # lgkmcnt(0)
    assert cycles([*link * 10, isa.s_endpgm()]) == 10 * (69 + 4) + 4


def test_lds_behind_a_scalar_load_is_waited_for_with_it(isa):
    load, read = isa.s_load_dwordx2(isa.s[24:25], isa.s[0:1], isa.s[0], 80), isa.ds_read_b32(isa.v[1], isa.v[1])
    assert cycles([load, read, isa.s_waitcnt(0xC07F), isa.s_endpgm()]) == 790 + 4 + 4


def test_memory_is_charged_where_it_is_waited_for(isa):
    load = isa.buffer_load_dword(isa.v[47], isa.v[64], isa.s[8:11], 0, 0, 1)
    end = isa.s_endpgm()
    one_left, none_left = isa.s_waitcnt(0x0F71), isa.s_waitcnt(0x0F70)  # vmcnt(1), vmcnt(0)
    assert cycles([load, load, end]) == 2 * 4 + 4
    assert cycles([load, load, one_left, end]) == 790 + 4 + 4
    assert cycles([load, load, none_left, end]) == 4 + 790 + 4 + 4
    assert cycles([load, load, isa.s_waitcnt(0xC07F), end]) == 3 * 4 + 4
    assert cycles([*[load] * 17, isa.s_waitcnt(0x4F70), end]) == 790 + 4 + 4  # vmcnt(16): its high bits lie apart
    assert cycles([load, *streams(isa, 300), none_left, end]) == 302 * 4 + 4  # long over


@pytest.mark.parametrize("per_simd, dependent, independent", [(1, 80, 44), (2, 80, 80), (3, 120, 120), (4, 160, 160)])
def test_waves_share_their_simd(isa, per_simd, dependent, independent):
    end = [isa.s_endpgm()]
    assert cycles(*[chain(isa, 10) + end] * 4 * per_simd) == dependent
    assert cycles(*[streams(isa, 10) + end] * 4 * per_simd) == independent


def test_the_busiest_simd_counts(isa):
    assert cycles(*[[*streams(isa, 10), isa.s_endpgm()]] * 5) == 2 * 40  # waves 0 and 4 share one, three have one each


def test_a_barrier_ends_a_segment_for_all(isa):
    late, early = [*chain(isa, 10), isa.s_barrier()], [isa.s_barrier(), *chain(isa, 10)]
    end = isa.s_endpgm()
    assert cycles([*late, end], [*early, end]) == (9 * 8 + 4 + 4) + (9 * 8 + 4 + 4)
    assert cycles([*late, end], [end]) == (9 * 8 + 4 + 4) + 4  # who ended is not waited for


def test_what_has_no_figure_is_refused(isa):
    v, s = isa.v, isa.s
    for instruction in (
        isa.buffer_wbl2(v[0], v[0], s[0:3], 0),
        isa.global_atomic_add(v[0], v[2:3], v[4]),
        isa.v_mfma_f32_32x32x16_f16(v[0:15], v[16:19], v[20:23], v[0:15]),
    ):
        with pytest.raises(ValueError, match="no figure for"):
            step(instruction)


@triton.jit
def _planted(x, ASM: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    result = tl.inline_asm_elementwise(ASM, "=&v,v", [value], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(x + i, result)


CHAIN = "v_add_u32 $0, $0, $1\n"
STREAMS = "v_add_u32 $0, $1, $1\n"
LDS = "ds_bpermute_b32 $0, $0, $1\ns_waitcnt lgkmcnt(0)\n"  # through the LDS unit, and needs no allocation


# From 300 to 400 repetitions the load and store around them are the same: 100 more cost what 100 cost.
@pytest.mark.parametrize(
    "asm, num_warps, per_repetition",
    [
        (CHAIN, 4, 8), (CHAIN, 8, 8), (CHAIN, 16, 4 * 4),
        (STREAMS, 4, 4), (STREAMS, 8, 2 * 4), (STREAMS, 16, 4 * 4),
        (LDS, 4, 69 + 4), (LDS, 16, 69 + 4),
    ],
)  # fmt: skip
def test_planted_kernels_on_the_emulator(asm, num_warps, per_repetition):
    trace, block, totals = Trace(), 64 * num_warps, []
    x = torch.zeros(block, dtype=torch.int32)
    for n in (300, 400):
        compiled = _planted.warmup(x, ASM=asm * n, BLOCK=block, num_warps=num_warps, grid=(1,))
        gfx950emu.load(compiled).launch((1,), x, trace=trace)
        totals += trace.take()
    assert totals[1] - totals[0] == 100 * per_repetition
