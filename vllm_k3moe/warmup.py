"""Compile everything a layer may launch, by launching it once, before any graph is captured.

A compile later would stall serving for seconds, and vLLM's JIT monitor forbids it. Triton's and FlyDSL's compiled code
is kept in one folder of our own, shared by the ranks and by later starts; both write files by atomic rename, so that
ranks may compile the same kernel at once, and there is no lock that a killed process could leave behind.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import triton

from .cache import FLYDSL_CACHE, private_folder
from .experts import Rows
from .kernels.checks import MAX_TOKENS
from .kernels.shared_expert import FIRST_TOKENS as FIRST_SHARED
from .kernels.situ import MAX_TOKENS as MAX_SHARED
from .method import K3FusedMoEMethod
from .shapes import SITU_BETA, SITU_LINEAR_BETA, MoEShape
from .sort_plan import K3SortPlan
from .tail import warm_up as warm_up_tail

Progress = Callable[[str], None]


@contextmanager
def compiling_into(cache: Path) -> Iterator[None]:
    """Within the block, what Triton and FlyDSL compile is kept in `cache`. A FlyDSL cache the user chose stays his."""
    private_folder(cache)
    own_flydsl = FLYDSL_CACHE not in os.environ
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(private_folder(cache / "triton"))
        if own_flydsl:
            os.environ[FLYDSL_CACHE] = str(private_folder(cache / "flydsl"))
        try:
            yield
        finally:
            if own_flydsl:
                del os.environ[FLYDSL_CACHE]


def token_counts(method: K3FusedMoEMethod, with_shared: bool) -> list[int]:
    """Batch sizes that between them need every specialisation of our kernels and every tile pair."""
    own = {m for plan in method.plans.values() for m in plan.batches()} | set(FIRST_SHARED if with_shared else ())
    return sorted({*(m for m in own if not method.refuses(m)), *method.experts.batches()})


def warm_up(method: K3FusedMoEMethod, device: torch.device, progress: Progress, parts: Collection[str]) -> int:
    """Run each batch size of `token_counts` once on made-up tokens, `parts` of K3MOE_FUSE fused; returns how many."""
    shape, with_shared = method.shape, "shared" in parts
    if "tail" in parts:
        progress("compiling the latent tail")
        warm_up_tail(shape.latent, device)
    counts = token_counts(method, with_shared)
    for done, m in enumerate(counts, 1):
        progress(f"compiling for {m} tokens, {done} of {len(counts)}")
        x = torch.zeros(m, shape.latent, dtype=torch.bfloat16, device=device)
        logits = torch.zeros(m, shape.experts, device=device)
        if with_shared and m <= MAX_SHARED:
            with shared_plan(shape, m, device) as plan:
                method(x, logits, plan)
            if m in FIRST_SHARED:
                with shared_plan(shape, m, device):  # a sort that does not take it leaves it to launches of its own
                    pass
        elif m <= MAX_TOKENS:
            method(x, logits)
        else:  # the router is vLLM's own and compiles nothing of ours
            ids = torch.arange(shape.topk, dtype=torch.int32, device=device).repeat(m, 1)
            sorted, out = method.experts.sort(ids, torch.zeros(m, shape.topk, device=device))
            method.experts.run(Rows(x, None), sorted, out)
    return len(counts)


def shared_plan(shape: MoEShape, num_tokens: int, device: torch.device) -> K3SortPlan:
    """A shared expert of zeros. What is compiled for it depends on its sizes."""

    def zeros(*size: int) -> torch.Tensor:
        return torch.zeros(*size, dtype=torch.bfloat16, device=device)

    weight = zeros(shape.hidden, shape.shared_inter)
    return K3SortPlan(zeros(num_tokens, 2 * shape.shared_inter), weight, SITU_BETA, SITU_LINEAR_BETA)
