"""The environment variables of this package: all of them, read once, in one place. Standard library only.

| variable | values | meaning |
|---|---|---|
| K3MOE | auto, off, strict | auto: use the fused path where no reason speaks against it; off: do nothing at all; strict: raise with every reason where it cannot be used |
| K3MOE_EXPERTS | auto, aiter | who runs the expert GEMMs; auto is aiter |
| K3MOE_ALLOW_ARCH | empty, any | any: run off gfx950 too, for testing |
| K3MOE_FUSE | parts, none | which of route, sort, shared, tail run fused, comma-separated; default all |
| K3MOE_CANARY | 1, 0 | 0: do not compare one expert with its reference before the first use |
| K3MOE_CACHE | folder | where compiled kernels are kept; default $XDG_CACHE_HOME/vllm-k3moe |
"""  # noqa: E501  a table

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

AUTO, OFF, STRICT = "auto", "off", "strict"
CHOICES = {
    "K3MOE": (AUTO, OFF, STRICT),
    "K3MOE_EXPERTS": (AUTO, "aiter"),
    "K3MOE_ALLOW_ARCH": ("", "any"),
    "K3MOE_CANARY": ("1", "0"),
}

FRONT = ("route", "sort")  # one pair of launches
PARTS = (*FRONT, "shared", "tail")  # of K3MOE_FUSE
NONE = "none"


@dataclass(frozen=True)
class Settings:
    """What the environment asks for. `errors` names each variable whose value is not one of its choices."""

    mode: str = AUTO
    experts: str = AUTO
    allow_any_arch: bool = False
    canary: bool = True
    fuse: tuple[str, ...] = PARTS  # in the order of PARTS
    cache: Path = Path()
    errors: tuple[str, ...] = ()

    @property
    def strict(self) -> bool:
        return self.mode == STRICT


def fuses_front(parts: Collection[str]) -> bool:
    """Whether these parts have route and sort among them, which go together."""
    return set(FRONT) <= set(parts)


def default_cache(environ: Mapping[str, str]) -> Path:
    # expanduser, not Path.home(): a container's user may have neither HOME nor a name, and then it is a relative path
    return Path(environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "vllm-k3moe"


def _fuse(value: str) -> tuple[tuple[str, ...], list[str]]:
    """The parts that a K3MOE_FUSE names, and what is wrong with it; all parts where it names none or anything else."""
    names = {name.strip() for name in value.lower().split(",")} - {""}
    unknown = sorted(names - {*PARTS, NONE})
    if unknown or (NONE in names and len(names) > 1):
        what = f"unknown: {', '.join(unknown)}" if unknown else f"{NONE} stands alone"
        return PARTS, [f"K3MOE_FUSE={value!r}: {what}; accepted: {NONE}, or some of {','.join(PARTS)}"]
    if len(names & {*FRONT}) == 1:
        return PARTS, [f"K3MOE_FUSE={value!r}: {' and '.join(FRONT)} share their launches; name both or neither"]
    return tuple(part for part in PARTS if part in names or not names), []


def read(environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings of an environment. A value that is not a choice becomes an error and is replaced by the default."""
    values, errors = {}, []
    for name, choices in CHOICES.items():
        value = environ.get(name, "").strip().lower() or choices[0]
        if value not in choices:
            errors.append(f"{name}={environ[name]!r}; accepted: {', '.join(filter(None, choices))}")
            value = choices[0]
        values[name] = value
    fuse, wrong = _fuse(environ.get("K3MOE_FUSE", ""))
    return Settings(
        mode=values["K3MOE"],
        experts=values["K3MOE_EXPERTS"],
        allow_any_arch=values["K3MOE_ALLOW_ARCH"] == "any",
        canary=values["K3MOE_CANARY"] == "1",
        fuse=fuse,
        cache=Path(environ.get("K3MOE_CACHE") or default_cache(environ)),
        errors=(*errors, *wrong),
    )
