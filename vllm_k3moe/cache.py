"""The folder that compiled kernels are kept in, and when it must not be trusted. Standard library only."""

import os
import stat
from pathlib import Path

PARTS = ("triton", "flydsl")  # sub-folders, one a compiler
FLYDSL_CACHE = "FLYDSL_RUNTIME_CACHE_DIR"


class CacheError(OSError):
    """The cache folder must not be trusted; says why and how to name another."""


def distrust(path: Path) -> str | None:
    """Why an existing folder must not be trusted, or None."""
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == os.getuid() and not mode & 0o022:
        return None
    return (
        f"cache folder {path}: owner {found.st_uid}, mode {mode:o}; compiled code in it could be another's. "
        "Remove it, or set K3MOE_CACHE to a folder that only you can write"
    )


def private_folder(path: Path) -> Path:
    """Make `path`, readable and writable by its owner alone; CacheError if it belongs to or is open to others."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    reason = distrust(path)
    if reason is not None:
        raise CacheError(reason)
    return path
