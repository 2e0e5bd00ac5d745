"""`k3moe bench plot`: the curves of a table that another `k3moe bench` wrote."""

from collections import defaultdict
from pathlib import Path
from statistics import median

from .results import read

FRONT = {"ours": "vllm-k3moe", "unfused": "our kernels one by one", "torch": "PyTorch", "floor": "an empty kernel"}
GLUE = {
    "ours": "all small launches, vllm-k3moe",
    "unfused": "all, one by one",
    "A+B": "front and shared expert, two launches",
    "in turn": "the same, one after the other",
    "aside": "the same, shared expert on a side stream",
    "stock tail": "latent tail, PyTorch",
    "tail": "latent tail, one launch",
}
Lines = dict[str, tuple[list[int], list[float]]]


def curves(rows: list[dict[str, str]], names: dict[str, str], of: dict[str, str]) -> Lines:
    """Per line of the plot its M and microseconds, the median over the runs, of the rows that are `of` these values."""
    cells: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if of.items() <= row.items():
            for line in names:
                if row[line]:
                    cells[line][int(row["M"])].append(float(row[line]))
    return {line: (sorted(us), [median(us[m]) for m in sorted(us)]) for line, us in cells.items()}


def draw(table: Path, out: Path, mode: str, block: str, kind: str) -> None:
    """M against microseconds, both logarithmic; the device stands below. Mode, block, kind: rows of a front's table."""
    about, rows = read(table)
    if "A+B" in rows[0]:
        title = "A layer's small launches at Kimi-K3's shape, mxfp8, block 32, uniform routing"
        sketch(about, curves(rows, GLUE, {}), GLUE, title, out)
    else:
        title = f"Route, sort, quantise at Kimi-K3's shape: {mode}, block {block}, {kind} routing"
        sketch(about, curves(rows, FRONT, {"mode": mode, "block": block, "routing": kind}), FRONT, title, out)


def sketch(about: str, lines: Lines, names: dict[str, str], title: str, out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for line, (m, us) in lines.items():
        axes.plot(m, us, marker="o", markersize=3, label=names[line], linestyle=":" if line == "floor" else "-")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted({m for counts, _ in lines.values() for m in counts}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("tokens M")
    axes.set_ylabel("us")
    axes.set_title(title, fontsize=10)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.text(0.01, 0.01, about, fontsize=5)
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(out, dpi=150)
