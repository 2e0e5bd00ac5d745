"""`--backend`: where Triton kernels run (see backends.py), and how marks select tests for it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

import backends

if TYPE_CHECKING:  # see backends.py
    from gfx950emu import Emulator

GFX950: pytest.StashKey["Emulator | None"] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", choices=backends.BACKENDS, default="interpreter", help="where Triton kernels run")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[GFX950] = backends.start(config.getoption("backend"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`host` tests need no backend and run with the interpreter's; `on(...)` names the backends a test is for."""
    backend = config.getoption("backend")

    def belongs(item: pytest.Item) -> bool:
        if item.get_closest_marker("host"):
            return backend == "interpreter"
        if item.get_closest_marker("mi355x"):
            return "mi355x" in config.getoption("markexpr")
        if item.get_closest_marker("gpu"):
            return backend == "gpu"
        on = item.get_closest_marker("on")
        return on is None or backend in on.args

    out = [item for item in items if not belongs(item)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if belongs(item)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """An argument named `m` takes the token counts of the mark `tokens(interpreter=..., gfx950=..., gpu=...)`."""
    mark = metafunc.definition.get_closest_marker("tokens")
    if mark and "m" in metafunc.fixturenames:
        backend = metafunc.config.getoption("backend")
        metafunc.parametrize("m", mark.kwargs.get(backend, mark.kwargs["gfx950"]))
    if "order" in metafunc.fixturenames:  # workgroup and wave order is the emulator's to choose, nobody else's
        on_gfx950 = metafunc.config.getoption("backend") == "gfx950"
        metafunc.parametrize("order", [0, 1] if on_gfx950 else [0], indirect=True)


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> torch.device:
    if pytestconfig.getoption("backend") != "gpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        pytest.fail("--backend gpu needs a GPU that torch.cuda sees")
    return torch.device("cuda")


@pytest.fixture
def order(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[int]:
    """Order 0: workgroups one by one, shuffled; order 1: four at a time, interleaved finely."""
    emulator = pytestconfig.stash[GFX950]
    if emulator is None:
        yield request.param
        return
    with emulator.options(seed=request.param, resident=1 + 3 * request.param):
        yield request.param


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(20261201)
