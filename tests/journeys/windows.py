"""Run commands in a Python that lacks what Python on Windows lacks: windows.py COMMANDS.json

It stands in for modules and functions, for open files that cannot be removed or renamed, for folders that cannot be
opened, and for files that are forced to the disk only when they are open for writing. Paths and consoles stay.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import pkgutil
import shutil
import signal
import stat
import sys
import tempfile
import time
from errno import EACCES, EBADF
from pathlib import Path

MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "triton", "tty")
MISSING = {
    os: "O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_CLOEXEC fork forkpty getegid geteuid getgid getloadavg getpgid getuid "
    "initgroups killpg mkfifo nice pread preadv pwrite pwritev posix_fadvise posix_fallocate register_at_fork "
    "sched_getaffinity sched_setaffinity sendfile setsid setuid statvfs fstatvfs sync uname wait wait3 "
    "wait4 RTLD_NOLOAD",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGTSTP SIGUSR1 SIGUSR2 alarm pause pthread_sigmask "
    "setitimer sigwait siginterrupt",
    time: "clock_gettime tzset",
}  # fmt: skip


def load_libraries() -> None:
    """What others wrote knows Windows by its name, and is loaded before that of POSIX is hidden."""
    for name in (
        "filelock", "matplotlib.backends.backend_agg", "matplotlib.pyplot", "numba", "portalocker", "pydantic",
        "rich.console", "rich.progress", "sacrebleu", "safetensors.torch", "sentencepiece", "torch", "torch._dynamo",
        "torch.distributed.fsdp", "typer.main", "typer.testing", "uuid",
    ):  # fmt: skip
        importlib.import_module(name)


def hide() -> None:
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in MISSING.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)


def restrict() -> None:
    """Give the functions of files the rules of Windows."""
    import filelock

    flags, opening, forcing = fcntl.fcntl, os.open, os.fsync
    filelock.lock_descriptor = lambda handle, **_: True  # type: ignore[attr-defined]
    shutil._use_fd_functions = False  # type: ignore[attr-defined]

    def open_(path, *rest, **named):
        if os.path.isdir(path):
            raise PermissionError(EACCES, "Permission denied", os.fspath(path))
        return opening(path, *rest, **named)

    def fsync(handle):
        if flags(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(EBADF, "Bad file descriptor")
        forcing(handle)

    os.open, os.fsync = open_, fsync
    tempfile.TemporaryFile = tempfile.NamedTemporaryFile  # type: ignore[assignment,misc]  # as Python has it there
    for name in ("remove", "rename", "replace", "rmdir", "unlink"):
        setattr(os, name, _closed_only(getattr(os, name)))


def _closed_only(change):
    def closed_only(path, *rest, **named):
        place = Path(os.path.realpath(path))
        if any(place == each or place in each.parents for each in _open_files()):
            raise PermissionError(EACCES, "used by another process", os.fspath(path))
        return change(path, *rest, **named)

    return closed_only


def _open_files() -> list[Path]:
    paths = []
    for handle in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISREG(os.stat(f"/proc/self/fd/{handle}").st_mode):
                paths.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        except OSError:  # the listing's own
            continue
    return paths


def import_everything() -> None:
    import regard

    for module in pkgutil.walk_packages(regard.__path__, "regard."):
        if not module.name.startswith("regard.attention.kernels.triton."):  # Windows has no Triton
            importlib.import_module(module.name)


def main() -> int:
    load_libraries()
    restrict()
    hide()
    import_everything()
    from regard.cli.main import main as regard

    for command in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        if code := regard(command):
            print(f"regard {' '.join(command)}: {code}", file=sys.stderr)
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
