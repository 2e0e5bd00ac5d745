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
from vllm_k3moe import warmup
from vllm_k3moe.kernels.latent_tail import latent_tail
from vllm_k3moe.method import K3FusedMoEMethod

class NoExperts:
    mode, description, max_tokens = {mode!r}, "none", 512
    block = staticmethod(lambda m: 16)
    batches = staticmethod(lambda: [7])
    refuses = staticmethod(lambda m: None)
    run = staticmethod(lambda rows, sorted, out: out)

cpu, shape, parts = torch.device("cpu"), table.K3_TP8, {parts!r}
method = K3FusedMoEMethod(shape, torch.empty(shape.experts), NoExperts(), None)
counts = warmup.token_counts
warmup.token_counts = lambda *arguments: counts(*arguments)[: {batches}]
warmup.warm_up(method, cpu, lambda text: None, parts)
warm = len(table.seen())
up, norm = (torch.empty(*size, shape.latent, dtype=torch.bfloat16) for size in ((shape.hidden // 8,), ()))
for m in range(1, 513):
    rows = torch.empty(m, shape.latent + m % 3 * 8, dtype=torch.bfloat16)  # their stride is no specialisation either
    args = rows[:, : shape.latent], torch.empty(m, shape.experts)
    if "tail" in parts and m <= 128:
        latent_tail(args[0], norm, 1e-5, up, torch.empty(m, len(up) + m % 3 * 8, dtype=torch.bfloat16)[:, : len(up)])
    if "shared" in parts and m <= 128:
        for take in (True, False):
            with warmup.shared_plan(shape, m, cpu) as shared:
                take and method(*args, shared)
    else:
        method(*args)
print(warm, len(table.seen()))
"""


def compiled(mode: str, parts: tuple[str, ...], batches: int = 99) -> tuple[int, int]:
    """Specialisations after a warm-up, and after every M from 1 to 512; nothing is launched."""
    code = COMPILE.format(here=str(HERE), root=str(HERE.parents[1]), mode=mode, parts=parts, batches=batches)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    warm, after = map(int, out.stdout.split())
    return warm, after


@pytest.mark.parametrize("mode", ["none", "mxfp8", "mxfp4"])
def test_nothing_is_compiled_after_a_warm_up(mode):
    warm, after = compiled(mode, ("route", "sort"))
    assert warm == after
    assert warm <= 8, "the front of a layer shape has at most 8 specialisations"


def test_nor_with_the_shared_expert():
    """Riding: a front of one, two of launch 1, four of launch 2; three fronts above 128; six alone; the tail."""
    warm, after = compiled("mxfp8", ("route", "sort", "shared", "tail"))
    assert warm == after
    assert warm <= 17


def test_a_shorter_warm_up_would_show():
    warm, after = compiled("none", ("route", "sort"), batches=2)
    assert warm < after
