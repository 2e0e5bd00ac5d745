"""Installed versions of what matters here. Standard library only."""

import importlib.metadata as metadata

DISTRIBUTIONS = {
    "vllm": ("vllm",),
    "torch": ("torch",),
    "triton": ("triton", "pytorch-triton-rocm"),
    "aiter": ("amd-aiter", "aiter"),
    "flydsl": ("flydsl",),
}


def versions() -> dict[str, str]:
    """By name; "-" where a distribution is not there under one of its names."""

    def version(distributions: tuple[str, ...]) -> str:
        for name in distributions:
            try:
                return metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        return "-"

    return {name: version(distributions) for name, distributions in DISTRIBUTIONS.items()}
