"""Resources, occupancy and instruction coverage of gfx950 code objects: python -m gfx950emu FILE.hsaco ..."""

import argparse
import json
from pathlib import Path

from .code_object import CodeObject
from .coverage import coverage
from .kernel import Kernel
from .wave import LANES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gfx950emu", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("hsaco", nargs="+", type=Path)
    parser.add_argument("--num-warps", type=int, help="waves of a workgroup; default: as many as it may have")
    parser.add_argument("--lds", type=int, default=0, help="dynamic LDS in bytes")
    arguments = parser.parse_args()
    for path in arguments.hsaco:
        blob = path.read_bytes()
        for name in CodeObject(blob).kernel_names():
            most = CodeObject(blob).kernel(name).metadata.get(".max_flat_workgroup_size", LANES)
            kernel = Kernel(blob, name, arguments.num_warps or max(most // LANES, 1), arguments.lds)
            print(path, name)
            print("  resources", json.dumps({k: v for k, v in kernel.resources().items() if v}))
            print("  occupancy", json.dumps(kernel.occupancy()))
            print("  coverage ", json.dumps(coverage(kernel)))


if __name__ == "__main__":
    main()
