"""A stand-in for AITER with exactly the signatures of a recorded release. It proves plumbing, and no number of AITER's.

Every name that is not in the record exists and raises when called: vLLM imports many that no test reaches. A recorded
function checks its arguments against the recorded signature, notes the call in `CALLS`, and hands it to what a test put
into `DO`, by default the oracle's arithmetic in `stages.py`. FAKE_AITER_RECORD names another record.
"""

import enum
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_DATA = Path(__file__).parents[3] / "data"
RECORD = json.loads((_DATA / os.environ.get("FAKE_AITER_RECORD", "aiter-e4048607a5.json")).read_text())


class Call(NamedTuple):
    name: str  # without its module
    arguments: dict[str, Any]  # as bound to the recorded signature, defaults left out


CALLS: list[Call] = []
DO: dict[str, Callable[..., Any]] = {}


def _signature(text: str) -> inspect.Signature:
    names: dict[str, Any] = {}
    exec(f"def f({text}): pass", names)  # the record is ours
    return inspect.signature(names["f"])


def _function(path: str) -> Callable[..., Any]:
    signature, name = _signature(RECORD["functions"][path]), path.rpartition(".")[2]

    def function(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments  # TypeError as AITER would raise it
        CALLS.append(Call(name, dict(arguments)))
        from . import stages

        return (DO.get(name) or getattr(stages, name))(**arguments)

    function.__name__, function.__signature__ = name, signature  # type: ignore[attr-defined]
    return function


def _missing(path: str) -> Callable[..., Any]:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"stand-in for AITER: {path} is not recorded")

    missing.__name__ = path.rpartition(".")[2]
    return missing


def _value(path: str) -> Any:
    """What stands at a dotted path: recorded, or something that raises when called."""
    if path in RECORD["functions"]:
        return _function(path)
    if path in RECORD["enums"]:
        values = RECORD["enums"][path]
        kind = enum.IntEnum if all(isinstance(v, int) for v in values.values()) else enum.Enum
        return kind(path.rpartition(".")[2], values)  # type: ignore[call-arg]  # not seen to be the functional form
    return _missing(path)


class _Module(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _value(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not fullname.startswith("aiter.") or fullname == "aiter.stages":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, _Finder())
ActivationType, QuantType = _value("aiter.ActivationType"), _value("aiter.QuantType")
