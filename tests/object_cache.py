"""A C compiler that keeps objects: `object_cache.py FOLDER CC ARGUMENTS` is `CC ARGUMENTS`.

Each source is compiled apart, and only if it, or a file that it includes, is not the one that FOLDER holds an object
of. Breaking one file of the emulator's core then costs one compilation, not one of each file.
"""

import hashlib
import re
import subprocess
import sys
from pathlib import Path


def included(source: Path, seen: dict[Path, bytes]) -> dict[Path, bytes]:
    """The source and all that it includes by name, with their text."""
    if source not in seen:
        seen[source] = source.read_bytes()
        for name in re.findall(r'^#include "(.+)"', seen[source].decode(), re.MULTILINE):
            included(source.parent / name, seen)
    return seen


def main(folder: Path, cc: str, arguments: list[str]) -> None:
    sources = [a for a in arguments if a.endswith(".c")]
    flags = [a for a in arguments if a.startswith("-") and a not in ("-o", "-shared") and not a.startswith("-l")]
    objects = {}
    for source in sources:
        texts = included(Path(source), {})
        parts = [b"%s %d %s" % (path.name.encode(), len(text), text) for path, text in texts.items()]
        objects[source] = str(folder / f"{hashlib.sha256(repr(flags).encode() + b''.join(parts)).hexdigest()[:24]}.o")
        if not Path(objects[source]).exists():
            subprocess.check_call([cc, *flags, "-c", source, "-o", objects[source]])
    subprocess.check_call([cc, *(objects.get(a, a) for a in arguments)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
