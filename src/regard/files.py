"""Atomic writing of files and folders: a full disk, a kill or a power cut leaves the old state or the new one."""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EBUSY, EEXIST, EFBIG, EINVAL, ELOOP, ENOLCK, ENOSYS, EOPNOTSUPP
from io import BufferedReader
from pathlib import Path
from stat import S_ISREG

_DAY = 24 * 60 * 60  # seconds
# How file systems without locks refuse one.
_WITHOUT_LOCKS = {ENOLCK, ENOSYS, EOPNOTSUPP}


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file as `replacing` does, and return its path."""
    with replacing(path) as unfinished, open(unfinished, "wb") as file:
        file.write(content)
    return Path(path)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """The path of an empty temporary file; at the end of the block that file replaces `path`.

    The file is forced to the disk, then renamed, then the folder is forced to the disk, so that a power cut leaves
    the old file or the new one. When the block fails, the temporary file is removed. One that a killed process left is
    removed when the same file is written a day later.

    Args:
        path: where the file goes; one that is there is replaced. A link is followed within its folder.

    Raises:
        OSError: it cannot be written, or the block raised one; the error names `path`.
    """
    place = _place(path)
    try:
        if place.exists() and not place.is_file():
            raise FileExistsError(EEXIST, "not a file that can be replaced")
        with _temporary(place) as unfinished:
            yield unfinished
            force(unfinished)
            os.replace(unfinished, place)
            sync_folder(place.parent)
    except OSError as fault:
        if fault.errno is None:
            raise
        raise OSError(fault.errno, fault.strerror, str(path)) from fault


@contextmanager
def _temporary(place: Path) -> Iterator[Path]:
    """An empty file beside `place`, removed at the end; those that were not changed for a day are removed before."""
    begin = f".{_mark(place)}-"
    with suppress(OSError):  # a folder that may be written to, but not read
        for entry in os.scandir(place.parent):
            if entry.name.startswith(begin) and entry.name.endswith(".tmp"):
                _remove_old(Path(entry.path))
    path = place.with_name(f"{begin}{secrets.token_hex(6)}.tmp")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _remove_old(path: Path) -> None:
    """Remove a file that was not changed for a day.

    A lock on it would say whether it is in use. But on a share of Windows or Samba, a lock ends all other writing.
    """
    with suppress(OSError):
        if time.time() - os.lstat(path).st_mtime > _DAY:
            os.unlink(path)


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[BufferedReader]:
    """A file that is open for reading. A pipe or a device is refused, because reading it might never end.

    Raises:
        OSError: it cannot be read, or is not an ordinary file.
    """
    with open(path, "rb", opener=_at_once) as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(EINVAL, "not an ordinary file", str(path))
        yield file


def read(path: str | os.PathLike[str], largest: int | None = None) -> bytes:
    """The bytes of a file, as `opened` opens it.

    Raises:
        OSError: it cannot be read, or has more than `largest` bytes.
    """
    with opened(path) as file:
        if largest is not None and os.fstat(file.fileno()).st_size > largest:
            raise OSError(EFBIG, f"larger than {largest} bytes", str(path))
        return file.read()


def append(path: str | os.PathLike[str], content: bytes) -> None:
    """Add to the end of a file; when that fails, for example on a full disk, the file is cut back to its old end.

    Raises:
        OSError: it cannot be written; the error names `path`.
    """
    try:
        with open(_place(path), "ab", buffering=0, opener=_at_once) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                remaining = memoryview(content)
                while remaining:
                    remaining = remaining[file.write(remaining) :]
            except BaseException:
                with suppress(OSError):
                    file.truncate(end)
                raise
    except OSError as fault:
        fault.filename = str(path)
        raise


def subfolder(path: str | os.PathLike[str]) -> Path:
    """Make a folder inside another one, unless it is there already.

    Raises:
        OSError: it cannot be made, or it is a link, so that files would be written and removed elsewhere.
    """
    if os.path.islink(path):
        raise OSError(ELOOP, "is a link: use the folder that it leads to", str(path))
    Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def _place(path: str | os.PathLike[str]) -> Path:
    """The path that a file is written to; a link to a file in another folder is refused."""
    place = Path(os.path.realpath(path))
    if os.path.islink(path) and place.parent != Path(os.path.realpath(Path(path).parent)):
        raise OSError(ELOOP, f"is a link to another folder: write to {place} itself", str(path))
    return place


def _at_once(path: str, flags: int) -> int:
    """Open a file; a pipe is opened without waiting for its other end."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def force(path: Path) -> None:
    """Force a file's content to the disk."""
    with open(path, "rb+") as file:  # Windows forces only files that are open for writing
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to the disk, so that a rename outlives a power cut."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # on Windows, and for folders that may be written to but not read
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class HeldError(Exception):
    """Another process holds a lock; `holder` is its process id, or "unknown"."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"process {holder} holds it")
        self.holder = holder


@dataclass(frozen=True)
class Lock:
    """A lock file that this process holds; `handle` is None on a file system without locks."""

    path: Path
    handle: int | None

    def held(self) -> bool:
        """Whether the file is still at its path; False when it was removed or replaced, and after the lock ended."""
        if self.handle is None:
            return True
        try:
            return os.path.samestat(
                os.fstat(self.handle), os.stat(self.path, follow_symlinks=False)
            )
        except OSError:
            return False


@contextmanager
def locked(path: Path) -> Iterator[Lock]:
    """Hold a lock file while the block runs. It contains the process id and is removed at the end.

    A lock ends with its process, so the file of a killed process does not block others. A symbolic link is refused.
    On a file system without locks the block runs without one.

    Raises:
        HeldError: another process holds it.
        OSError: it cannot be written or locked.
    """
    from filelock import lock_descriptor  # slow to import

    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    while True:
        handle = os.open(path, flags, 0o644)
        lock, ours = Lock(path, handle), False
        try:
            if not lock_descriptor(handle, blocking=False):
                os.lseek(handle, 1, os.SEEK_SET)
                holder = os.read(handle, 32).decode("ascii", "replace").strip()
                raise HeldError(holder or "unknown")
            ours = lock.held()
            if ours:  # otherwise its last holder has just removed the file: make a new one
                with suppress(OSError):  # a full disk: the lock holds without the process id
                    os.ftruncate(handle, 0)
                    # From the second byte on: on Windows no other process can read the locked first byte.
                    os.lseek(handle, 0, os.SEEK_SET)
                    os.write(handle, b"\n%d" % os.getpid())
                yield lock
                return
        except OSError as fault:
            if ours or fault.errno not in _WITHOUT_LOCKS:
                raise
            # Any other file is that of a process which got a lock.
            ours = os.fstat(handle).st_size == 0
            lock = Lock(path, None)
        finally:
            # Removed while it is held, so that no process locks a removed file. Windows needs it closed first.
            removed = not (ours and lock.held()) or _removed(path)
            os.close(handle)
            if not removed:
                _removed(path)
        if lock.handle is None:
            yield lock
            return


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder, which is renamed to `path` when the block ends without an error.

    The temporary folder is hidden, in the same parent. One that a killed process left is removed when the same folder
    is made again.

    Args:
        path: the folder to make; its parent exists, and it does not.

    Raises:
        OSError: it cannot be written, another process is making it, or the block raised one.
    """
    place = Path(path)
    mark = _mark(place)
    unfinished = place.with_name(f".{mark}.tmp")
    try:
        with locked(place.with_name(f".{mark}.lock")):
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            try:
                yield unfinished
                unfinished.replace(place)
                sync_folder(place.parent)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    except HeldError as fault:
        raise OSError(EBUSY, f"process {fault.holder} is making it", str(path)) from None


def _mark(place: Path) -> str:
    """A short name for the temporary files of `place`, whose name may be of the greatest length."""
    return hashlib.sha256(os.fsencode(place.name)).hexdigest()[:12]


def _removed(path: Path) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
