"""Where compiled kernels are kept: in the person's cache folder, by the sources they came from.

numba keeps them beside the source by default, which may be read-only or shared, and notices a
change only in the file that holds the outermost function.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba.core
import numba.core.caching
import numba.core.config

from regard.files import remove_unused, use

caching: Any = numba.core.caching
config: Any = numba.core.config


# What reading half of a file raises.
_HALF = (EOFError, caching.pickle.UnpicklingError, ValueError, IndexError, TypeError)


@cache
def stamp(beside: Path | None = None) -> str:
    """A digest of every source file of the kernels, and of those in a folder that builds on them."""
    digest = hashlib.sha256()
    own = Path(__file__).parent
    for place in [own] if beside in (None, own) else [own, beside]:
        for path in sorted(place.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def folder() -> Path:
    """NUMBA_CACHE_DIR where that is set, or else the person's own cache folder."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR) / "regard"
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "regard" / "kernels"


@cache
def _begin(place: Path) -> None:
    """Note that what is kept there is used; where it is new, remove what nobody uses any more.

    Another process may have loaded that: it has its code in memory, and what it compiles later is
    not kept.
    """
    new = not place.exists()
    place.mkdir(parents=True, exist_ok=True)
    use(place)
    if new:
        remove_unused(place.parent, "[0-9a-f]{16}")


class _Place(caching._CacheLocator):
    """numba's question where to keep a function, answered."""

    def __init__(self, function: Any, file: str) -> None:
        self._line, self._stamp = function.__code__.co_firstlineno, stamp(Path(file).parent)

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

    numba numbers them: of two processes that compile different signatures at once, either might
    write over what the other's index calls something else. Half a file, as a crash may leave, is
    none.
    """

    def _data_name(self, number: int) -> Any:
        return super()._data_name(secrets.randbits(63))

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except _HALF:
            return {}

    def _load_data(self, name: str) -> Any:
        try:
            return super()._load_data(name)
        except _HALF as fault:
            raise OSError(f"{name}: {fault}") from None  # which numba takes for a missing file


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
    """Keep what this compiles; where nothing can be written, compile anew in every process."""
    if config.DISABLE_JIT:  # it is the function itself, which nobody calls
        return dispatcher
    with suppress(RuntimeError, OSError):
        dispatcher._cache = _Cache(dispatcher.py_func)
    return dispatcher
