"""`k3moe bench plot`: the curves of a table that `k3moe bench front` wrote."""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

LINES = {"ours": "vllm-k3moe", "unfused": "our kernels one by one", "torch": "PyTorch", "floor": "an empty kernel"}


def read(table: Path) -> tuple[str, list[dict[str, str]]]:
    """What it was measured on, and the rows."""
    about, *lines = table.read_text().splitlines()
    return about.removeprefix("# "), list(csv.DictReader(lines))


def curves(rows: list[dict[str, str]], mode: str, block: str, kind: str) -> dict[str, tuple[list[int], list[float]]]:
    """Per line of the plot its M and microseconds, the median over the runs."""
    cells: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if (row["mode"], row["block"], row["routing"]) == (mode, block, kind):
            for line in LINES:
                if row[line]:
                    cells[line][int(row["M"])].append(float(row[line]))
    return {line: (sorted(us), [median(us[m]) for m in sorted(us)]) for line, us in cells.items()}


def draw(table: Path, out: Path, mode: str, block: str, kind: str) -> None:
    """Log-log, M against microseconds; the device stands below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    about, rows = read(table)
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for line, (m, us) in curves(rows, mode, block, kind).items():
        axes.plot(m, us, marker="o", markersize=3, label=LINES[line], linestyle=":" if line == "floor" else "-")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted({int(row["M"]) for row in rows}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("tokens M")
    axes.set_ylabel("us per front")
    axes.set_title(f"Route, sort, quantise at Kimi-K3's shape: {mode}, block {block}, {kind} routing")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.24))
    figure.text(0.01, 0.01, about, fontsize=5)
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(out, dpi=150)
