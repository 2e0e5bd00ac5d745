"""gfx950 code of what a layer launches on fp32 logits and bias, zeroing its output: its needs and its length.

    python tests/codegen/table.py [--block 16 ...] > benchmarks/results/gfx950-codegen.csv

Compiled on the CPU for GPUTarget("hip", "gfx950", 64); nothing ran on a device, and an instruction count is not a time.
"""

import argparse
import csv
import re
import sys
from pathlib import Path

import torch
import triton
from compile_only import GFX950, activate

sys.path.insert(0, str(Path(__file__).parents[2]))

from vllm_k3moe.kernels import (
    latent_tail,
    moe_sort,
    mx,
    route_sort,
    route_sort_mid,
    shared_expert,
    shared_token,
    situ,
    token_sort,
)  # fmt: skip
from vllm_k3moe.kernels import topk as router
from vllm_k3moe.plan import RoutePlan
from vllm_k3moe.shapes import K3_TP8, NORM_EPS, SITU_BETA, SITU_LINEAR_BETA
from vllm_k3moe.sort_plan import K3SortPlan

LABELS = ("kernel", "tokens", "mode", "block")
FIGURES = ("waves", "vgpr", "sgpr", "lds", "spills", "scratch", "instructions", "atomics", "cache_ops")
KERNELS = (
    router._topk,
    mx._quantise,
    moe_sort._expert_masks,
    moe_sort._sort,
    route_sort._route_sort,
    route_sort_mid._route_quantise,
    token_sort._sort_by_token,
    situ._situ,
    shared_expert._shared_down,
    shared_token._shared_token,
    latent_tail._latent_tail,
)
SORT_BUCKETS = ((32, "to 32"), (128, "33 to 128"), (512, "129 to 512"))
DOWN_BUCKETS = ((1, "1"), (2, "2 to 16"), (17, "17 to 32"), (33, "33 to 64"), (65, "65 to 128"))
FRONT_BUCKETS = ((2, "2 to 16"), (17, "17 to 32"), (33, "33 to 128"), (129, "129 to 256"), (257, "257 to 512"))
BETAS = (SITU_BETA, SITU_LINEAR_BETA)
RIDERS = {
    route_sort._route_sort: " | shared_token",
    route_sort_mid._route_quantise: " | situ",
    token_sort._sort_by_token: " | shared_down",
}
NAMES = {kernel: kernel.__name__.lstrip("_") for kernel in KERNELS}


def figures(compiled) -> dict[str, int]:
    """Read one compiled kernel's needs off its assembly."""
    asm = compiled.asm["amdgcn"]

    def metadata(key: str) -> int:
        return int(re.search(rf"\.{key}:\s*(\d+)", asm)[1])

    code = [m[1] for m in re.finditer(r"^\t([a-z]\w+)", asm, re.MULTILINE)]
    return {
        "waves": compiled.metadata.num_warps,
        "vgpr": metadata("vgpr_count"),
        "sgpr": metadata("sgpr_count"),
        "lds": compiled.metadata.shared,
        "spills": metadata("vgpr_spill_count") + metadata("sgpr_spill_count"),
        "scratch": metadata("private_segment_fixed_size"),
        "instructions": len(code),
        "atomics": sum("_atomic_" in name for name in code),
        "cache_ops": sum(name in ("buffer_wbl2", "buffer_inv") for name in code),
    }


def seen() -> set:
    return {(kernel, key) for kernel in KERNELS for cache in kernel.device_caches.values() for key in cache[0]}


def rows(blocks: tuple[int, ...], modes: tuple[str, ...]) -> list[dict[str, object]]:
    """Launch everything a plan may launch, wherever its crossover lies, and read what that newly compiled."""
    table = []

    def record(launch, tokens: object, mode: str, block: object, riding: bool = False) -> None:
        before = seen()
        launch()
        for kernel, key in sorted(seen() - before, key=lambda item: NAMES[item[0]]):
            [cache] = kernel.device_caches.values()
            # a kernel without blocks is compiled once for all blocks, and for all tokens but where its slices differ
            own: dict[str, object] = {"tokens": "any", "block": ""}
            if "BLOCK" in kernel.arg_names:
                own = {"tokens": tokens, "block": block}
            elif kernel in (shared_expert._shared_down, shared_token._shared_token):
                own["tokens"] = tokens
            elif kernel is route_sort_mid._route_quantise:
                own["tokens"] = f"{str(tokens).partition(' ')[0]} and up"
            labels = {"kernel": NAMES[kernel] + (RIDERS[kernel] if riding else ""), "mode": mode} | own
            table.append(labels | figures(cache[0][key]))

    def tensors(m: int):
        return (
            torch.empty(m, K3_TP8.latent, dtype=torch.bfloat16),
            torch.empty(m, K3_TP8.experts),
            torch.empty(K3_TP8.experts),
        )

    def launch(front, plan: RoutePlan, m: int) -> None:
        x, logits, bias = tensors(m)
        front(logits, bias, x, plan.allocate(m, x.device), block=plan.block, mode=plan.mode)

    def launch_shared(plan: RoutePlan, m: int) -> None:
        x, logits, bias = tensors(m)
        with K3SortPlan(gate_up[:m], weight, *BETAS) as shared:
            plan(x, logits, bias, shared)

    def launch_tail() -> None:
        up = torch.empty(K3_TP8.hidden // 8, K3_TP8.latent, dtype=torch.bfloat16)
        latent_tail.latent_tail(x[:1], up[0], NORM_EPS, up, torch.empty(1, len(up), dtype=torch.bfloat16))

    x, logits, bias = tensors(512)

    def sort(m: int, block: int) -> None:
        moe_sort.moe_sort(ids[:m], weights[:m], K3_TP8.experts, block)

    ids, weights = torch.empty(512, K3_TP8.topk, dtype=torch.int32), torch.empty(512, K3_TP8.topk)
    record(lambda: router.topk(logits, bias, K3_TP8.topk), "any", "", "")
    gate_up = torch.empty(128, 2 * K3_TP8.shared_inter, dtype=torch.bfloat16)
    weight = torch.empty(K3_TP8.hidden, K3_TP8.shared_inter, dtype=torch.bfloat16)
    for m, label in DOWN_BUCKETS:
        record(lambda m=m: shared_expert.shared_expert(gate_up[:m], weight, *BETAS), label, "", "")
    record(launch_tail, "any", "", "")
    for mode in modes:
        if mode != mx.NONE:
            record(lambda mode=mode: mx.quantise(x, mode), "any", mode, "")
    for block in blocks:
        for m, label in SORT_BUCKETS:
            record(lambda m=m, block=block: sort(m, block), label, "", block)
        for mode in modes:
            plan = RoutePlan(K3_TP8, mode, block)
            record(lambda plan=plan: launch(route_sort.route_sort, plan, 1), "1", mode, block)
            for m, label in FRONT_BUCKETS:
                record(lambda m=m, plan=plan: launch(route_sort_mid.route_sort_mid, plan, m), label, mode, block)
            for m, label in DOWN_BUCKETS:
                record(lambda m=m, plan=plan: launch_shared(plan, m), label, mode, block, riding=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--block", type=int, nargs="+", default=(16, 32, 64, 128))
    parser.add_argument("--mode", nargs="+", default=mx.MODES)
    arguments = parser.parse_args()
    activate(GFX950)
    print(f"# gfx950 code generation on a CPU, triton {triton.__version__}; no device was involved")
    writer = csv.DictWriter(sys.stdout, (*LABELS, *FIGURES), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(tuple(arguments.block), tuple(arguments.mode)))


if __name__ == "__main__":
    main()
