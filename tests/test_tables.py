"""Tile tables: what is shipped, look-up, and each of AITER's build rules."""

import dataclasses

import pytest

from vllm_k3moe import tables
from vllm_k3moe.shapes import K3_TP8
from vllm_k3moe.tables import Tile, stage1_errors, stage2_errors

pytestmark = pytest.mark.host
HEADER = "tokens,block,n1,k1,kw1,bnt1,xcd1,n2,k2,bnt2,xcd2,source"
GOOD = "512,16,128,128,1,2,4,128,128,2,0,kept"


@pytest.fixture
def shipped():
    return tables.load("gfx950", "a16w4", K3_TP8)


def written(folder, *rows):
    (folder / "gfx950").mkdir()
    (folder / "gfx950" / "a16w4-i384.csv").write_text("\n".join(["# a comment", HEADER, *rows]) + "\n")
    return tables.load("gfx950", "a16w4", K3_TP8, folder)


@pytest.mark.parametrize(
    "m, block, n1, n2",
    [
        (1, 16, 32, 128),
        (3, 16, 64, 128),
        (512, 16, 128, 128),
        (513, 32, 128, 128),
        (1025, 32, 192, 256),
        (2048, 32, 192, 256),
    ],
)
def test_published_geometry(shipped, m, block, n1, n2):
    """16-row blocks to 512 tokens, 32 at 1024, n 192 and 256 from 2048 on: ROCm/aiter pull request 5118."""
    row = shipped.row(m)
    assert (row.block, row.stage1.m, row.stage2.m, row.stage1.n, row.stage2.n) == (block, block, block, n1, n2)


def test_a_row_serves_up_to_its_own_count(shipped):
    for row in shipped.rows:
        assert shipped.row(row.tokens) is row
    for below, row in zip(shipped.rows, shipped.rows[1:], strict=False):
        assert shipped.row(below.tokens + 1) is row


@pytest.mark.parametrize("m", [0, -1, 16385])
def test_counts_that_no_row_serves(shipped, m):
    with pytest.raises(ValueError, match=rf"{m} tokens; table gfx950/a16w4-i384.csv serves 1 to 16384"):
        shipped.row(m)


def test_batches_take_every_pair_of_tiles(shipped):
    pairs = {(row.stage1, row.stage2) for row in shipped.rows}
    taken = [shipped.row(m) for m in shipped.batches()]
    assert {(row.stage1, row.stage2) for row in taken} == pairs
    assert len(taken) == len(pairs)


GEMM1 = Tile(m=16, n=128, k=256, k_wave=1, b_nt=2, xcd_swizzle=0)
GEMM2 = Tile(m=16, n=128, k=128, k_wave=1, b_nt=2, xcd_swizzle=0)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"m": 24}, "m=24 is not a multiple of 16"),
        ({"n": 256}, "n=256 does not divide I=384"),
        ({"n": 96}, "n=96 is no multiple of 16*(4/kw), kw=1"),
        ({"k": 192}, "kw*k=192 does not divide D=3584"),
        ({"k": 512, "k_wave": 4}, "kw*k=2048 does not divide D=3584"),
        ({"k_wave": 3}, "kw=3 is none of 1, 2, 4"),
        ({"m": 256, "k": 256}, "LDS 262144 bytes, above 163840"),
    ],
)
def test_rule_of_gemm1(change, words):
    assert stage1_errors(GEMM1, 3584, 384) == []
    assert words in stage1_errors(dataclasses.replace(GEMM1, **change), 3584, 384)


def test_gemm1_needs_an_even_width():
    assert "2*I=320 is not a multiple of 256" in stage1_errors(dataclasses.replace(GEMM1, n=32, k_wave=2), 3584, 160)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"k": 256}, "k=256 does not divide I=384"),
        ({"n": 384}, "n=384 does not divide D=3584"),
        ({"n": 32}, "n=32 is not a multiple of 64"),
        ({"m": 8}, "m=8 is not a multiple of 16"),
        ({"m": 144, "n": 256}, "LDS 184320 bytes, above 163840"),
    ],
)
def test_rule_of_gemm2(change, words):
    assert stage2_errors(GEMM2, 3584, 384) == []
    assert words in stage2_errors(dataclasses.replace(GEMM2, **change), 3584, 384)


def test_the_largest_tile_that_builds():
    """m=128, n=256, k=128 takes exactly the LDS there is."""
    assert stage2_errors(Tile(128, 256, 128, 1, 0, 0), 3584, 384) == []


@pytest.mark.parametrize(
    "rows, words",
    [
        ([GOOD.replace("128,128,1", "256,128,1")], "row 1 (tokens=512): stage 1: n=256 does not divide I=384"),
        ([GOOD, GOOD], "row 2 (tokens=512): tokens=512 does not ascend"),
        ([GOOD.replace("kept", "guessed")], "source 'guessed' is none of kept, 5118, derived"),
        ([GOOD.replace("512,16", "512,x")], "row 1: ValueError"),
        (["512,16"], "row 1: "),
        ([], "no rows"),
    ],
)
def test_bad_tables(rows, words, tmp_path):
    with pytest.raises(tables.TableError) as caught:
        written(tmp_path, *rows)
    assert words in str(caught.value) and "gfx950/a16w4-i384.csv" in str(caught.value)


def test_no_table(tmp_path):
    with pytest.raises(tables.TableError, match=r"no tile table gfx942/a16w4-i384.csv"):
        tables.load("gfx942", "a16w4", K3_TP8)


def test_all_errors_of_a_row_are_reported(tmp_path):
    with pytest.raises(tables.TableError) as caught:
        written(tmp_path, "512,24,256,128,1,2,4,384,128,2,0,kept")
    assert str(caught.value).count(";") >= 3
