"""Files are whole or as they were, with a disk that takes no more and with a block that fails."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import pytest

from regard import files


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: the kernel refuses in the middle of a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_written_and_replaced(tmp_path):
    path = tmp_path / "file"
    assert files.write(path, b"one") == path
    files.write(str(path), b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_the_longest_name_can_be_written(tmp_path):
    path = tmp_path / ("x" * 255)
    files.write(path, b"content")
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    files.write(path, b"old")
    with disk_of(1000), pytest.raises(OSError, match=r"File too large.*file'") as fault:
        files.write(path, bytes(5000))
    assert fault.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_fails_at_the_last_moment_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space.*file'"):
        files.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def half_done(path: Path, fault: BaseException) -> None:
    with files.replacing(path) as unfinished:
        unfinished.write_bytes(b"half")
        raise fault


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    files.write(path, b"old")
    for fault in (KeyboardInterrupt(), OSError("a reason without a number")):
        with pytest.raises(type(fault)) as raised:
            half_done(path, fault)
        assert raised.value is fault
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_everything_is_forced_to_the_disk_before_its_name_and_its_folder_after(
    tmp_path, monkeypatch
):
    said: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: said.append(os.readlink(f"/proc/self/fd/{handle}"))
    )
    monkeypatch.setattr(os, "replace", lambda one, other: said.append(f"{one} -> {other}"))
    with files.replacing(tmp_path / "file") as unfinished:
        unfinished.touch()
    assert said == [str(unfinished), f"{unfinished} -> {tmp_path / 'file'}", str(tmp_path)]


def test_a_missing_folder_and_what_is_no_file_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        files.write(tmp_path / "nowhere" / "a", b"")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "c")
    for name in ("b", "c"):
        with pytest.raises(FileExistsError, match=f"not a file that can be replaced.*{name}'"):
            files.write(tmp_path / name, b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "c"]


def test_a_link_is_followed_within_its_folder_and_not_out_of_it(tmp_path):
    folder, mine = tmp_path / "folder", tmp_path / "mine"
    folder.mkdir()
    mine.write_bytes(b"mine")
    for name, target in (("near", "real"), ("far", mine), ("farther", "../mine"), ("new", "../no")):
        (folder / name).symlink_to(target)
    for write in (files.write, files.append):
        write(folder / "near", b"content")
        assert (folder / "near").is_symlink()
        assert (folder / "real").read_bytes().startswith(b"content")
        for name in ("far", "farther", "new"):
            with pytest.raises(OSError, match=f"is a link to another folder.*{name}'"):
                write(folder / name, b"content")
    assert mine.read_bytes() == b"mine"
    assert not (tmp_path / "no").exists()
    (tmp_path / "alias").symlink_to(folder)  # of the folder itself: it is where its person wants it
    files.write(tmp_path / "alias" / "file", b"content")
    assert (folder / "file").exists()


def test_a_folder_within_a_folder_is_no_link(tmp_path):
    assert files.subfolder(tmp_path / "a" / "b").is_dir()
    files.subfolder(tmp_path / "a" / "b")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match=r"is a link: .*link'"):
        files.subfolder(tmp_path / "link")


def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"not an ordinary file.*pipe'"):
        files.read(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"pipe'"):
        files.append(tmp_path / "pipe", b"line")
    with pytest.raises(IsADirectoryError):
        files.read(tmp_path)
    (tmp_path / "file").write_bytes(b"12345")
    assert files.read(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        files.read(tmp_path / "file", 4)


def test_what_is_appended_is_there_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "lines"
    files.append(path, b"one\n")
    files.append(path, b"two\n")
    with disk_of(10), pytest.raises(OSError, match=r"File too large.*lines'"):
        files.append(path, b"three\n")
    assert path.read_bytes() == b"one\ntwo\n"
    files.append(path, b"four\n")
    assert path.read_bytes() == b"one\ntwo\nfour\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_that_is_full_says_so():
    with pytest.raises(OSError, match="No space left on device"):
        files.append("/dev/full", b"line\n")


def test_a_folder_is_made_whole_or_not_at_all(tmp_path):
    place = tmp_path / ("x" * 255)
    with files.new_folder(place) as unfinished:
        (unfinished / "part").write_text("whole")
        assert not place.exists()
    assert (place / "part").read_text() == "whole"
    with pytest.raises(ZeroDivisionError), files.new_folder(tmp_path / "other") as unfinished:
        (unfinished / "part").write_text(str(1 / 0))
    assert list(tmp_path.iterdir()) == [place]


def test_a_lock_names_its_process_and_knows_when_it_was_removed(tmp_path):
    path = tmp_path / ".lock"
    with files.locked(path) as lock:
        assert path.read_text().strip() == str(os.getpid())
        assert lock.held()
        with pytest.raises(files.HeldError, match=f"process {os.getpid()} holds it"):
            files.locked(path).__enter__()
        assert lock.held()
        path.unlink()
        assert not lock.held()
        path.write_text("another process's")
        assert not lock.held()
    assert path.read_text() == "another process's"  # not removed with ours
    path.unlink()
    with files.locked(path):
        pass
    assert not path.exists()


def test_a_lock_file_that_its_holder_removed_meanwhile_is_made_again(tmp_path, monkeypatch):
    path, lock, opened = tmp_path / ".lock", filelock.lock_descriptor, []

    def late(handle: int, *, blocking: bool) -> bool:
        if not opened:
            path.unlink()
        opened.append(handle)
        return lock(handle, blocking=blocking)

    monkeypatch.setattr(filelock, "lock_descriptor", late)
    with files.locked(path) as held:
        assert held.held()
    assert len(opened) == 2


@pytest.mark.parametrize("code", ["ENOLCK", "ENOSYS", "EOPNOTSUPP"])
def test_a_file_system_without_locks_gives_none_and_work_goes_on(tmp_path, monkeypatch, code):
    path = tmp_path / ".lock"

    def without_locks(handle: int, *, blocking: bool) -> bool:
        raise OSError(getattr(errno, code), code)

    with files.locked(path) as other:
        monkeypatch.setattr(filelock, "lock_descriptor", without_locks)
        with files.locked(path) as lock:
            assert lock.handle is None
            assert lock.held()
        assert other.held()  # the file of a process that got a lock stays
    with files.locked(path), files.new_folder(tmp_path / "made"):
        assert not path.exists()
    with pytest.raises(OSError, match="of the block"), files.locked(path):
        raise OSError(errno.ENOLCK, "of the block")
    assert [each.name for each in tmp_path.iterdir()] == ["made"]


KILLED = """
import os, pathlib, signal, sys
from regard import files
with files.new_folder(pathlib.Path(sys.argv[1]) / "made") as unfinished:
    (unfinished / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_else(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.glob("*.tmp")
    assert (left / "half").exists()
    with files.new_folder(tmp_path / "other"):
        assert left.exists()  # it is another folder's
    foreign = left.with_name(left.name.replace(".tmp", ".mine"))
    foreign.mkdir()
    with files.new_folder(tmp_path / "made") as ours:
        assert not (ours / "half").exists()
        (ours / "of").write_text("one")
        with pytest.raises(OSError, match=f"process {os.getpid()} is making it.*made'"):
            files.new_folder(tmp_path / "made").__enter__()
    assert (tmp_path / "made" / "of").read_text() == "one"
    assert {path.name for path in tmp_path.iterdir()} == {"other", "made", foreign.name}


KILLED_WRITING = """
import os, pathlib, signal, sys
from regard import files
with files.replacing(pathlib.Path(sys.argv[1])) as unfinished:
    unfinished.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_file_that_a_killed_process_did_not_finish_is_removed_a_day_later(tmp_path):
    path = tmp_path / "file"
    command = [sys.executable, "-c", KILLED_WRITING, str(path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.read_text() == "half"
    files.write(path, b"first")
    assert left.exists()  # another process may be writing it
    made = left.stat().st_mtime
    os.utime(left, (made, made - 25 * 60 * 60))
    files.write(tmp_path / "other", b"")
    assert left.exists()  # it is another file's
    files.write(path, b"second")
    assert path.read_bytes() == b"second"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "other"]


def test_a_file_that_two_write_at_once_is_that_of_the_last(tmp_path):
    path = tmp_path / "file"
    with files.replacing(path) as unfinished:
        files.write(path, b"second")
        unfinished.write_bytes(b"first")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_no_file_is_locked_while_it_is_written(tmp_path):
    """Where locks are mandatory, as on a share of Samba, a lock of ours would refuse our own writing."""
    with files.replacing(tmp_path / "file") as unfinished, open(unfinished, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write(b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
