"""The table of docs/memory.md: which code Triton makes on gfx950 of loads, stores, atomics and barriers."""

import re

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.on("gfx950")
# what reaches memory and what orders it, less registers and addresses
CODE = re.compile(r"\t(?:buffer_|global_)?((?:load|store|atomic|wbl2|inv|s_barrier|s_waitcnt vmcnt\(0\))\w*)[^;\n]*")


@triton.jit
def load_kernel(x, y, how: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    if how == "volatile":
        tl.store(y + o, tl.load(x + o, volatile=True))
    else:
        tl.store(y + o, tl.load(x + o, cache_modifier=how))


@triton.jit
def store_kernel(x, y, how: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    if how == "barrier":
        tl.store(x + o, o)
        tl.debug_barrier()
        tl.store(y + o, o)
    else:
        tl.store(x + o, o, cache_modifier=how)


@triton.jit
def atomic_kernel(x, y, how: tl.constexpr, scope: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(x + o, o)
    tl.store(x, tl.atomic_add(y, 1, sem=how, scope=scope))


def code(kernel, **constants) -> str:
    x, y = torch.zeros(256, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    lines = kernel[(1,)](x, y, **constants, B=256).asm["amdgcn"].splitlines()
    found = [m for m in map(CODE.match, lines) if m]
    return "; ".join(" ".join([m[1], *re.findall(r"\b(?:sc0|sc1|nt)\b", m[0])]) for m in found)


LOADS = {
    "": "load_dword",
    ".ca": "load_dword",
    "volatile": "load_dword",
    ".cg": "load_dword sc0 nt",
    ".cv": "load_dword sc0 sc1",
}
STORES = {
    "": "store_dword",
    ".wb": "store_dword",
    ".cg": "store_dword",
    ".cs": "store_dword sc0 nt",
    ".wt": "store_dword sc0 sc1",
    "barrier": "store_dword; s_barrier; store_dword",
}
RELEASE, ACQUIRE = "s_barrier; wbl2 sc1; s_waitcnt vmcnt(0); ", "; s_waitcnt vmcnt(0); inv sc1"
ATOMICS = {
    ("relaxed", "gpu"): "atomic_add sc0",
    ("release", "gpu"): RELEASE + "atomic_add sc0",
    ("acquire", "gpu"): "atomic_add sc0" + ACQUIRE,
    ("acq_rel", "gpu"): RELEASE + "atomic_add sc0" + ACQUIRE,
    ("acq_rel", "cta"): "s_barrier; atomic_add sc0",
    (
        "acq_rel",
        "sys",
    ): "s_barrier; wbl2 sc0 sc1; s_waitcnt vmcnt(0); atomic_add sc0 sc1; s_waitcnt vmcnt(0); inv sc0 sc1",
}


@pytest.mark.parametrize("how", LOADS)
def test_load(how):
    assert code(load_kernel, how=how) == LOADS[how] + "; s_waitcnt vmcnt(0); store_dword"


@pytest.mark.parametrize("how", STORES)
def test_store(how):
    assert code(store_kernel, how=how) == STORES[how]


@pytest.mark.parametrize("how, scope", ATOMICS)
def test_atomic(how, scope):
    """After a plain store: nothing waits for it but a release, and that by the barrier and one wave's write-back."""
    found = code(atomic_kernel, how=how, scope=scope)
    assert found.startswith("store_dword; " + ATOMICS[how, scope])
    assert found.count("inv") == (how in ("acquire", "acq_rel") and scope != "cta")
