"""Which looks of a translation are drawn, and as what."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.output import report
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.translation.translator import Translation
    from regard.viewing.alignment import Alignment

_NAMES = {
    "cross": r"decoder\.(\d+)\.cross",
    "encoder": r"encoder\.(\d+)\.self",
    "decoder": r"decoder\.(\d+)\.self",
}
WHO = {
    "cross": "what the decoder reads of the source",
    "encoder": "what the encoder reads of the source",
    "decoder": "what the decoder reads of itself",
}


def layers(
    translation: Translation,
    attention: str = "cross",
    *,
    whole_words: bool = True,
    model: str = "",
) -> dict[int, list[Alignment]]:
    """One kind of attention by layer, an alignment for each head, titled after `model` where it is given.

    Raises `ConfigurationError` when the model has none of that kind.
    """
    from regard.viewing.alignment import by_head

    of = f"{model}: " if model else ""
    found: dict[int, list[Alignment]] = {}
    for name, look in translation.looks.items():
        matched = re.fullmatch(_NAMES[attention], name)
        if matched:
            layer = int(matched[1])
            heads = by_head(
                look, *translation.labels(name), title=f"{of}{WHO[attention]}, layer {layer}"
            )
            found[layer] = [head.words() for head in heads] if whole_words else heads
    if not found:
        has = [
            kind
            for kind, name in _NAMES.items()
            if any(re.fullmatch(name, n) for n in translation.looks)
        ]
        raise ConfigurationError(
            f"--attention {attention}: this model has none; it has {' and '.join(has) or 'no attention at all'}"
        )
    return dict(sorted(found.items()))


def choose(
    found: dict[int, list[Alignment]], layer: int | None, head: int | None
) -> dict[int, list[tuple[int, Alignment]]]:
    """The layers and heads that were asked for; all of them where nothing was. Heads keep their numbers."""
    if layer is not None and layer not in found:
        raise ConfigurationError(f"--layer {layer}: the model has layers 0 to {max(found)}")
    most = max(len(heads) for heads in found.values())
    if head is not None and not 0 <= head < most:
        raise ConfigurationError(f"--head {head}: the model has heads 0 to {most - 1}")
    return {
        place: [(n, alignment) for n, alignment in enumerate(heads) if head is None or n == head]
        for place, heads in found.items()
        if layer is None or place == layer
    }


def mean_of_heads(heads: list[Alignment]) -> Alignment:
    """One alignment for a layer."""
    from regard.viewing.alignment import mean

    if len(heads) == 1:
        return heads[0]
    return mean(heads, title=heads[0].title.replace(", head 0", f", mean of {len(heads)} heads"))


def last_cross(translation: Translation) -> Alignment:
    """The mean of the heads with which the decoder's last layer reads the source, in whole words."""
    found = layers(translation)
    return mean_of_heads(found[max(found)])


def save(figure: Figure, out: Path) -> None:
    """Write a picture, and note the characters in it that no installed font has."""
    from regard.viewing import figures

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        figures.save(figure, out)
    for each in told:
        report.note(str(each.message))


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
