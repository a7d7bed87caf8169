"""The attention that links words, the aligner that reads it, and gold links."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options.model import ModelOptions
from regard.cli.output import report
from regard.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.translation.aligning.aligner import Aligner
    from regard.translation.evaluation.gold import Gold
    from regard.translation.translator import Translator


class LinkMethod(StrEnum):
    argmax = "argmax"
    mutual = "mutual"
    threshold = "threshold"
    grow_diagonal = "grow-diagonal"


@dataclass(frozen=True)
class LinkOptions:
    """Which attention links words, and how; None where the model's own choice stays.

    Attributes:
        layer: One layer of the decoder, from 0.
        head: One head of it, from 0.
        shift: Read the step that has just read a target word, or the one that writes it.
        balance: Let source words compete for target words.
        method: How weights become links; see docs/align.md.
        threshold: The weight that makes a link, with --method threshold.
    """

    layer: int | None = None
    head: int | None = None
    shift: Annotated[bool | None, typer.Option("--shift/--no-shift")] = None
    balance: Annotated[bool | None, typer.Option("--balance/--no-balance")] = None
    method: LinkMethod | None = None
    threshold: float | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of a `Choice` that were given. Two models are needed to grow the diagonal: that is none."""
        rows = None if self.shift is None else "read" if self.shift else "written"
        grown = self.method in (None, LinkMethod.grow_diagonal)
        given = {
            "layer": self.layer,
            "head": self.head,
            "rows": rows,
            "balanced": self.balance,
            "method": None if grown else str(self.method),
            "threshold": self.threshold,
        }
        return {name: value for name, value in given.items() if value is not None}


def open_aligner(model: ModelOptions, links: LinkOptions | None = None) -> Aligner:
    """The aligner of a model: by the options, else by the choice kept with it, else by the usual one.

    A note on standard error says which of these it is.
    """
    from regard.translation.aligning.aligner import Aligner
    from regard.translation.aligning.choice import Choice, find, taught, usual

    changes = {} if links is None else links.changes
    Choice(**{"layer": 0, **changes})  # refuses what is out of range before a model is opened
    translator = model.open()
    kept = find(translator.run)
    learnt = taught(translator.run.configuration)
    base = kept.choice if kept else learnt or usual(_layers(translator))
    if "layer" in changes and "head" not in changes:
        base = replace(base, head=None)
    choice = replace(base, **changes)
    if kept is None and not changes and learnt is not None:
        why = "what its training taught to look at linked words"
    elif kept is None and not changes:
        why = "the usual, since nothing was chosen for this model (regard align --choose GOLD)"
    elif kept is None or choice != kept.choice:
        why = "as asked for"
    else:
        why = f"chosen by {kept.gold}, AER {kept.aer:.1f} there"
        why += "" if kept.current else ", for other weights than these: choose again"
    report.note(f"{model.model}: {choice}; {why}")
    return Aligner(translator.model, translator.tokenizers, choice)


def read_gold(
    path: Path, *, flip: bool, limit: int | None, lines: tuple[Path, Path] | None
) -> Gold:
    """Gold links with their words: from the file itself, or from two files of lines."""
    from regard.translation.aligning.words import words_of
    from regard.translation.evaluation import gold as golds
    from regard.translation.text.corpora import read_lines

    gold = golds.read_gold(path, limit)
    gold = gold.flipped() if flip else gold
    if gold.words is not None or lines is None:
        return gold
    source, target = ([words_of(line) for line in read_lines(each)] for each in lines)
    if limit is not None:
        source, target = source[:limit], target[:limit]
    if not len(source) == len(target) == len(gold):
        raise DataError(
            f"{path} has {len(gold)} lines, {lines[0]} {len(source)} and {lines[1]} {len(target)}: "
            "they must be about the same sentences"
        )
    words = list(zip(source, target, strict=True))
    for number, (pair, sure, possible) in enumerate(
        zip(words, gold.sure, gold.possible, strict=True), start=1
    ):
        for link in sure | possible:
            if link[0] >= len(pair[0]) or link[1] >= len(pair[1]):
                raise DataError(
                    f"{path}:{number}: link {link[0]}-{link[1]}, the sentence has "
                    f"{len(pair[0])} and {len(pair[1])} words, from 0 (are the sides exchanged? --flip)"
                )
    return golds.Gold(gold.sure, gold.possible, words)


def gold_words(gold: Gold, path: Path) -> list[tuple[list[str], list[str]]]:
    """The words of gold sentences. Raises `ConfigurationError` where there are none to align."""
    if gold.words is None:
        raise ConfigurationError(
            f"{path}: links without words: give the sentences as well, a file of each side"
        )
    return gold.words


def _layers(translator: Translator) -> int:
    return int(translator.run.configuration.model.decoder_layers)
