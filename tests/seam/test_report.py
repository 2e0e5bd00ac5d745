"""What the log's first line says of each K3MOE_FUSE."""

from types import SimpleNamespace

import pytest

from vllm_k3moe import report
from vllm_k3moe.envs import read
from vllm_k3moe.method import K3FusedMoEMethod
from vllm_k3moe.shapes import K3_TP8

pytestmark = pytest.mark.on("gfx950")
ONE = "route_sort | shared_token"
TOGETHER, APART = "route_quantise | situ + sort_by_token | shared_down", "route_quantise + sort_by_token"


def method(most: int) -> K3FusedMoEMethod:
    """With experts that serve up to `most` tokens and multiply nothing."""
    experts = SimpleNamespace(
        mode="none",
        description="tiles gfx950/a16w4-i384.csv",
        max_tokens=most,
        block=lambda m: 16,
        batches=lambda: [1],
        refuses=lambda m: "more" if m > most else None,
    )
    return K3FusedMoEMethod(K3_TP8, None, experts, None)


@pytest.mark.parametrize(
    "fuse, lines",
    [
        ("", [f"M 1: {ONE}", f"M 2-128: {TOGETHER}", f"M 129-512: {APART}", "M 513-16384: vLLM's routing, our tiles"]),
        ("route,sort,tail", ["M 1: route_sort", f"M 2-512: {APART}", "M 513-16384: vLLM's routing, our tiles"]),
        ("shared", ["M 1: vLLM's experts, shared_token", "M 2-128: vLLM's experts, situ + shared_down"]),
        ("tail", []),
        ("none", []),
    ],
)
def test_what_runs_by_token_count(vllm, fuse, lines):
    last = [] if not lines else [f"M {16385 if 'tiles' in lines[-1] else 129}-up: vLLM's path"]
    parts = read({"K3MOE_FUSE": fuse}).fuse
    assert report.ranges(method(16384), parts) == lines + (last or ["M 1-up: vLLM's path"])


def test_experts_that_serve_what_the_front_does(vllm):
    assert report.ranges(method(512), ("route", "sort"))[-1] == "M 513-up: vLLM's path"


def test_readmes_line(vllm):
    """Word for word, but for the versions."""
    from pathlib import Path

    line = report.active("a16w4", method(16384), read({}).fuse).partition("; vllm ")[0]
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert line.replace(report.architecture(), "gfx950") in readme
