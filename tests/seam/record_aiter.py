"""Write down the signatures and values of AITER that we use, from its source: no import, no GPU.

python tests/seam/record_aiter.py PATH-OF-AN-AITER-CHECKOUT > tests/data/aiter-<commit>.json
"""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# public name: the file that defines it
FUNCTIONS = {
    "aiter.ops.flydsl.flydsl_moe_stage1": "aiter/ops/flydsl/moe_kernels.py",
    "aiter.ops.flydsl.flydsl_moe_stage2": "aiter/ops/flydsl/moe_kernels.py",
    "aiter.fused_moe.moe_sorting": "aiter/fused_moe.py",
    "aiter.fused_moe.get_2stage_cfgs": "aiter/fused_moe.py",
    "aiter.fused_moe.get_padded_M": "aiter/fused_moe.py",
    "aiter.ops.shuffle.shuffle_weight_a16w4": "aiter/ops/shuffle.py",
    "aiter.ops.shuffle.shuffle_scale_a16w4": "aiter/ops/shuffle.py",
    "aiter.utility.fp4_utils.e8m0_shuffle": "aiter/utility/fp4_utils.py",
}
ENUMS = {
    "aiter.ops.flydsl.moe_common.GateMode": "aiter/ops/flydsl/moe_common.py",
    "aiter.QuantType": "csrc/include/aiter_enum.h",
    "aiter.ActivationType": "csrc/include/aiter_enum.h",
}


def parameters(function: ast.FunctionDef) -> str:
    """As in a definition, every default written as `...`."""
    a = function.args
    plain = [*a.posonlyargs, *a.args]
    without_default = len(plain) - len(a.defaults)
    out = [p.arg if i < without_default else f"{p.arg}=..." for i, p in enumerate(plain)]
    keyword = [p.arg if d is None else f"{p.arg}=..." for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    return ", ".join([*out, *(["*", *keyword] if keyword else [])])


def find(tree: ast.Module, name: str, kind: type) -> Any:
    return next(node for node in ast.walk(tree) if isinstance(node, kind) and getattr(node, "name", None) == name)


def main() -> None:
    root = Path(sys.argv[1])
    commit = subprocess.check_output(["git", "-C", root, "rev-parse", "HEAD"], text=True).strip()
    record: dict = {"repository": "ROCm/aiter", "commit": commit, "functions": {}, "enums": {}}
    for name, file in FUNCTIONS.items():
        tree = ast.parse((root / file).read_text())
        record["functions"][name] = parameters(find(tree, name.rpartition(".")[2], ast.FunctionDef))
    for name, file in ENUMS.items():
        if file.endswith(".py"):
            body = find(ast.parse((root / file).read_text()), name.rpartition(".")[2], ast.ClassDef).body
            values = {ast.unparse(n.targets[0]): ast.literal_eval(n.value) for n in body if isinstance(n, ast.Assign)}
        else:
            text = (root / file).read_text().split(f"enum class {name.rpartition('.')[2]}")[1]
            lines = [line.split("//")[0] for line in text[text.index("{") + 1 : text.index("}")].splitlines()]
            values, following = {}, 0
            for entry in filter(None, (part.strip() for part in " ".join(lines).split(","))):
                key, _, value = (part.strip() for part in entry.partition("="))
                following = int(value) if value else following
                values[key] = following
                following += 1
        record["enums"][name] = values
    json.dump(record, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
