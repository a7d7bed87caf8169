"""The processes of a server of translations: each answers the requests that it accepts at the one socket of all."""

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, MutableSequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from tempfile import TemporaryDirectory

import torch

from regard.errors import RegardError
from regard.serving.listening import LOOPBACK, listen, own_hosts, run
from regard.serving.metrics import NAMES, Metrics
from regard.serving.translations import Settings, application

STARTING = 5.0  # seconds between two starts of a worker that ends at once
FAILED = 3  # exit code of a worker that could not start
STOPPING = 10.0  # seconds in which workers end after a signal


class WorkerError(RegardError):
    """A worker ended before it could answer."""


def serve(
    settings: Settings,
    host: str = LOOPBACK,
    port: int = 0,
    workers: int = 1,
    ready: Callable[[str], None] = print,
) -> None:
    """Serve until SIGINT or SIGTERM, at any free port for 0.

    Args:
        workers: processes, each with the models and one thread that translates. One that dies is replaced.
        ready: called with the address.

    Raises:
        PortError: the port or the address cannot be used.
        WorkerError: a worker cannot start.
        RegardError: a model cannot be opened.
    """
    listening = listen(host, port)
    with TemporaryDirectory(prefix="regard-") as folder:
        if settings.hosts is not None:
            settings = replace(settings, hosts=[*own_hosts(listening), *settings.hosts])
        settings = replace(settings, downloads=settings.downloads or folder)
        address = f"http://{host}:{listening.getsockname()[1]}/"
        if workers == 1:
            app = application(settings, Metrics())
            ready(address)
            run(app, listening)
        else:
            ready(address)
            _Workers(settings, listening, workers).supervise()


class _Workers:
    """The running processes; a worker keeps its place among the numbers of `Metrics`."""

    def __init__(self, settings: Settings, listening: socket.socket, count: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._numbers = self._context.Array("d", count * len(NAMES), lock=False)
        self._settings, self._listening = settings, listening
        self._threads = max(torch.get_num_threads() // count, 1)
        self._started = [0.0] * count
        self._processes: list[SpawnProcess] = []

    def supervise(self) -> None:
        """Replace workers that die, until a signal raises."""
        self._processes = [self._start(place) for place in range(len(self._started))]
        try:
            while True:
                wait([process.sentinel for process in self._processes])
                for place, process in enumerate(self._processes):
                    if not process.is_alive():
                        self._processes[place] = self._replaced(place, process)
        finally:
            self._stop()

    def _start(self, place: int) -> SpawnProcess:
        self._started[place] = time.monotonic()
        arguments = (self._settings, self._listening, self._numbers, place, self._threads)
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        return process

    def _replaced(self, place: int, process: SpawnProcess) -> SpawnProcess:
        if process.exitcode == FAILED:
            raise WorkerError("a worker could not start; its message stands above")
        time.sleep(max(self._started[place] + STARTING - time.monotonic(), 0))
        return self._start(place)

    def _stop(self) -> None:
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + STOPPING
        for process in self._processes:
            process.join(max(deadline - time.monotonic(), 0))
            process.kill()


def _work(
    settings: Settings,
    listening: socket.socket,
    numbers: MutableSequence[float],
    place: int,
    threads: int,
) -> None:
    """The life of a worker. It ends with the process that started it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        app = application(settings, Metrics(numbers, place))
    except RegardError as fault:
        print(f"error: {fault}", flush=True)
        raise SystemExit(FAILED) from None
    with suppress(KeyboardInterrupt):
        run(app, listening)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
