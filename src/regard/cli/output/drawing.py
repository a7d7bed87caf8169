"""Which looks of a translation are drawn, and as what."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from regard.cli.output import report
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.translation.results import Translation
    from regard.viewing.alignment import Alignment

Drawn = TypeVar("Drawn")
_LOOK = re.compile(r"(encoder|decoder)\.(\d+)\.(self|cross)")
WHO = {
    "cross": "what the decoder reads of the source",
    "encoder": "what the encoder reads of the source",
    "decoder": "what the decoder reads of itself",
}


def layers(
    translation: Translation, attention: str = "cross", *, whole_words: bool = True, model: str = ""
) -> dict[int, list[Alignment]]:
    """One kind of attention by layer, an alignment for each head, titled after `model` where it is given.

    Raises `ConfigurationError` when the model has none of that kind.
    """
    from regard.viewing.alignment import by_head

    names = names_of(translation, attention)
    title = (f"{model}: " if model else "") + WHO[attention]
    alignments = {}
    for layer, name in names.items():
        labels = translation.labels(name)
        heads = by_head(translation.looks[name], *labels, title=f"{title}, layer {layer}")
        alignments[layer] = [head.words() for head in heads] if whole_words else heads
    return alignments


def names_by_kind(translation: Translation) -> dict[str, dict[int, str]]:
    """The looks of each kind of attention that the model has, by layer."""
    names: dict[str, dict[int, str]] = {}
    for name in translation.looks:
        if matched := _LOOK.fullmatch(name):
            side, layer, reads = matched.groups()
            names.setdefault("cross" if reads == "cross" else side, {})[int(layer)] = name
    return names


def names_of(translation: Translation, attention: str) -> dict[int, str]:
    """The looks of one kind of attention by layer.

    Raises `ConfigurationError` when the model has none of that kind.
    """
    names = names_by_kind(translation)
    if attention not in names:
        has = " and ".join(kind for kind in WHO if kind in names) or "no attention at all"
        raise ConfigurationError(f"--attention {attention}: this model has none; it has {has}")
    return dict(sorted(names[attention].items()))


def choose(
    layers: Mapping[int, Sequence[Drawn]], layer: int | None, head: int | None
) -> dict[int, dict[int, Drawn]]:
    """The layers and heads that were asked for, by number; all of them where nothing was."""
    if layer is not None and layer not in layers:
        raise ConfigurationError(f"--layer {layer}: the model has layers 0 to {max(layers)}")
    count = max(len(heads) for heads in layers.values())
    if head is not None and not 0 <= head < count:
        raise ConfigurationError(f"--head {head}: the model has heads 0 to {count - 1}")
    return {
        place: {n: alignment for n, alignment in enumerate(heads) if head is None or n == head}
        for place, heads in layers.items()
        if layer is None or place == layer
    }


def mean_of_heads(heads: Sequence[Alignment]) -> Alignment:
    """One alignment for a layer."""
    from regard.viewing.alignment import mean

    if len(heads) == 1:
        return heads[0]
    return mean(heads, title=heads[0].title.replace(", head 0", f", mean of {len(heads)} heads"))


def save(figure: Figure, out: Path) -> None:
    """Write a picture, and note the characters in it that no installed font has."""
    from regard.viewing import figures

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        figures.save(figure, out)
    for warning in caught:
        report.note(str(warning.message))


def print_alignment(alignment: Alignment, theme: str | None = None) -> None:
    """Draw in the terminal, or as characters into whatever standard output is."""
    from rich.console import Console

    from regard.viewing import terminal

    class Paper(Console):
        def on_broken_pipe(self) -> None:
            # Called where the error was caught; rich would end the process with a code of its own.
            raise

    terminal.draw(alignment, Paper(file=sys.stdout), theme=theme)
    print()
