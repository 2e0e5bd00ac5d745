"""Compiles and loads the C core, core/*.c."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .structures import Insn, Wave

SOURCES = Path(__file__).parent / "core"
# no contraction: the core says itself where a multiply and an add are fused; memory is read as whatever type it is
FLAGS = ("-O2", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing", "-Wall", "-shared", "-fPIC")


def cache_folder() -> Path:
    """Where the compiled core is kept: outside of the source tree, which may be read-only."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-k3moe" / "gfx950emu"


def compiler() -> str:
    """What CC names, else clang, else gcc."""
    return os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc") or "cc"


def build(sources: Path, folder: Path, *extra_flags: str) -> Path:
    """The shared library of all of `sources`, compiled into `folder` unless it is there from the same text and flags.

    CalledProcessError where the compiler fails; what it says goes to stderr.
    """
    command = [compiler(), *FLAGS, *extra_flags]
    files = sorted(path for path in sources.iterdir() if path.suffix in (".c", ".h", ".inc"))
    digest = hashlib.sha256(" ".join(command).encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    library = folder / f"core_{digest.hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}.tmp")
        units = [str(path) for path in files if path.suffix == ".c"]
        subprocess.run([*command, "-o", str(unfinished), *units, "-lm"], check=True)
        unfinished.replace(library)  # atomic: other processes may build it too
    return library


class Core:
    """A loaded core: the numbers of its operations by AMD's names, and the functions that grid.py calls."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        sizes = self._function("core_insn_size", ctypes.c_int)(), self._function("core_wave_size", ctypes.c_int)()
        if sizes != (ctypes.sizeof(Insn), ctypes.sizeof(Wave)):
            raise RuntimeError(f"{library}: structures.py and the core differ in the sizes of Insn and Wave, {sizes}")
        self.vector_ops = self._names("op")
        self.packed_ops = self._names("pop")
        self.scalar_ops = self._names("sop")
        signature = self._function("core_op_sig", ctypes.c_char_p, ctypes.c_int)
        self.signatures = [signature(i).decode() for i in range(len(self.vector_ops))]  # of the vector ops, by number
        self.pending_bytes: int = self._function("core_pend_bytes", ctypes.c_int)()  # of a wave's memory operations
        u64 = ctypes.c_uint64
        # wave, table of Insns, base and size of the code, most instructions -> a Stop
        self.run = self._function("core_run", ctypes.c_int, ctypes.POINTER(Wave), ctypes.c_void_p, u64, u64, u64)
        self.view = self._function("core_view", None, ctypes.c_void_p, ctypes.c_int)  # 1: write back, 2: invalidate
        self.view_ended = self._function("core_view_ended", None, ctypes.c_void_p)  # its workgroup has
        self.view_free = self._function("core_view_free", None, ctypes.c_void_p)
        self.races_free = self._function("core_races_free", None, ctypes.c_void_p)

    def _function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        function = self._library[name]
        function.restype, function.argtypes = result, arguments
        return function

    def _names(self, table: str) -> dict[str, int]:
        name = self._function(f"core_{table}_name", ctypes.c_char_p, ctypes.c_int)
        return {name(i).decode(): i for i in range(self._function(f"core_{table}_count", ctypes.c_int)())}


@functools.cache
def core() -> Core:
    """The core as it stands in this folder."""
    return Core(build(SOURCES, cache_folder()))
