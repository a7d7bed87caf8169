"""The cache of machine code: in the user's cache folder, by a digest of the source files.

By default numba writes beside the source, which may be read-only or shared, and notices a change only in the file
that holds the outermost function.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numba.core.caching
import numba.core.config

caching: Any = numba.core.caching
config: Any = numba.core.config


_PACKAGE = Path(__file__).resolve().parents[2]
_IMPORT = re.compile(r"^\s*from (regard[\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)
_DIGEST = hashlib.sha256().digest_size


@cache
def stamp(file: Path) -> str:
    """A digest of numba's version and of a source file with every file of this package that it imports."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sources(file):
        # With its place: machine code names the modules it was made from.
        digest.update(os.path.relpath(path, _PACKAGE).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def sources(file: Path) -> list[Path]:
    """A file and the files of this package that it imports, directly or not: its machine code may hold any of them."""
    found, waiting = set[Path](), [file.resolve()]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path.read_text(encoding="utf-8"))
    return sorted(found)


def _imported(text: str) -> list[Path]:
    """The files that `from regard... import ...` may mean: each module, and each name that is a module of it."""
    places = []
    for module, several, few in _IMPORT.findall(text):
        place = _PACKAGE.joinpath(*module.split("."))
        names = re.findall(r"\w+", re.sub("#.*", "", several or few))
        places += [place, *(place / name for name in names)]
    return [file for place in places if (file := place.with_suffix(".py")).is_file()]


def folder() -> Path:
    """NUMBA_CACHE_DIR where that is set, or else the user's cache folder."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR) / "regard"
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "regard" / "kernels"


@cache
def _begin(place: Path) -> None:
    """Mark the folder as used; if it is new, remove folders that are no longer used.

    Another process may have loaded it. That process keeps its code in memory; code that it compiles
    later is not cached.
    """
    new = not place.exists()
    place.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):  # of another user, or just removed
        os.utime(place)
    if new:
        remove_unused(place.parent)


def remove_unused(place: Path) -> None:
    """Remove folders that were not used or written to for 30 days, each by one rename first."""
    latest = time.time() - 30 * 24 * 3600
    for entry in list(os.scandir(place)) if os.access(place, os.R_OK) else ():
        own = re.fullmatch(r"[0-9a-f]{16}|\..*\.tmp", entry.name)
        with suppress(OSError):  # removed by another process, or of another user
            if own and entry.is_dir(follow_symlinks=False) and entry.stat().st_mtime < latest:
                doomed = place / f".{secrets.token_hex(6)}.tmp"
                os.rename(entry.path, doomed)
                shutil.rmtree(doomed, ignore_errors=True)


class _Place(caching._CacheLocator):
    """Tells numba in which folder a function is cached."""

    def __init__(self, function: Any, file: str) -> None:
        self._line, self._stamp = function.__code__.co_firstlineno, stamp(Path(file))

    def get_cache_path(self) -> str:
        return str(folder() / self._stamp)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, file: str) -> _Place | None:
        place = cls(function, file)
        try:
            _begin(Path(place.get_cache_path()))
            place.ensure_cache_path()
        except OSError:
            return None
        return place


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = (_Place,)


class _Files(caching.IndexDataCacheFile):
    """An index, and a file for each signature, of a name that no other process takes.

    numba numbers the files: two processes that compile different signatures at once might overwrite
    each other's.

    Each file begins with the sha256 of the rest. A file that a crash has cut off, or that
    was changed, is ignored: the code is compiled again and replaces it.
    """

    def _data_name(self, number: int) -> Any:
        return super()._data_name(secrets.randbits(63))

    def _load_index(self) -> Any:
        try:
            stamp, overloads = _unsealed(Path(self._index_path))
        except OSError:
            return {}
        return overloads if stamp == self._source_stamp else {}

    def _save_index(self, overloads: Any) -> None:
        self._seal(self._index_path, (self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        return _unsealed(Path(self._data_path(name)))  # numba takes an OSError for a missing file

    def _save_data(self, name: str, data: Any) -> None:
        self._seal(self._data_path(name), data)

    def _seal(self, path: str, content: Any) -> None:
        dumped = self._dump(content)
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(dumped).digest() + dumped)


def _unsealed(path: Path) -> Any:
    """The content of a file. Raises `OSError` if it cannot be read or was changed."""
    content = path.read_bytes()
    if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
        warnings.warn(
            f"{path.parent}: {path.name} is corrupted or truncated: its code is compiled again",
            RuntimeWarning,
            stacklevel=2,
        )
        raise OSError(f"{path}: not as it was written")
    return caching.pickle.loads(content[_DIGEST:])


class _Cache(caching.FunctionCache):
    _impl_class = _Implementation

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        base, stamped = self._impl.filename_base, self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self._cache_path, base, stamped)

    def save_overload(self, signature: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk: it is compiled, but not kept
            super().save_overload(signature, data)


def keep(dispatcher: Any) -> Any:
    """Cache the code that this compiles; if nothing can be written, compile in every process."""
    if config.DISABLE_JIT:  # it is the function itself, which nobody calls
        return dispatcher
    with suppress(RuntimeError, OSError):
        dispatcher._cache = _Cache(dispatcher.py_func)
    return dispatcher
