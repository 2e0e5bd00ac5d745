"""Runs an instruction case on the emulator and on NumPy, and says where they differ."""

import zlib
from typing import Any

import numpy as np

import one_instruction as one
from instruction_case import draw
from instruction_cases import CASES, DIVISION, PROGRAMS


def _prepared(asm: str, trial: int) -> one.State:
    """EXEC is full, then one lane, then none, then random."""
    rng = np.random.default_rng([zlib.crc32(asm.encode()), trial])
    state = one.State(rng)
    masks = {0: -1, 1: 1 << int(rng.integers(64)), 2: 0}
    if trial in masks:
        state.set_pair(one.EXEC, masks[trial])
    if asm in CASES:
        CASES[asm].prepare(state, rng)
    else:
        state.v[1], state.v[2] = draw("f", one.LANES, rng), draw("f", one.LANES, rng)
    return state


def differences(asm: str, trials: int, core: Any = None) -> list[str]:
    """Where the emulator, or another core than its own, is not the oracle, in so many trials of 64 lanes."""
    case, assembled = CASES[asm], one.assemble(PROGRAMS)[asm]
    found = []
    for trial in range(trials):
        state = _prepared(asm, trial)
        wanted = state.copy()
        case.oracle(wanted)
        found += [f"trial {trial}: {d}" for d in one.run(assembled, state, core).differences(wanted, case.floats)]
    return found


def wrong_quotients(trials: int) -> list[str]:
    """The division sequence against NumPy's quotient."""
    assembled, found = one.assemble(PROGRAMS)[DIVISION], []
    for trial in range(trials):
        state = _prepared(DIVISION, trial)
        n, d = state.v[1].view(np.float32), state.v[2].view(np.float32)
        quotient = one.run(assembled, state).v[8].view(np.float32)
        with np.errstate(all="ignore"):
            exact = n / d
        wrong = (quotient.view(np.uint32) != exact.view(np.uint32)) & ~(np.isnan(quotient) & np.isnan(exact))
        found += [f"{n[i]!r} / {d[i]!r}: {quotient[i]!r}, not {exact[i]!r}" for i in np.flatnonzero(wrong & state.exec)]
    return found
