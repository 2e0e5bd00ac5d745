"""Run the kernel tests on this machine's GPU and write down what passed where.

    python benchmarks/gpu_tests.py benchmarks/results/h200-tests.csv

A row per test function: how many of its cases passed and failed, and their seconds. Exit status is pytest's.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from collections import defaultdict
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import torch
import triton

ROOT = Path(__file__).parents[1]


def device() -> str:
    """Name, driver and power cap of the first GPU; of an AMD one, name and architecture."""
    if torch.version.hip:
        properties = torch.cuda.get_device_properties(0)
        return f"{properties.name}, {properties.gcnArchName}, HIP {torch.version.hip}"
    query = ["nvidia-smi", "-i", "0", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"]
    name, driver, power = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    return f"{name}, driver {driver}, power cap {power}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("pytest", nargs="*", help="options for pytest, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--backend", "gpu"]
        command += ["tests/kernels", f"--junitxml={report}", *arguments.pytest]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    tests: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for case in cases:
        row = tests[case.get("classname", "").rpartition(".")[2], case.get("name", "").partition("[")[0]]
        row[len(case) > 0] += 1  # a case that failed, errored or was skipped holds an element that says so
        row[2] += float(case.get("time", 0))
    written = arguments.out.with_suffix(".partial")
    with written.open("w", newline="") as file:
        file.write(f"# {device()}; torch {torch.__version__}, triton {triton.__version__}; {date.today()}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("file", "test", "passed", "not passed", "seconds"))
        writer.writerows((*name, row[0], row[1], f"{row[2]:.1f}") for name, row in sorted(tests.items()))
    written.replace(arguments.out)
    return status


if __name__ == "__main__":
    sys.exit(main())
