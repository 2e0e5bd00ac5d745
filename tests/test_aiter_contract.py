"""How a changed AITER is noticed: by name and signature."""

import json
from pathlib import Path

import pytest

from vllm_k3moe.experts import aiter_contract as contract
from vllm_k3moe.kernels import mx

pytestmark = pytest.mark.host
RECORD = json.loads((Path(__file__).parent / "data" / "aiter-e4048607a5.json").read_text())
BY_POSITION, BY_NAME = ("a", "b"), ("c",)


def accepts(function) -> str | None:
    return contract.signature_error(function, BY_POSITION, BY_NAME)


def test_what_a_call_of_ours_needs_and_more():
    def function(a, b, extra=None, *, c, d=1): ...

    assert accepts(function) is None


def test_a_parameter_in_between():
    def function(a, new, b, *, c): ...

    assert accepts(function) == "takes (a, new) where we pass (a, b) and requires new"


def test_a_keyword_that_is_gone():
    def function(a, b): ...

    assert accepts(function) == "lacks c"


def test_a_new_required_parameter():
    def function(a, b, *, c, d): ...

    assert accepts(function) == "requires d"


@pytest.mark.parametrize("mode", mx.MODES)
def test_the_recorded_release_has_all_we_use(mode):
    for module, name, (by_position, by_name) in contract.FUNCTIONS[mode]:
        names: dict = {}
        exec(f"def f({RECORD['functions'][f'{module}.{name}']}): ...", names)
        assert contract.signature_error(names["f"], by_position, by_name) is None, name
    for module, path in contract.VALUES[mode]:
        kind, _, member = path.partition(".")
        if (values := RECORD["enums"].get(f"{module}.{kind}")) is not None:
            assert member.removesuffix(".value") in values


def test_without_aiter():
    assert contract.missing(mx.NONE) == ["AITER is not installed"]
