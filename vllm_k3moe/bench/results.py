"""Tables of results: a CSV whose first line says what it was measured on."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .machine import about


def write(
    out: Path, what: str, columns: Sequence[str], found: Iterator[dict[str, object]], progress: Callable[[str], None]
) -> None:
    """Row by row, written whole or not at all; `what` the figures are, as in "us per front"."""
    partial = out.with_suffix(".partial")
    with partial.open("w", newline="") as file:
        file.write(f"# {what}; {'; '.join(f'{k} {v}' for k, v in about().items())}\n")
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in found:
            writer.writerow(row)
            file.flush()
            progress(", ".join(f"{column} {row[column]}" for column in columns[:6]))
    partial.replace(out)


def read(table: Path) -> tuple[str, list[dict[str, str]]]:
    """What it was measured on, and the rows."""
    about, *lines = table.read_text().splitlines()
    return about.removeprefix("# "), list(csv.DictReader(lines))
