"""`regard serve`: translations for programs and people, by the API of LibreTranslate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from regard.cli import shipped
from regard.cli.options.model import Device, check_device
from regard.cli.output import report, streams
from regard.cli.signals import Signals
from regard.errors import ConfigurationError
from regard.files import read

MODELS = ["es-en", "en-es", "en-fr"]
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SHORTEST = 16  # characters of a key


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """All options of the command.

    Attributes:
        models: Bundled models' names or run folders, of different pairs of languages.
            [default: es-en en-es en-fr]
        host: The address to listen at; another one than this machine's own needs --keys.
        port: The port; 0 takes any free one.
        workers: Processes that translate, each with all models; one for each core serves most.
        keys: Requests need a key: a line of this file.
        queue: Requests that are translated or wait at a time; more are told to come back.
        memories: Memories that `regard remember` made, each with one of the models, which reads it.
        downloads: Where translated files are kept for ten minutes; servers behind one balancer
            share it. [default: a temporary folder]
    """

    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", autocompletion=shipped.complete_model)
    ] = None
    host: Annotated[str, typer.Option(metavar="ADDRESS")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535)] = 5000
    workers: Annotated[int, typer.Option(min=1, max=256)] = 1
    keys: Path | None = None
    queue: Annotated[int, typer.Option(min=1, max=10_000)] = 100
    memories: Annotated[list[Path] | None, typer.Option("--memory", metavar="DIR")] = None
    downloads: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    device: Device = "cpu"


def serve(options: ServeOptions) -> None:
    """Translate for programs and people, at an address.

    Clients of LibreTranslate work unchanged: /translate, /detect, /languages and the rest of its API. A page for people
    is at /, numbers for Prometheus at /metrics. Sentences of many clients are translated together. Ctrl-C ends it.

    Examples:
        regard serve
        regard serve es-en runs/own --port 8000
        regard serve --workers 8 --host 0.0.0.0 --keys keys.txt
        curl -d q="Hace frío." -d source=es -d target=en http://127.0.0.1:5000/translate
    """
    streams.output()
    keys = [] if options.keys is None else _keys(options.keys)
    is_open = options.host not in LOOPBACK
    if is_open and not keys:
        raise ConfigurationError(
            f"--host {options.host}: other machines could use the server: add --keys FILE with a key on each line"
        )
    if options.downloads is not None and not options.downloads.is_dir():
        raise ConfigurationError(f"--downloads {options.downloads}: is no folder: make it first")
    check_device(options.device)
    # torch and the server are imported late, so that --help is quick.
    from regard.serving.translations import Settings
    from regard.serving.workers import serve as run

    settings = Settings(
        models=options.models or MODELS,
        device=options.device,
        hosts=None if is_open else (),
        keys=keys,
        queue=options.queue,
        downloads=options.downloads,
        memories=options.memories or (),
    )

    def ready(address: str) -> None:
        report.say(f"translations at {address}; Ctrl-C ends the server", flush=True)

    with Signals():
        run(settings, options.host, options.port, options.workers, ready)


def _keys(path: Path) -> list[str]:
    """The keys of a file, one on each line.

    Raises:
        ConfigurationError: there is none, or one that could be guessed.
    """
    lines = read(path).decode(errors="replace").split("\n")
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise ConfigurationError(f"{path}: holds no key: write one on each line")
    for number, key in enumerate(keys, 1):
        if not re.fullmatch(rf"[!-~]{{{SHORTEST},200}}", key):
            raise ConfigurationError(
                f"{path}: key {number}: expected {SHORTEST} to 200 letters, digits and signs of ASCII, without spaces"
            )
    return keys
