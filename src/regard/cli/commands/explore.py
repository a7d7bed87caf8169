"""`regard explore`: the explorer in a browser, from a server on this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import aligning, computing, shipped, watching
from regard.cli.options import corpora
from regard.cli.options.model import DEFAULT_MODEL, Device
from regard.cli.output import report, streams
from regard.cli.signals import Signals
from regard.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.explorer import Scene
    from regard.translation.evaluation.gold import Gold

PAIRS = 1000  # sentences with gold links that are listed


def explore(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL|MODULE:CALL|FILE", autocompletion=shipped.complete_model),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535)] = 0,
    open_: bool = False,
    device: Device = "cpu",
    alignments: Annotated[Path | None, typer.Option(metavar="GOLD")] = None,
    flip: bool = False,
) -> None:
    """See, step through and change what a model attends to, in a browser.

    The server answers on 127.0.0.1 alone, and opens no model but those named here. Ctrl-C ends it.

    Args:
        names: Bundled models' names or run folders; the folder of a compiled program; a model of your own, MODULE:CALL
            as for `regard look --watch`; or a .safetensors file with the tensors `query` and `key`. [default: es-en]
        port: The port; 0 takes any free one.
        open_: Open the page in the default browser.
        alignments: Sentence pairs with the links of their words, as JSON lines: heads are sorted by them.
        flip: The gold's source is the model's target.

    Examples:
        regard explore
        regard explore es-en es-en-recurrent --open
        regard explore runs/own --port 8000
        regard explore my_model:example
        regard explore saved.safetensors
        regard explore es-en --alignments gold.jsonl --flip
    """
    from regard.explorer.server import Explorer, Models, serve
    from regard.translation.opening import find

    streams.output()
    scenes = [name for name in names or () if _is_scene(name)]
    if len(scenes) > 1:
        raise ConfigurationError(
            f"{' and '.join(scenes)}: pass one function, file or program at a time"
        )
    models = [name for name in names or [DEFAULT_MODEL] if name not in scenes]
    folders = {Path(name).name or name: find(name) for name in models}
    if flip and alignments is None:
        raise ConfigurationError("--flip belongs to --alignments")
    if alignments is not None and not models:
        raise ConfigurationError("--alignments needs a translator: name a model or run folder")
    gold = None if alignments is None else _gold(corpora.locate(alignments), flip)
    scene = _scene(scenes[0]) if scenes else None

    def ready(address: str) -> None:
        report.say(f"open {address} in a browser; Ctrl-C ends the server", flush=True)
        if open_:
            typer.launch(address)

    with Signals():
        serve(Explorer(Models(folders, device), scene, gold), port, ready)


def _gold(path: Path, flip: bool) -> Gold:
    """Gold links that have their words."""
    gold = aligning.read_gold(path, flip=flip, limit=PAIRS, lines=(None, None))
    if gold.words is None:
        raise DataError(
            f'{path}: links without words: write JSON lines with "src", "tgt" and "sure"'
        )
    if len(gold) == PAIRS:
        report.note(f"{path}: the first {PAIRS:,} lines are used")
    return gold


def _is_scene(name: str) -> bool:
    return _is_file(name) or watching.is_call(name) or computing.is_program(name)


def _is_file(name: str) -> bool:
    return name.lower().endswith(".safetensors") and not Path(name).is_dir()


def _scene(name: str) -> Scene:
    """The first scene: a watch of the user's own model or of a compiled program, or the attention in a file."""
    if _is_file(name):
        from regard.explorer.stored import open_file

        return open_file(name)
    if computing.is_program(name):
        return computing.scene(name)
    attentions, words = watching.watched(watching.called(name, name), name)
    with watching.running(name):
        scene: Scene = attentions.scene(title=name, **words)
    return scene
