"""Every instruction of the table, executed by the emulator and by NumPy on edge and random operands."""

import pytest

from instruction_cases import GROUPS
from instruction_check import differences, wrong_quotients

pytestmark = pytest.mark.on("gfx950")


@pytest.mark.parametrize("asm", [pytest.param(c.asm, id=f"{g}: {c.asm}") for g, group in GROUPS.items() for c in group])
def test_instruction(asm):
    assert differences(asm, trials=12) == []


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_many_operands(group):
    assert [d for case in GROUPS[group] for d in differences(case.asm, trials=200)] == []


def test_division():
    """The four instructions of a division together give IEEE's quotient, with denormals, overflow and ties."""
    assert wrong_quotients(trials=240) == []
