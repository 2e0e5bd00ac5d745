"""Tensor parallelism over two processes: all of a layer fused, none of it, and ranks that do not agree.

Each rank builds vLLM's KimiMoE at the shape of a TP8 rank, with experts of its own, and reduces over gloo. On rank 1
the later layers meet another stage 1 of AITER, which its canary finds. vLLM's own path is vLLM's down to the operation
`rocm_aiter_fused_moe`, which `cpu_ops` computes by the stand-in's stages.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from vllm_k3moe.reference.block import LatentMoEWeights, latent_partials, latent_tail
from vllm_k3moe.shapes import K3_TP8, NORM_EPS

pytestmark = pytest.mark.on("gfx950")
BF16 = 0.01  # as in test_forward.py
RANK = Path(__file__).with_name("rank.py")
LIMIT = 300  # seconds; two busy cores need about 60


def tokens() -> torch.Tensor:
    from rank import TOKENS

    return torch.randn(TOKENS, K3_TP8.hidden, generator=torch.Generator().manual_seed(5)).to(torch.bfloat16)


def ended(processes: list[subprocess.Popen]) -> list[int]:
    """Their exit statuses; negative where one had to be killed."""
    deadline = time.monotonic() + LIMIT
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    return [process.wait() for process in processes]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict[str, Any]]:
    """What each rank saw, by scenario."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.save(tokens(), folder / "x.pt")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("K3MOE")}
    environment |= {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "VLLM_ROCM_USE_AITER_MOE_SITUV2": "a16w4",
        "K3MOE_CACHE": str(folder / "cache"),
    }
    logs = [folder / f"log{rank}" for rank in range(2)]
    processes = []
    for rank, log in enumerate(logs):
        with log.open("w") as out:
            command = [sys.executable, RANK, str(rank), folder]
            processes.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
    try:
        codes = ended(processes)
    finally:
        for process in processes:
            process.kill()
    assert codes == [0, 0], "\n".join(log.read_text()[-4000:] for log in logs)
    return [torch.load(folder / f"rank{rank}.pt") | {"log": log.read_text()} for rank, log in enumerate(logs)]


@pytest.fixture(scope="module")
def whole() -> LatentMoEWeights:
    import layers
    from rank import RANKS, SEED

    return layers.whole(SEED, RANKS)


@pytest.fixture(scope="module")
def partials(whole) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The oracle's partial sums of each rank: latent, shared."""
    import layers
    from rank import RANKS, SEED

    return [latent_partials(tokens(), layers.share(whole, SEED, rank), K3_TP8.topk) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def want(whole, partials) -> torch.Tensor:
    """The oracle's layer: the ranks' partial sums added, then the tail."""
    latent, shared = (sum(parts) for parts in zip(*partials, strict=True))
    return latent_tail(latent, shared, whole.norm, whole.latent_up, NORM_EPS)


def assert_right(found: list[dict[str, Any]], want: torch.Tensor) -> None:
    first, second = (one["out"] for one in found)
    assert torch.equal(first, second)  # the same bits on both ranks
    assert float((first.float() - want).norm() / want.norm()) < BF16


def test_both_ranks_are_fused_and_right(ranks, want):
    """Under K3MOE=strict, so they have agreed that neither has a reason."""
    found = [rank["sound"] for rank in ranks]
    for one in found:
        assert (one["error"], one["class"]) == ("", "K3LatentMoERunner")
        assert (one["reasons"], one["fallback"]) == ([], {})
        assert (one["fused"], one["shared"], one["tail"], one["vLLM's sharded tail"]) == (1, 1, 1, False)
    assert_right(found, want)


def test_they_are_the_stock_runner_to_its_rounding(ranks, want):
    """With K3MOE_FUSE=none every step is vLLM's; ours is not farther from the oracle."""
    found, fused = [rank["stock"] for rank in ranks], ranks[0]["sound"]["out"].float()
    for one in found:
        assert (one["error"], one["fused"], one["shared"], one["tail"]) == ("", 0, 0, 0)
        assert one["vLLM's sharded tail"]
    assert_right(found, want)
    stock = found[0]["out"].float()
    assert float((fused - stock).norm() / want.norm()) < BF16
    assert float((fused - want).norm()) < 1.05 * float((stock - want).norm())


def test_a_rank_left_out_would_be_noticed(whole, partials, want):
    """The limit tells a sum over both ranks from one without the other's experts."""
    latent, shared = partials[0]
    alone = latent_tail(latent, shared, whole.norm, whole.latent_up, NORM_EPS)
    assert float((alone - want).norm() / want.norm()) > 10 * BF16


def test_strict_raises_on_both_ranks(ranks):
    """One that went on alone would wait for the other in a collective until its timeout."""
    healthy, broken = (rank["strict"] for rank in ranks)
    assert healthy["error"].startswith("InactiveError: k3moe inactive: another rank of this layer has a reason")
    assert broken["error"].startswith("InactiveError: k3moe inactive: canary: expert 895 differs")
    assert healthy["fused"] == broken["fused"] == 0


def test_auto_falls_back_on_the_broken_rank_alone(ranks, want):
    """Rank 1's stage 1 is still wrong, so the result shows that nothing of rank 1 came from it."""
    found = [rank["auto"] for rank in ranks]
    healthy, broken = found
    assert (healthy["reasons"], healthy["fused"], healthy["fallback"], healthy["tail"]) == ([], 1, {}, 1)
    [reason] = broken["reasons"]
    assert reason.startswith("canary: expert 895 differs")
    assert (broken["fused"], broken["fallback"], broken["tail"]) == (0, {reason: 1}, 0)
    assert_right(found, want)


def test_each_rank_logs_what_it_found(ranks):
    """The first rank cannot speak for the others: they may have nothing to say, or something else."""
    healthy, broken = (rank["log"] for rank in ranks)
    assert "k3moe active: " in healthy
    [line] = [line for line in broken.splitlines() if "k3moe inactive: canary: expert 895 differs" in line]
    assert " in model.layers." in line
