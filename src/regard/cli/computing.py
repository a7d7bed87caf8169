"""Programs in commands: found by name, their inputs read from text, their attention drawn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import watching
from regard.cli.output import drawing, report
from regard.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.explorer import Scene
    from regard.explorer.contract import Kind
    from regard.programs import Compiled, Program
    from regard.viewing.alignment import Alignment

BEGINNING = "begin"  # the place before the first token, which unused attention goes to
UNUSED = "no attention is used: the program works on each position alone"


def program(name: str) -> Program:
    """A shipped program by its name, or one of the user's own, MODULE:NAME."""
    from regard.programs import PROGRAMS, Program

    if name in PROGRAMS:
        return PROGRAMS[name]
    if ":" not in name:
        names = ", ".join(PROGRAMS)
        raise ConfigurationError(
            f"{name}: no such program; there are {names}; your own are MODULE:NAME"
        )
    with watching.running(name):
        value = watching.function(name, name)
    if not isinstance(value, Program):
        raise ConfigurationError(
            f"{name}: is of type {type(value).__name__}: put @program(alphabet) above its function"
        )
    return value


def tokens(text: str, alphabet: Sequence[Any]) -> list[Any]:
    """The tokens of a text: its characters, or its words where a token of the alphabet is longer."""
    named = {str(token): token for token in alphabet}
    words = list(text) if all(len(name) == 1 for name in named) else text.split()
    return [named.get(word, word) for word in words]


def is_program(name: str) -> bool:
    """Whether a name is that of a folder with a compiled program."""
    return os.path.isfile(Path(name) / "program.json")


def answer(compiled: Compiled, input_tokens: Sequence[Any]) -> None:
    """Print each token with its answer below it."""
    report.say(
        report.table([list(map(str, each)) for each in (input_tokens, compiled(input_tokens))])
    )


def draw(
    compiled: Compiled,
    input_tokens: Sequence[Any],
    layer: int | None,
    head: int | None,
    theme: str | None,
) -> None:
    """Print the attention of the heads that the program uses, or of one layer or head."""
    layers = _heads(compiled, input_tokens)
    if not layers:
        report.say(UNUSED)
        return
    for heads in drawing.choose(layers, layer, head).values():
        for alignment in heads.values():
            drawing.print_alignment(alignment, theme)


def _heads(compiled: Compiled, input_tokens: Sequence[Any]) -> dict[int, list[Alignment]]:
    """The used heads of each layer that has any. Queries leave out the beginning; keys have it."""
    from regard.viewing.alignment import Alignment, by_head

    words = [BEGINNING, *map(str, input_tokens)]
    layers: dict[int, list[Alignment]] = {}
    for layer, (look, names) in enumerate(
        zip(compiled.looks(input_tokens), compiled.heads, strict=False)
    ):
        for head, (head_alignment, name) in enumerate(
            zip(by_head(look, words, words), names, strict=False)
        ):
            readable = None if head_alignment.readable is None else head_alignment.readable[1:]
            title = f"layer {layer}, head {head}: {name}"
            alignment = Alignment(head_alignment.weights[1:], words[1:], words, title, readable)
            layers.setdefault(layer, []).append(alignment)
    return layers


def look(
    folder: str, text: str, layer: int | None, head: int | None, out: Path | None, theme: str | None
) -> None:
    """`regard look` for a folder with a compiled program."""
    if out is not None:
        watching.check(out)
    compiled, input_tokens = _open(folder, text)
    answer(compiled, input_tokens)
    if out is None:
        print()
        draw(compiled, input_tokens, layer, head, theme)
        return
    page_scene = _scene(compiled, input_tokens, layer, head)
    if watching.is_page(out):
        from regard.explorer import write

        write(out, page_scene)
        report.say(f"wrote {out}")
        return
    for attention in page_scene.attentions:
        watching.draw(attention.name, attention.look, out, theme or "light")


def scene(folder: str) -> Scene:
    """The scene of a compiled program and its example, for `regard explore`."""
    return _scene(*_open(folder, None))


def _scene(
    compiled: Compiled,
    input_tokens: Sequence[Any],
    layer: int | None = None,
    head: int | None = None,
) -> Scene:
    """The scene of the heads that the program uses, or of one layer or head of them.

    Raises:
        DataError: it uses none.
    """
    from regard.explorer import Attention, Scene
    from regard.explorer import Sequence as Tokens

    used = {n: range(len(names)) for n, names in enumerate(compiled.heads) if names}
    if not used:
        raise DataError(f"{compiled.name}: {UNUSED}")
    words = [BEGINNING, *map(str, input_tokens)]
    tokens = Tokens("tokens", words, ids=compiled.ids(input_tokens)[0].tolist())
    looks, attentions = compiled.looks(input_tokens), []
    for n, chosen_heads in drawing.choose(used, layer, head).items():
        heads = list(chosen_heads)
        if heads:
            look = looks[n][0, heads[0] : heads[-1] + 1]
            kind: Kind = "self" if compiled.model.mask is None else "causal"
            attentions.append(Attention(f"layer.{n}.self", kind, look, 0, 0, heads))
    return Scene(compiled.name, [tokens], attentions, type(compiled.model).__name__)


def _open(folder: str, text: str | None) -> tuple[Compiled, list[Any]]:
    from regard.programs import open_folder

    compiled = open_folder(folder)
    input_tokens = list(compiled.example) if text is None else tokens(text, compiled.alphabet)
    if not input_tokens:
        raise DataError("TEXT is empty: there is nothing to look at")
    return compiled, input_tokens
