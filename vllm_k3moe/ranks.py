"""What tensor-parallel ranks agree on. Imported beside vLLM only."""

import torch
from vllm.distributed import get_tp_group


def agree(reasons: list[str]) -> list[str]:
    """Under K3MOE=strict all ranks raise or none: one that raised alone would leave the others in a collective.

    That holds at a layer's first call, where it is asked. A later fault ends the rank that has it, and vLLM the others.
    """
    group = get_tp_group()
    if group.world_size == 1:
        return reasons
    bad = torch.tensor([bool(reasons)], dtype=torch.int32)
    torch.distributed.all_reduce(bad, group=group.cpu_group)
    return reasons or (["another rank of this layer has a reason"] if bad.item() else [])
