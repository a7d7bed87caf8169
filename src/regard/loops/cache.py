"""numba's cache of machine code, in the folder of `places`: whole files alone are read, and old ones removed."""

from __future__ import annotations

import hashlib
import logging
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

import numba.core.caching
import numba.core.config

from regard.loops.places import folder, stamp

caching: Any = numba.core.caching
config: Any = numba.core.config


_LOG = logging.getLogger(__name__)
_DIGEST = hashlib.sha256().digest_size


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
        ours = re.fullmatch(r"[0-9a-f]{16}|\..*\.tmp", entry.name)
        with suppress(OSError):  # removed by another process, or of another user
            if ours and entry.is_dir(follow_symlinks=False) and entry.stat().st_mtime < latest:
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

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        stored = super().load_overload(signature, target_context)
        if stored is None:
            _announce()
        return stored

    def save_overload(self, signature: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk: it is compiled, but not kept
            super().save_overload(signature, data)


@cache
def _announce() -> None:
    """Say, once, that this process compiles; nothing is shown where the program shows no such messages."""
    _LOG.info("machine code is being compiled for this processor: this happens once")


def keep(dispatcher: Any) -> Any:
    """Cache the code that this compiles; if nothing can be written, compile in every process."""
    if config.DISABLE_JIT:  # it is the function itself, which nobody calls
        return dispatcher
    with suppress(RuntimeError, OSError):
        dispatcher._cache = _Cache(dispatcher.py_func)
    return dispatcher
