"""After a warm-up nothing is compiled, whatever the batch: a compile in serving would stall it for seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.on("gfx950")
COMPILE = """
import sys
sys.path[:0] = [{here!r}, {root!r}]
from compile_only import GFX950, activate
activate(GFX950)
import table, torch
from vllm_k3moe.plan import RoutePlan
plan = RoutePlan(table.K3_TP8, {mode!r}, 16)

def run(m):
    plan(torch.empty(m, table.K3_TP8.latent, dtype=torch.bfloat16), torch.empty(m, 896), torch.empty(896))

for m in plan.batches()[: {batches}]:
    run(m)
warm = len(table.seen())
for m in range(1, 513):
    run(m)
print(warm, len(table.seen()))
"""


def compiled(mode: str, batches: int = 99) -> tuple[int, int]:
    """Specialisations after a warm-up, and after every M from 1 to 512; nothing is launched."""
    code = COMPILE.format(here=str(HERE), root=str(HERE.parents[1]), mode=mode, batches=batches)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    warm, after = map(int, out.stdout.split())
    return warm, after


@pytest.mark.parametrize("mode", ["none", "mxfp8", "mxfp4"])
def test_nothing_is_compiled_after_a_warm_up(mode):
    warm, after = compiled(mode)
    assert warm == after
    assert warm <= 8, "a layer shape has at most 8 specialisations"


def test_a_shorter_warm_up_would_show():
    warm, after = compiled("none", batches=2)
    assert warm < after
