"""Tile tables of AITER's expert GEMMs: load, check by AITER's build rules, look up. A leaf: standard library only.

A table is a CSV in `tuned/<arch>/`; its comment lines say where each row comes from. A row that AITER could not build
would be an `assert` deep in serving, or nothing at all under `python -O`, so every row is checked when it is loaded.
"""

import csv
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from .shapes import MoEShape

LDS_BYTES = 163840  # of a workgroup on gfx950
TUNED = Path(__file__).parent / "tuned"
SOURCES = ("kept", "5118", "derived")


class TableError(ValueError):
    """A table that must not be used; names the file, the row and the rule."""


@dataclass(frozen=True)
class Tile:
    """One stage's tile: m rows by n columns, k at a time; the fields of AITER's kernel names."""

    m: int
    n: int
    k: int
    k_wave: int  # waves along k; stage 2 has none
    b_nt: int  # non-temporal loads of the weights
    xcd_swizzle: int


@dataclass(frozen=True)
class Row:
    """The tiles of both stages for up to `tokens` tokens. `block`, the sort's, is m of both."""

    tokens: int
    block: int
    stage1: Tile
    stage2: Tile
    source: str


def stage1_errors(tile: Tile, latent: int, inter: int) -> list[str]:
    """Rules of ROCm/aiter's a16w4 gemm1 (e4048607a5) that the tile breaks; D = latent, I = inter."""
    kw = tile.k_wave
    lds = kw * 2 * tile.m * tile.k * 2
    if kw > 1:
        lds = max(lds, 4 * ((tile.n * kw // 4 // 16) * (tile.m // 16)) * 64 * 16)
    return _broken(
        (tile.m > 0 and tile.m % 16 == 0, f"m={tile.m} is not a multiple of 16"),
        (kw in (1, 2, 4), f"kw={kw} is none of 1, 2, 4"),
        (tile.k > 0 and latent % (max(kw, 1) * tile.k) == 0, f"kw*k={kw * tile.k} does not divide D={latent}"),
        (tile.n > 0 and inter % tile.n == 0, f"n={tile.n} does not divide I={inter}"),
        (kw in (1, 2, 4) and tile.n % (16 * (4 // kw)) == 0, f"n={tile.n} is no multiple of 16*(4/kw), kw={kw}"),
        (2 * inter % 256 == 0, f"2*I={2 * inter} is not a multiple of 256"),
        (lds <= LDS_BYTES, f"LDS {lds} bytes, above {LDS_BYTES}"),
    )


def stage2_errors(tile: Tile, latent: int, inter: int) -> list[str]:
    """The same of gemm2."""
    lds = tile.m * tile.k * 2 + tile.m * tile.n * 4
    return _broken(
        (tile.m > 0 and tile.m % 16 == 0, f"m={tile.m} is not a multiple of 16"),
        (tile.k > 0 and inter % tile.k == 0, f"k={tile.k} does not divide I={inter}"),
        (tile.n > 0 and latent % tile.n == 0, f"n={tile.n} does not divide D={latent}"),
        (tile.n % 64 == 0, f"n={tile.n} is not a multiple of 64"),
        (lds <= LDS_BYTES, f"LDS {lds} bytes, above {LDS_BYTES}"),
    )


def _broken(*rules: tuple[bool, str]) -> list[str]:
    return [text for holds, text in rules if not holds]


@dataclass(frozen=True)
class TileTable:
    """Rows by ascending token count, all of them buildable for one shape."""

    name: str
    rows: tuple[Row, ...]

    @property
    def max_tokens(self) -> int:
        return self.rows[-1].tokens

    def row(self, num_tokens: int) -> Row:
        """The row that serves `num_tokens`; ValueError above the last or below 1."""
        if not 1 <= num_tokens <= self.max_tokens:
            raise ValueError(f"{num_tokens} tokens; table {self.name} serves 1 to {self.max_tokens}")
        return self.rows[bisect_left(self.rows, num_tokens, key=lambda row: row.tokens)]

    def batches(self) -> list[int]:
        """For each distinct pair of tiles the smallest token count that takes it: what there is to compile."""
        first, seen, counts = 1, set(), []
        for row in self.rows:
            if (pair := (row.stage1, row.stage2)) not in seen:
                seen.add(pair)
                counts.append(first)
            first = row.tokens + 1
        return counts


def _read(name: str, shape: MoEShape, file: Path) -> TileTable:
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    rows: list[Row] = []
    for number, fields in enumerate(csv.DictReader(lines), 1):
        where = f"{name}, row {number}"
        try:
            source = fields.pop("source")
            v = {key: int(value) for key, value in fields.items()}
            tokens, block = v["tokens"], v["block"]
            stage1 = Tile(block, v["n1"], v["k1"], v["kw1"], v["bnt1"], v["xcd1"])
            stage2 = Tile(block, v["n2"], v["k2"], 1, v["bnt2"], v["xcd2"])
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(f"{where}: {error!r}; every column holds a whole number but the last, source") from error
        errors = [f"stage 1: {e}" for e in stage1_errors(stage1, shape.latent, shape.inter)]
        errors += [f"stage 2: {e}" for e in stage2_errors(stage2, shape.latent, shape.inter)]
        errors += _broken(
            (source in SOURCES, f"source {source!r} is none of {', '.join(SOURCES)}"),
            (tokens > (rows[-1].tokens if rows else 0), f"tokens={tokens} does not ascend"),
        )
        if errors:
            raise TableError(f"{where} (tokens={tokens}): {'; '.join(errors)}")
        rows.append(Row(tokens, block, stage1, stage2, source))
    if not rows:
        raise TableError(f"{name}: no rows")
    return TileTable(name, tuple(rows))


def load(arch: str, mode: str, shape: MoEShape, folder: Path = TUNED) -> TileTable:
    """The table `tuned/<arch>/<mode>-i<I>.csv`; TableError if it is missing or a row breaks a rule."""
    name = f"{arch}/{mode}-i{shape.inter}.csv"
    file = folder / arch / f"{mode}-i{shape.inter}.csv"
    if not file.is_file():
        raise TableError(f"no tile table {name}")
    return _read(name, shape, file)
