"""How a test types a command: within this process where it can, as a process of its own where it must."""

from __future__ import annotations

import io
import multiprocessing
import multiprocessing.process
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch

import regard
from regard.cli.main import main

SOURCE = Path(regard.__file__).parents[1]
# Machines may be slow and busy: only a command that hangs takes so long.
PATIENCE = 300


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last line of standard error: what a person reads."""
        return self.err.rstrip("\n").rpartition("\n")[2]

    @property
    def lines(self) -> list[str]:
        return self.out.split("\n")[:-1]


class Bytes(io.BytesIO):
    """Keeps what was written when a text stream closes it."""

    def close(self) -> None:
        pass


@contextmanager
def standing_in(stdin: bytes, out: IO[bytes], err: IO[bytes]) -> Iterator[None]:
    """Streams as the interpreter makes them: text over bytes, here in ASCII, as in a bare locale."""
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), "ascii")
    sys.stdout = io.TextIOWrapper(out, "ascii")
    sys.stderr = io.TextIOWrapper(err, "ascii", errors="backslashreplace")
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = before


def run(*arguments: str | Path, stdin: bytes = b"") -> Result:
    """Run a command in this process. What it prints must be UTF-8."""
    out, err = Bytes(), Bytes()
    with standing_in(stdin, out, err):
        code = main([str(argument) for argument in arguments])
    return Result(code, out.getvalue().decode("utf-8"), err.getvalue().decode("utf-8"))


def process(*arguments: str | bytes | Path, **settings: Any) -> subprocess.Popen[bytes]:
    """Start a command as a process of its own, in surroundings that hold nothing of ours."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(SOURCE),
        "OMP_NUM_THREADS": "1",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        **settings.pop("env", {}),
    }
    command: list[str | bytes | Path] = [sys.executable, "-m", "regard", *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, **{**pipes, **settings})


class Fork(NamedTuple):
    """A command in a child of this process, which need not import torch again."""

    child: multiprocessing.process.BaseProcess
    errors: Path

    def alive(self) -> bool:
        return self.child.is_alive()

    def send(self, number: int) -> None:
        assert self.child.pid is not None
        os.kill(self.child.pid, number)

    def finish(self) -> tuple[int | None, str]:
        """Its code (a signal it died of is negative) and what it wrote to standard error."""
        self.child.join(PATIENCE)
        if self.child.is_alive():
            self.child.kill()
            raise AssertionError("it went on for ever")
        return self.child.exitcode, self.errors.read_text(encoding="utf-8")


def fork(errors: Path, *arguments: str | Path) -> Fork:
    """Start a command in a child that prints nowhere; its standard error goes to a file."""
    # Where torch has threads for a GPU, it cannot be forked.
    context = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")
    command = [str(argument) for argument in arguments]
    child = context.Process(target=_in_child, args=(errors, command), daemon=True)
    child.start()
    return Fork(child, errors)


def _in_child(errors: Path, arguments: list[str]) -> None:
    torch.set_num_threads(1)
    with open(os.devnull, "wb") as out, errors.open("wb") as err, standing_in(b"", out, err):
        code = main(arguments)
    os._exit(code)


def finish(started: subprocess.Popen[bytes], stdin: bytes | None = None) -> Result:
    """Wait for a process. A negative code is the signal it died of."""
    try:
        out, err = started.communicate(stdin, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        started.kill()
        raise
    return Result(started.returncode, (out or b"").decode("utf-8"), (err or b"").decode("utf-8"))


def check_refused(result: Result, *named: str | Path, code: int = 1) -> None:
    """A clean failure: its code, one last line that names what is wrong, and little else."""
    assert result.code == code, result
    assert result.last.startswith("error: "), result.err
    for name in named:
        assert str(name) in result.err.partition("error: ")[2], (name, result.err)
    assert "Traceback" not in result.err
    assert len(result.err.encode()) < 4096


def leftovers(folder: Path) -> Sequence[Path]:
    """What a failure must not leave behind."""
    return [path for path in folder.rglob("*") if ".tmp" in path.name]
