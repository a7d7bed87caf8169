"""Where machine code is kept: in the user's cache folder, by a digest of the source files. Imports no compiler.

By default numba writes beside the source, which may be read-only or shared, and notices a change only in the file
that holds the outermost function.
"""

import hashlib
import os
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
_IMPORT = re.compile(r"^\s*from (regard[\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)


def folder() -> Path:
    """NUMBA_CACHE_DIR where that is set, or else the user's cache folder."""
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named) / "regard"
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "regard" / "kernels"


def processor() -> tuple[str, str]:
    """The processor's name and its features, for which code is compiled."""
    from llvmlite import binding  # type: ignore[import-untyped]

    name = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    return name, binding.get_host_cpu_features().flatten() if features is None else features


@cache
def stamp(file: Path) -> str:
    """A digest of numba's version and of a source file with every file of this package that it imports."""
    digest = hashlib.sha256(version("numba").encode())
    for path in sources(file):
        # With its place: machine code names the modules it was made from.
        digest.update(os.path.relpath(path, PACKAGE).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def sources(file: Path) -> list[Path]:
    """A file and the files of this package that it imports, directly or not: its machine code may hold any of them."""
    reached, waiting = set[Path](), [file.resolve()]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += _imported(path.read_text(encoding="utf-8"))
    return sorted(reached)


def _imported(text: str) -> list[Path]:
    """The files that `from regard... import ...` may mean: each module, and each name that is a module of it."""
    places = []
    for module, lines, line in _IMPORT.findall(text):
        place = PACKAGE.joinpath(*module.split("."))
        names = re.findall(r"\w+", re.sub("#.*", "", lines or line))
        places += [place, *(place / name for name in names)]
    return [file for place in places if (file := place.with_suffix(".py")).is_file()]
