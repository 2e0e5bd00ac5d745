"""Which instructions the served kernels consist of, and how far the emulator is to be trusted with each.

    python tests/instruction_report.py > benchmarks/results/gfx950-instructions.csv

Everything a plan may launch is compiled for gfx950, nothing runs. native: the emulator has it; tested: `yes` where
tests/emulator/test_instructions.py compares it with NumPy, `kernels` where only whole kernels show that it works.
"""

import argparse
import csv
import os
import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "codegen"))

from instruction_cases import TESTED
from instruction_form import form
from one_instruction import is_native

COLUMNS = ("instruction", "static_uses", "native", "tested")
KERNELS_ONLY = {
    "s_barrier": "needs several waves: without it the LDS exchanges of every sort fail",
    "s_endpgm": "ends every test",
    "s_nop": "changes nothing but time, which is not emulated",
    "s_waitcnt": "shows only with loads to LDS or posted stores: emulator/test_gluon.py, test_a_missing_wait_shows",
}


def assembly(blocks: tuple[int, ...]) -> list[str]:
    """Of every specialisation of every kernel that a plan may launch."""
    import table
    from compile_only import GFX950, activate

    activate(GFX950)
    table.rows(blocks, table.mx.MODES)
    caches = [cache[0] for kernel in table.KERNELS for cache in kernel.device_caches.values()]
    return [compiled.asm["amdgcn"] for cache in caches for compiled in cache.values()]


def rows(blocks: tuple[int, ...]) -> list[dict]:
    uses: Counter[str] = Counter()
    example: dict[str, str] = {}
    for text in assembly(blocks):
        for line in re.findall(r"^\t([a-z]\w+[^;\n]*)", text, re.MULTILINE):
            uses[form(line)] += 1
            example[form(line)] = re.sub(r"\.LBB\w+", "1", line)
    native = is_native(tuple(example.values()))
    return [
        {
            "instruction": name,
            "static_uses": uses[name],
            "native": "yes" if native[example[name]] else "no",
            "tested": "yes" if name in TESTED else "kernels" if name in KERNELS_ONLY else "no",
        }
        for name in sorted(uses)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--block", type=int, nargs="+", default=(16, 32, 64, 128))
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # as backends.py: one set of cached compilations
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(tuple(parser.parse_args().block)))


if __name__ == "__main__":
    main()
