"""`k3moe bench gfx950` against the committed table it reads."""

import pytest

from vllm_k3moe import cli
from vllm_k3moe.bench import gfx950

pytestmark = pytest.mark.host


def served(mode: str, m: int, part: str) -> dict[str, object]:
    [row] = [row for row in gfx950.served() if (row["mode"], row["M"], row["part"]) == (mode, m, part)]
    return row


def test_two_launches_are_added_up():
    row = served("mxfp8", 8, "front")
    parts = [
        r
        for r in gfx950.rows()
        if (r["mode"], r["M"]) == ("mxfp8", "8") and r["kernel"] in ("route_quantise", "sort_by_token")
    ]
    assert len(parts) == 2
    assert row["launches"] == 2
    assert row["instructions"] == sum(int(part["instructions"]) for part in parts)
    assert row["cycles_total"] == sum(int(part["cycles_total"]) for part in parts)


def test_one_launch_is_itself():
    row = served("mxfp4", 1, "front")
    [part] = [r for r in gfx950.rows() if (r["kernel"], r["mode"], r["M"]) == ("route_sort", "mxfp4", "1")]
    assert row["instructions"] == int(part["instructions"])


def test_the_shared_expert_is_in_its_launches():
    riding = [r for r in gfx950.rows() if (r["mode"], r["M"]) == ("mxfp8", "16") and " | " in r["kernel"]]
    row = served("mxfp8", 16, "shared")
    assert row["launches"] == len(riding) == 2
    assert row["instructions"] == sum(int(r["instructions"]) for r in riding)


def test_one_token_takes_its_shared_expert_along():
    row = served("mxfp8", 1, "shared")
    [part] = [r for r in gfx950.rows() if (r["kernel"], r["mode"]) == ("route_sort | shared_token", "mxfp8")]
    assert row["launches"] == 1 and row["instructions"] == int(part["instructions"])


def test_a_part_that_is_vllms_is_not_in_it():
    parts = {m: {row["part"] for row in gfx950.served() if row["M"] == m} for m in (64, 128, 256)}
    assert parts == {64: {"front", "shared", "tail"}, 128: {"front", "shared"}, 256: {"front"}}


def test_every_served_launch_is_printed(capsys):
    assert cli.main(["bench", "gfx950"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("mxfp8") == sum(row["mode"] == "mxfp8" for row in gfx950.served())
    assert "not time" in printed


def test_without_a_checkout_it_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gfx950, "TABLE", tmp_path / "gfx950-cost.csv")
    assert cli.main(["bench", "gfx950"]) == 2
    assert "source checkout" in capsys.readouterr().err
