"""A layer's objects as if one attribute were another, without touching them."""

from typing import Any

from vllm_k3moe import gates


class With:
    """`under`, with one attribute another."""

    def __init__(self, under: Any, name: str, value: Any) -> None:
        object.__setattr__(self, "_parts", (under, name, value))

    def __getattribute__(self, wanted: str) -> Any:
        under, name, value = object.__getattribute__(self, "_parts")
        if wanted == name and value is DELETED:
            raise AttributeError(name)
        return value if wanted == name else getattr(under, wanted)


DELETED = object()


def change(root: Any, path: str, value: Any) -> Any:
    """`root` as if the attribute at the dotted path were `value`."""
    name, _, rest = path.partition(".")
    return With(root, name, change(getattr(root, name), rest, value) if rest else value)


def wrong(gate: gates.Gate) -> Any:
    """A value that the gate does not accept."""
    good = gate.accepts[0]
    if isinstance(good, bool):
        return not good
    if isinstance(good, (int, float)):
        return good + 1
    return "another" if isinstance(good, str) else object()
