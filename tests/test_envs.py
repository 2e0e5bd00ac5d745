"""The environment variables of this package."""

from pathlib import Path

import pytest

from vllm_k3moe import envs

pytestmark = pytest.mark.host


def test_nothing_set():
    assert envs.read({"XDG_CACHE_HOME": "/c"}) == envs.Settings(cache=Path("/c/vllm-k3moe"))


def test_everything_set():
    values = {"K3MOE": "Strict", "K3MOE_EXPERTS": "aiter", "K3MOE_ALLOW_ARCH": "any", "K3MOE_CANARY": "0"}
    got = envs.read({**values, "K3MOE_FUSE": "tail,Shared", "K3MOE_CACHE": "/mine"})
    assert got == envs.Settings("strict", "aiter", True, False, ("shared", "tail"), Path("/mine"))
    assert got.strict


@pytest.mark.parametrize("name", envs.CHOICES)
def test_a_value_that_is_none_of_the_choices(name):
    got = envs.read({name: "perhaps", "XDG_CACHE_HOME": "/c"})
    [error] = got.errors
    assert error.startswith(f"{name}='perhaps'; accepted: ")
    assert got == envs.Settings(cache=Path("/c/vllm-k3moe"), errors=(error,))


@pytest.mark.parametrize("name", envs.CHOICES)
def test_empty_is_the_default(name):
    assert envs.read({name: "", "XDG_CACHE_HOME": "/c"}).errors == ()


@pytest.mark.parametrize(
    "value, parts",
    [
        ("", envs.PARTS),
        (" , ", envs.PARTS),
        ("none", ()),
        (" Route , tail,sort,", ("route", "sort", "tail")),
        ("tail,tail", ("tail",)),
    ],
)
def test_parts_to_fuse(value, parts):
    got = envs.read({"K3MOE_FUSE": value})
    assert (got.fuse, got.errors) == (parts, ())


@pytest.mark.parametrize(
    "value, what",
    [("tail,gate", "unknown: gate"), ("tail;sort", "unknown: tail;sort"), ("none,tail", "none stands alone")],
)
def test_parts_that_are_not_served(value, what):
    got = envs.read({"K3MOE_FUSE": value})
    assert got.fuse == envs.PARTS
    assert got.errors == (f"K3MOE_FUSE={value!r}: {what}; accepted: none, or some of route,sort,shared,tail",)


@pytest.mark.parametrize("value", ["route", "sort,tail"])
def test_half_a_front_is_not_served(value):
    got = envs.read({"K3MOE_FUSE": value})
    assert got.fuse == envs.PARTS
    assert got.errors == (f"K3MOE_FUSE={value!r}: route and sort share their launches; name both or neither",)


def test_a_user_without_a_home(monkeypatch):
    """As in a container with a random user id: no HOME, no entry in the table of users."""
    import pwd

    def nobody(*arguments):
        raise KeyError(arguments)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert envs.read({}).cache.name == "vllm-k3moe"


def test_the_table_in_the_docstring_names_each():
    for name in (*envs.CHOICES, "K3MOE_FUSE", "K3MOE_CACHE"):
        assert f"| {name} |" in envs.__doc__
