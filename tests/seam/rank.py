"""One of two tensor-parallel ranks: test_two_ranks.py starts both and reads what they save.

python tests/seam/rank.py RANK FOLDER
"""

import os
import resource
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "platform"), str(HERE), str(HERE.parent)]
RANKS, SEED, TOKENS = 2, 11, 3
PATIENCE = 120  # seconds; a rank that waits longer for the other ends with an error


def other_betas(*arguments: Any, situ_beta: float, situ_linear_beta: float, **named: Any) -> Any:
    """Stage 1 of an AITER whose two betas changed places: what the canary is for."""
    from aiter import stages

    return stages.flydsl_moe_stage1(*arguments, situ_beta=situ_linear_beta, situ_linear_beta=situ_beta, **named)


def one_batch(method: Any, with_shared: bool) -> list[int]:
    """What to warm up: what is run here. All sizes take 20 s on the emulator; test_warmup_command.py has them."""
    return [TOKENS]


def start(rank: int, folder: Path) -> Any:
    """vLLM in this process as one rank of two; the engine's configuration."""
    import backends

    backends.start("gfx950")
    import cpu_ops
    import layers
    import torch

    torch.set_num_threads(1)
    cpu_ops.install()
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.plugins import load_general_plugins
    from vllm.v1.worker.workspace import init_workspace_manager

    load_general_plugins()
    cpu_ops.install_vllm_ops()
    cpu_ops.install_gloo()
    init_workspace_manager(torch.device("cpu"))  # vLLM's own path asks it for buffers; a worker sets it up
    (folder / f"config{rank}").mkdir()
    config = layers.engine_config(
        folder / f"config{rank}",
        layers.text_config(tp=RANKS),
        load_format="auto",
        tensor_parallel_size=RANKS,
        distributed_executor_backend="mp",
        distributed_timeout_seconds=PATIENCE,
        cpu_distributed_timeout_seconds=PATIENCE,
    )
    with set_current_vllm_config(config):
        init_distributed_environment(RANKS, rank, f"file://{folder / 'store'}", rank, backend="gloo")
        initialize_model_parallel(RANKS, 1, backend="gloo")
    return config


def load(config: Any, rank: int) -> Any:
    """The layer, filled and post-processed; one rank after the other, since that needs the memory."""
    import layers
    from vllm.distributed import get_tp_group

    moe = layers.build(config)
    layers.fill(moe, layers.whole(SEED, RANKS), layers.Experts(SEED + rank))
    for turn in range(RANKS):
        if turn == rank:
            layers.post_process(moe)
        get_tp_group().barrier()
    return moe


def unprepared(moe: Any, config: Any) -> Any:
    """Another layer on the weights of `moe`: its runner reads the environment and prepares itself anew."""
    import layers

    other = layers.build(config, "meta")
    other.experts.routed_experts = moe.experts.routed_experts
    other.experts.router.e_score_correction_bias = moe.experts.router.e_score_correction_bias
    for name, parameter in moe.named_parameters():
        if "routed_experts" not in name:
            parent, _, leaf = name.rpartition(".")
            setattr(other.get_submodule(parent), leaf, parameter)
    return other


def observe(moe: Any, config: Any, x: Any) -> dict[str, Any]:
    """One forward, and what there is to say about it."""
    import layers

    from vllm_k3moe.counters import CALLS
    from vllm_k3moe.runner import InactiveError

    CALLS.fused, CALLS.shared_fused, CALLS.tail_fused = 0, 0, 0
    CALLS.fallback.clear()
    CALLS.tail_fallback.clear()
    out, error = None, ""
    try:
        out = layers.forward(moe, config, x)
    except InactiveError as caught:  # anything else ends this process, and the other one's collective with it
        error = f"InactiveError: {caught}"
    runner = moe.experts
    return {
        "out": out, "error": error, "class": type(runner).__name__, "reasons": runner._k3_reasons,
        "fused": CALLS.fused, "shared": CALLS.shared_fused, "tail": CALLS.tail_fused,
        "fallback": dict(CALLS.fallback), "vLLM's sharded tail": runner._logged_sharded_tail,
    }  # fmt: skip


def main(rank: int, folder: Path) -> None:
    config = start(rank, folder)
    import aiter
    import torch
    from vllm.distributed import get_tp_group

    from vllm_k3moe import warmup

    warmup.token_counts = one_batch
    x, found = torch.load(folder / "x.pt"), {}
    os.environ["K3MOE"] = "strict"
    moe = load(config, rank)
    found["sound"] = observe(moe, config, x)
    os.environ["K3MOE_FUSE"] = "none"
    found["stock"] = observe(unprepared(moe, config), config, x)
    del os.environ["K3MOE_FUSE"]
    if rank == 1:
        aiter.DO["flydsl_moe_stage1"] = other_betas
    for mode in ("strict", "auto"):
        os.environ["K3MOE"] = mode
        found[mode] = observe(unprepared(moe, config), config, x)
        get_tp_group().barrier()
    torch.save(found, folder / f"rank{rank}.pt")
    print("peak MiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
