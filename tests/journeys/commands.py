"""How a test types a command: in this process where it can, in a child of it, as a process of its own where it must.

A child has torch already, and tells what the command alone has cost: its processor time, which other work on the
machine does not change, and how far its memory grew. (Of a process of its own the system would tell the memory of the
process that started it as well, where that is the larger one.) It takes a tenth of a second longer than this process.
`start` gives a child the streams and signals of a process of its own, which takes three seconds longer (`process`).
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import io
import os
import pkgutil
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn
from unittest.mock import patch

import torch

import regard
import regard.__main__
from regard.cli.main import command_line, main
from regard.loops.availability import are_compiled

SOURCE = Path(regard.__file__).parents[1]
# Machines may be slow and busy: only a command that hangs takes so long.
PATIENCE = 300
# A process without a home still finds the machine code that others have compiled.
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")


class Result(NamedTuple):
    """What a command printed and cost: seconds of processor time, bytes of memory on top of what there were."""

    code: int
    out: str
    err: str
    seconds: float = 0.0
    growth: int = 0

    @property
    def last_line(self) -> str:
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
    streams = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), "ascii")
    sys.stdout = io.TextIOWrapper(out, "ascii")
    sys.stderr = io.TextIOWrapper(err, "ascii", errors="backslashreplace")
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = streams


def run(
    *arguments: str | Path,
    stdin: bytes = b"",
    limits: Mapping[int, int] | None = None,
    as_anybody: bool = False,
    apart: bool = False,
) -> Result:
    """Run a command and wait for it. What it prints must be UTF-8.

    Args:
        limits: soft limits of `resource` that a child alone has.
        as_anybody: in a child without root's right to read and write what is closed to others.
        apart: in a child, as is every command that changes its process: a training and a server.
    """
    here = not (apart or limits or as_anybody or {"train", "explore", "serve"} & {*arguments[:1]})
    if here or torch.cuda.is_available():  # a process with threads for a GPU cannot be forked
        return run_here(*arguments, stdin=stdin)
    preload()
    command = [str(argument) for argument in arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        original = resident()
        child = os.fork()
        if child == 0:
            _be_child(command, stdin, out, err, limits or {}, as_anybody)
        code, used = _waited_for(child)
        texts = [stream.seek(0) or stream.read().decode("utf-8") for stream in (out, err)]
    growth = used.ru_maxrss * 1024 - original if original else 0
    return Result(code, *texts, used.ru_utime + used.ru_stime, growth)


run_apart = functools.partial(run, apart=True)


def run_here(*arguments: str | Path, stdin: bytes = b"") -> Result:
    """Run a command in this very process."""
    out, err = Bytes(), Bytes()
    with suppress(OSError):  # Linux forgets the peak
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    original, start = resident(), time.process_time()
    # A training that keeps its memory would change this process for the tests after it.
    with standing_in(stdin, out, err), patch("regard.translation.training.memory.keep"):
        code = main([str(argument) for argument in arguments])
    seconds, growth = time.process_time() - start, max(0, peak() - original)
    texts = out.getvalue().decode("utf-8"), err.getvalue().decode("utf-8")
    return Result(code, *texts, seconds, growth)


@functools.cache
def preload() -> None:
    """Import and read once, here, what every child would have to import and read for itself."""
    modules = (module.name for module in pkgutil.walk_packages(regard.__path__, "regard."))
    for name in modules:
        if name != "regard.__main__" and ".triton" not in name:
            importlib.import_module(name)
    for name in (
        "PIL.BmpImagePlugin", "PIL.GifImagePlugin", "PIL.JpegImagePlugin", "PIL.PpmImagePlugin",
        "encodings.utf_8_sig", "filelock", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf",
        "matplotlib.backends.backend_svg", "rich.console", "rich.progress", "rich.table",
        "sacrebleu.tokenizers.tokenizer_13a", "sacrebleu.tokenizers.tokenizer_spm", "sentencex",
        "torch._dynamo", "torch.profiler._cupti_monitor", "typer._adapters", "typer._click._textwrap",
        "typer._click.decorators",
    ):  # fmt: skip
        with suppress(ImportError):  # private names, which another version may lack
            importlib.import_module(name)
    _prepare(command_line())
    # numba reads its own library when it first loads a kernel, which takes longer than a small training.
    for context in ("typing_context", "target_context"):
        getattr(importlib.import_module("numba.core.registry").cpu_target, context).refresh()
    # Read from the cache what other processes have compiled.
    if are_compiled():
        importlib.import_module("regard.translation.decoding.preparation").compile_loops()
    # A child that collects garbage would copy every page that it looks at.
    gc.collect()
    gc.freeze()


def _prepare(command: Any) -> None:
    """Build what typer reads the values of options with, which it does when a command first runs."""
    for parameter in command.params:
        with suppress(AttributeError):  # of the lowest version
            parameter.get_runtime_param()
    for below in getattr(command, "commands", {}).values():
        _prepare(below)


def resident() -> int:
    """The bytes of memory this process holds; 0 where the system does not say."""
    return _memory(1)


def peak() -> int:
    """The most bytes of memory this process has held; 0 where the system does not say."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    return 0


def virtual() -> int:
    """The bytes this process has asked for, of which a limit would count every one."""
    return _memory(0)


def _memory(field: int) -> int:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[field]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


def _be_child(
    command: list[str],
    stdin: bytes,
    out: IO[bytes],
    err: IO[bytes],
    limits: Mapping[int, int],
    as_anybody: bool,
) -> NoReturn:
    code = 99
    try:
        if as_anybody:
            give_up_rights()
        for which, limit in limits.items():
            resource.setrlimit(which, (limit, resource.getrlimit(which)[1]))
        torch.set_num_threads(1)
        with standing_in(stdin, out, err):
            code = main(command)
    except BaseException:
        err.write(traceback.format_exc().encode())
        err.flush()
    finally:
        os._exit(code)


def _waited_for(child: int) -> tuple[int, resource.struct_rusage]:
    limit = time.monotonic() + PATIENCE
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), used
        if time.monotonic() > limit:
            os.kill(child, signal.SIGKILL)
            os.wait4(child, 0)
            raise AssertionError("it went on for ever")
        time.sleep(0.005)


def give_up_rights() -> None:
    """Make root an owner of files like anybody else: what is closed to an owner is closed (Linux; see capset(2))."""
    if os.geteuid() != 0:
        return
    version_3, none = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    if ctypes.CDLL(None, use_errno=True).capset(version_3, none) != 0:
        raise OSError(ctypes.get_errno(), "rights cannot be given up here")


def process(
    *arguments: str | bytes | Path, module: str = "regard", **settings: Any
) -> subprocess.Popen[bytes]:
    """Start a command as a process of its own, in surroundings that hold nothing of ours."""
    command: list[str | bytes | Path] = [sys.executable, "-m", module, *arguments]
    environment = surroundings(settings.pop("env", {}))
    return subprocess.Popen(command, env=environment, **{**PIPES, **settings})


def start(
    *arguments: str | Path,
    module: str = "regard",
    program: Callable[[], int] = regard.__main__.main,
    closed: Sequence[int] = (),
    **settings: Any,
) -> subprocess.Popen[bytes]:
    """The same in a child, which has torch already; streams, signals and surroundings are as real.

    Args:
        program: what the module does.
        closed: standard descriptors that nothing is open on.
    """
    if torch.cuda.is_available():  # a process with threads for a GPU cannot be forked
        closing = functools.partial(_close, closed)
        return process(*arguments, module=module, preexec_fn=closing, **settings)
    preload()
    command = [module, *map(str, arguments)]
    environment = surroundings(settings.pop("env", {}))
    become = functools.partial(_become, program, command, environment, closed)
    return subprocess.Popen(command, preexec_fn=become, **{**PIPES, **settings})


PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def surroundings(more: Mapping[str, str]) -> dict[str, str]:
    """What a process of its own sees of the machine: nothing of the person who runs the tests."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(SOURCE),
        "OMP_NUM_THREADS": "1",
        "HOME": "/nonexistent",
        "XDG_CACHE_HOME": CACHE,
        "LC_ALL": "C",
        **more,
    }


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _become(
    program: Callable[[], int],
    command: list[str],
    environment: dict[str, str],
    closed: Sequence[int],
) -> NoReturn:
    """Be what subprocess would start now, with its streams on the standard descriptors."""
    code = 99
    try:
        # The pipe is closed by which subprocess waits for a program; loggers that write elsewhere write to 2.
        for descriptor in map(int, os.listdir("/dev/fd")):
            if descriptor > 2:
                os.dup2(2, descriptor)
        _close(closed)
        os.environ.clear()
        os.environ.update(environment)
        torch.set_num_threads(1)
        gc.enable()
        # As the interpreter does.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
            mode = "w" if descriptor else "r"
            stream = None if descriptor in closed else os.fdopen(descriptor, mode, encoding="ascii")
            setattr(sys, name, stream)
        sys.argv, sys.modules["__main__"] = command, regard.__main__
        code = program()
        for stream in filter(None, (sys.stdout, sys.stderr)):  # as the interpreter does at its end
            try:
                stream.flush()
            except OSError:
                os.write(2, traceback.format_exc().encode())
                code = 120
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def finish(started: subprocess.Popen[bytes], stdin: bytes | None = None) -> Result:
    """Wait for a process. A negative code is the signal it died of."""
    try:
        out, err = started.communicate(stdin, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        started.kill()
        raise
    return Result(started.returncode, (out or b"").decode("utf-8"), (err or b"").decode("utf-8"))


def check_refused(
    result: Result, *named: str | Path, code: int = 1, seconds: float = 10, megabytes: int = 800
) -> None:
    """A clean failure: its code, one last line that names what is wrong, and little else spent or said.

    Torch alone has some 220 MB, so that 800 more are within a gigabyte.
    """
    assert result.code == code, result
    assert result.last_line.startswith("error: "), result.err
    for name in named:
        assert str(name) in result.err.partition("error: ")[2], (name, result.err)
    assert "Traceback" not in result.err
    assert len(result.err.encode()) < 4096
    assert result.seconds < seconds
    assert result.growth < megabytes * 2**20


def leftovers(folder: Path) -> Sequence[Path]:
    """What a failure must not leave behind."""
    return [path for path in folder.rglob("*") if ".tmp" in path.name]
