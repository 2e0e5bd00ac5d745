"""What a launch is told, and what it says of code that is wrong or not emulated."""

import pytest
import torch
import triton
import triton.language as tl

import gfx950emu
import one_instruction as one

pytestmark = pytest.mark.on("gfx950")


@triton.jit
def copy_kernel(x, y, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o))


@pytest.fixture
def kernel() -> gfx950emu.Kernel:
    signature = {"x": "*i32", "y": "*i32"}
    return gfx950emu.load(gfx950emu.compile(copy_kernel, signature, {"B": 256}, aligned=("x", "y"), num_warps=2))


@pytest.fixture
def emulator() -> gfx950emu.Emulator:
    """One that is not Triton's active driver."""
    return gfx950emu.Emulator()


def test_options_nest(emulator):
    with emulator.options(seed=1, resident=4):
        with emulator.options(seed=2, caches=False) as inner:
            assert (inner.seed, inner.resident, inner.caches) == (2, 4, False)
        assert emulator.launch_options == gfx950emu.LaunchOptions(seed=1, resident=4)
    assert emulator.launch_options == gfx950emu.LaunchOptions()


def test_options_come_back_after_an_error(emulator):
    with pytest.raises(ZeroDivisionError), emulator.options(seed=1):
        raise ZeroDivisionError
    assert emulator.launch_options == gfx950emu.LaunchOptions()


def test_an_unknown_option_is_refused(emulator, kernel):
    with pytest.raises(TypeError, match="sed"), emulator.options(sed=1):
        pass
    with pytest.raises(TypeError, match="sed"):
        kernel.launch((1,), None, None, sed=1)


def test_counts(kernel):
    x, y = torch.arange(1024, dtype=torch.int32), torch.zeros(1024, dtype=torch.int32)
    for options in ({}, {"seed": 3}, {"resident": 3, "seed": 1}):
        y.zero_()
        stats = kernel.launch((4,), x, y, **options)
        assert torch.equal(x, y)
        assert stats.waves == 8 and stats.cache_ops == 0
        assert set(stats.workgroups) == {(i, 0, 0) for i in range(4)}
        assert sum(stats.workgroups.values()) == stats.instructions == stats.histogram.total()
        assert stats.histogram["s_endpgm"] == 8


def test_a_trace_sees_every_instruction(kernel):
    seen = []
    x = torch.zeros(512, dtype=torch.int32)
    stats = kernel.launch((2,), x, x.clone(), trace=lambda *what: seen.append(what), seed=0, resident=2)
    assert len(seen) == stats.instructions
    assert {(workgroup, wave) for workgroup, wave, *_ in seen} == {((i, 0, 0), w) for i in range(2) for w in range(2)}


def test_out_of_bounds_says_where(kernel):
    x, y = torch.zeros(250, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    with pytest.raises(gfx950emu.EmulatorError, match=r"load from .* bytes past the end of argument memory .* wave 1"):
        kernel.launch((1,), x, y)


def test_a_launch_that_hangs_is_ended(kernel):
    x = torch.zeros(256, dtype=torch.int32)
    with pytest.raises(gfx950emu.EmulatorError, match="more than 5 instructions"):
        kernel.launch((1,), x, x, max_instr=5)


def test_what_is_not_emulated_is_named():
    asm = "v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10"
    program, entry = one.assemble((asm,))[asm]
    with pytest.raises(gfx950emu.EmulatorError, match=r"v_smfmac_f32_16x16x32_f16 .* is not emulated.*decode_"):
        program.add(entry)
    with pytest.raises(gfx950emu.EmulatorError, match="outside of the code"):
        program.add(entry + 1)
