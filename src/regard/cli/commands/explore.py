"""`regard explore`: the explorer in a browser, from a server on this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import aligning, computing, shipped, watching
from regard.cli.options import corpora
from regard.cli.options.model import DEFAULT_MODEL, Device
from regard.cli.output import report, streams
from regard.cli.signals import Signals
from regard.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.explorer import Scene
    from regard.explorer.prompting import LanguageModel
    from regard.explorer.server.opening import Opened
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
    memory: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    alignments: Annotated[Path | None, typer.Option(metavar="GOLD")] = None,
    flip: bool = False,
) -> None:
    """See, step through and change what a model attends to, in a browser.

    The server answers on 127.0.0.1 alone, and opens no model but those named here. Ctrl-C ends it.

    Args:
        names: Bundled models' names or run folders; the folder of a compiled program; models of your own, MODULE:CALL
            as for `regard look --watch`, which read prompts if it returns a tokenizer; or a .safetensors file with the
            tensors `query` and `key`. [default: es-en]
        port: The port; 0 takes any free one.
        open_: Open the page in the default browser.
        memory: Translate with this memory, which `regard remember` made with the one model that is named.
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
    from regard.explorer.server.opening import Opening
    from regard.translation.opening import find

    streams.output()
    scene_names = [name for name in names or () if _is_scene(name)]
    models = [name for name in names or [DEFAULT_MODEL] if name not in scene_names]
    folders = {Path(name).name or name: find(name) for name in models}
    if memory is not None and len(models) != 1:
        raise ConfigurationError("--memory is of one model: name that model alone")
    if flip and alignments is None:
        raise ConfigurationError("--flip belongs to --alignments")
    if alignments is not None and not models:
        raise ConfigurationError("--alignments needs a translator: name a model or run folder")
    translators = Models(folders, device, memory)
    if memory is not None:
        translators.open(next(iter(folders)))  # a memory that cannot be read is told now
    gold = None if alignments is None else _gold(corpora.locate(alignments), flip)
    calls = [name for name in scene_names if watching.is_call(name)]
    for name in calls:
        watching.check_named(name, name)
    scenes = [_scene(name) for name in scene_names if name not in calls]
    _check_single(scenes)

    def ready(address: str) -> None:
        report.say(f"open {address} in a browser; Ctrl-C ends the server", flush=True)
        if open_:
            typer.launch(address)

    def end(answers: list[Opened]) -> None:
        _check_single([*scenes, *(answer.scene for answer in answers if answer.scene is not None)])
        for answer in answers:
            explorer.add(answer)

    with Signals():
        scene = scenes[0] if scenes else None
        opening = Opening(calls, _answer, end) if calls else None
        explorer = Explorer(translators, scene, gold, opening=opening)
        serve(explorer, port, ready)


def _check_single(scenes: list[Scene]) -> None:
    if len(scenes) > 1:
        raise ConfigurationError(
            f"{' and '.join(scene.title for scene in scenes)}: pass one function without a tokenizer,"
            " file or program at a time"
        )


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


def _answer(name: str) -> Opened:
    """A model of the user's own: it reads prompts, or its attentions are those of one run."""
    from regard.explorer.server.opening import Opened

    answer = watching.called(name, name)
    language = _language(name, answer)
    return Opened(language, None if language is not None else _watched(name, answer))


def _language(name: str, answer: Any) -> LanguageModel | None:
    """The model of a function that returns (model, ids, tokenizer); None if no prompt can be typed for it."""
    from regard.explorer import prompting

    model, _, words = watching.model_of(name, answer)
    tokenizer, inputs = words.get("tokenizer"), answer[1]
    start = prompting.start_of(inputs)
    objection = prompting.objection(model, inputs, tokenizer)
    if objection is None and start is not None:
        target = prompting.start_of(inputs, "decoder_input_ids") or ()
        return prompting.LanguageModel(name, model.eval(), tokenizer, start, target)
    if tokenizer is not None:
        report.note(f"{name}: no prompt can be typed: {objection}")
    return None


def _scene(name: str) -> Scene:
    """The scene of a compiled program or of the attention in a file."""
    if _is_file(name):
        from regard.explorer.stored import open_file

        return open_file(name)
    return computing.scene(name)


def _watched(name: str, answer: Any) -> Scene:
    """The scene of a watch of the user's own model."""
    attentions, words = watching.watched(answer, name)
    with watching.running(name):
        scene: Scene = attentions.scene(title=name, **words)
    return scene
