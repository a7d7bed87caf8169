"""`regard explore`: the explorer in a browser, from a server on this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options.model import DEFAULT_MODEL, Device
from regard.cli.output import report, streams
from regard.cli.signals import Signals


def explore(
    *,
    models: Annotated[list[str] | None, typer.Argument(metavar="MODEL")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535)] = 0,
    open_: bool = False,
    device: Device = "cpu",
) -> None:
    """See, step through and change what a model attends to, in a browser.

    The server answers on 127.0.0.1 alone, and opens no model but those named here. Ctrl-C ends it.

    Args:
        models: Bundled models' names or run folders. [default: es-en]
        port: The port; 0 takes any free one.
        open_: Open the page in the default browser.

    Examples:
        regard explore
        regard explore es-en es-en-recurrent --open
        regard explore runs/own --port 8000
    """
    from regard.explorer.server import Explorer, Models, serve
    from regard.translation.opening import find

    streams.output()
    folders = {Path(name).name or name: find(name) for name in models or [DEFAULT_MODEL]}

    def ready(address: str) -> None:
        report.say(f"open {address} in a browser; Ctrl-C ends the server", now=True)
        if open_:
            typer.launch(address)

    with Signals():
        serve(Explorer(Models(folders, device)), port, ready)
