"""`regard look`: a picture of what each word looked at."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli import computing, watching
from regard.cli.options.checks import check_sentences, check_writable, exclude
from regard.cli.options.memory import MemoryOptions
from regard.cli.options.model import DEFAULT_MODEL, ModelOptions
from regard.cli.output import drawing, report, streams
from regard.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.translation.results import Translation
    from regard.viewing.alignment import Alignment


Theme = Literal["light", "dark"]
Attention = Literal["cross", "encoder", "decoder"]


def look(
    *,
    text: Annotated[str | None, typer.Argument(metavar="TEXT")] = None,
    target: str | None = None,
    model: ModelOptions,
    memory: MemoryOptions,
    attention: Attention | None = None,
    layer: int | None = None,
    head: int | None = None,
    pieces: bool = False,
    out: Path | None = None,
    watch: Annotated[str | None, typer.Option(metavar="MODULE:CALL")] = None,
    theme: Theme | None = None,
) -> None:
    """Draw what each word looked at: queries down, keys across.

    Into a file go all layers and heads, or those of --layer and --head; a page is the explorer of this translation.
    Without --out the terminal shows one layer (the last one, unless told), the mean of its heads or one of them.

    Args:
        text: One sentence.
        target: A translation to look along, instead of the model's own.
        attention: The decoder's of the source, or that of the encoder or decoder itself.
            [default: cross; in a page all]
        layer: One layer, from 0.
        head: One head, from 0.
        pieces: Show subword pieces instead of whole words.
        out: A picture (.png, .svg, .pdf) or a page (.html).
        watch: Look inside a model of your own instead: CALL() of MODULE, which is imported and run,
            returns the model and its inputs. --out then names a folder of pictures, or a page
            (.html).
        theme: Light or dark. [default: light; in a terminal as it says it is]

    Examples:
        regard look "El gato negro duerme."
        regard look "El gato negro duerme." --out alignment.html
        regard look "El gato negro duerme." --target "The black cat sleeps." --out alignment.svg
        regard look "El gato negro duerme." --attention encoder --layer 0 --head 2 --out self.png
        regard look --model runs/reverse "a b c d" --pieces
        regard look --watch my_model:example --out heads
        regard look --model folder-of-a-program "hello"
    """
    translator_options = {
        "--target": target is not None,
        "--to": model.to is not None,
        "--attention": attention is not None,
        "--pieces": pieces,
        "--device": model.device != "cpu",
        "--memory": memory.memory is not None,
    }
    memory.check()
    if watch is not None:
        named = {"TEXT": text is not None, "--model": model.model != DEFAULT_MODEL}
        exclude("--watch", named | translator_options, "it looks inside a model of your own")
        watching.show(watch, layer, head, out, theme or "light")
        return
    if text is None:
        raise ConfigurationError(
            "TEXT is missing: pass a sentence, or --watch MODULE:CALL; see `regard look --help`"
        )
    if computing.is_program(model.model):
        exclude(f"--model {model.model}", translator_options, "it is a compiled program")
        computing.look(model.model, text, layer, head, out, theme)
        return
    if out is not None:
        _check_name(out)
        check_writable(out)
    from regard.viewing.labels import isolated

    streams.output()
    check_sentences([text], "give the sentence itself")
    sentence = streams.argument(text)
    translator = model.open()
    memory.let_read(translator)
    translation = translator.look(sentence, target and streams.argument(target))
    if not translation.source_pieces:
        raise DataError("TEXT is empty: there is nothing to look at")
    name = Path(model.model).name or model.model
    if out is not None and out.suffix.lower() == ".html":
        kinds = [attention] if attention else drawing.names_by_kind(translation) or ["cross"]
        _write(translation, kinds, layer, head, pieces, name, out)
        print(translation.text)
        report.say(f"wrote {out}")
        return
    kind = attention or "cross"
    layers = drawing.layers(translation, kind, whole_words=not pieces, model=name)
    if out is None and layer is None:
        layer = max(layers)
    selection = drawing.choose(layers, layer, head)
    print(translation.text)
    if out is None:
        heads = list(selection[max(selection)].values())
        drawing.print_alignment(drawing.mean_of_heads(heads), theme)
    else:
        title = f"{isolated(sentence)} → {isolated(translation.text)}"
        subtitle = f"{name}: {drawing.WHO[kind]}"
        _save(selection, out, theme or "light", title, subtitle)
        report.say(f"wrote {out}")


def _check_name(out: Path) -> None:
    from regard.viewing import figures

    endings = (*figures.FORMATS, "html")
    if out.suffix.lower().removeprefix(".") not in endings:
        formats = ", ".join(f".{ending}" for ending in endings)
        raise ConfigurationError(f"--out {out}: its name must end in {formats}")


def _write(
    translation: Translation,
    kinds: Iterable[str],
    layer: int | None,
    head: int | None,
    pieces: bool,
    model: str,
    out: Path,
) -> None:
    """The explorer's page of a translation, with the layers and heads that were asked for."""
    from regard.explorer import scenes
    from regard.explorer.page import write

    names_drawn: set[str] = set()
    for kind in kinds:
        names = drawing.names_of(translation, kind)
        heads = {at: range(translation.looks[name].shape[-3]) for at, name in names.items()}
        names_drawn |= {names[at] for at in drawing.choose(heads, layer, head)}
    write(out, scenes.of_looks(translation, model, names_drawn, head, pieces))


def _save(
    layers: dict[int, dict[int, Alignment]], out: Path, theme: Theme, title: str, subtitle: str
) -> None:
    from regard.viewing import pictures

    panels = [one for heads in layers.values() for one in heads.values()]
    if len(panels) == 1:
        drawing.save(pictures.heat_map(panels[0], theme), out)
    else:
        figure = pictures.small_multiples(layers, theme, title=title, subtitle=subtitle)
        drawing.save(figure, out)
