"""Word links: the attention that links words, the aligner that reads it, gold links and their scores."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli import shipped
from regard.cli.options import corpora
from regard.cli.options.checks import changed_options, option
from regard.cli.options.model import ModelOptions
from regard.cli.output import report
from regard.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.translation.aligning.aligner import Aligner
    from regard.translation.evaluation.alignment import Link
    from regard.translation.evaluation.gold import Gold

Words = list[str]


@dataclass(frozen=True)
class LinkOptions:
    """Which attention links words, and how; None where the model's own choice stays.

    Attributes:
        layer: One layer of the decoder, from 0.
        head: One head of it, from 0.
        shift: Read the step that has just read a target word, or the one that writes it.
        balance: Let source words compete for target words.
        method: How weights become links; see docs/reference/align.md.
        threshold: The weight that makes a link, with --method threshold.
    """

    layer: int | None = None
    head: int | None = None
    shift: Annotated[bool | None, typer.Option("--shift/--no-shift")] = None
    balance: Annotated[bool | None, typer.Option("--balance/--no-balance")] = None
    method: Literal["argmax", "mutual", "threshold", "grow-diagonal"] | None = None
    threshold: float | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of a `Choice` that were given. Two models are needed to grow the diagonal: that is none."""
        grown = self.method in (None, "grow-diagonal")
        options = {
            "layer": self.layer,
            "head": self.head,
            "rows": {None: None, True: "read", False: "written"}[self.shift],
            "balanced": self.balance,
            "method": None if grown else self.method,
            "threshold": self.threshold,
        }
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True)
class AdaptOptions:
    """Links that are learnt from the text itself.

    Attributes:
        adapt: Learn the links from the text, without a model: some hundreds of pairs or more, of
            any languages.
        tokenized: With --adapt: words are what spaces keep apart; punctuation is not split off.
        characters: With --adapt: each character of Chinese, Japanese and Thai is a word.
        translator: With --adapt: average the attention of this model, which translates SOURCE's
            language into TARGET's.
        priors: With --adapt: a file of --keep, so that few pairs are aligned with the knowledge of
            many.
        keep: With --adapt: write what was learnt there.
        seed: With --adapt: of the samples; the same seed gives the same links.
    """

    adapt: bool = False
    tokenized: bool = False
    characters: bool = False
    translator: Annotated[
        str | None, typer.Option(metavar="NAME|DIR", autocompletion=shipped.complete_model)
    ] = None
    priors: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    keep: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    seed: Annotated[int, typer.Option(min=0)] = 0

    def check(self) -> None:
        """Raise `ConfigurationError` for options that do nothing without --adapt, or exclude each other."""
        names = changed_options(self)
        if not self.adapt and names:
            raise ConfigurationError(f"{', '.join(map(option, names))}: only with --adapt")
        if self.tokenized and self.characters:
            raise ConfigurationError("--tokenized leaves words as they are: leave out --characters")
        if self.priors and self.keep:
            raise ConfigurationError(
                "--keep writes what this text alone taught: leave out --priors, or align both texts together"
            )


@dataclass(frozen=True, kw_only=True)
class AlignOptions:
    """The texts to align, the models, and the form of the links.

    Attributes:
        source: A file of sentences, one a line; alone, of tab-separated pairs, or TMX.
        target: Their translations, line for line.
        text: SOURCE and TARGET are a sentence each, not files.
        reverse_model: A model the other way round, for --method grow-diagonal.
        format: Pharaoh's "0-0 1-2", or JSON, a line each; or a TMX file with words and links as
            properties.
        confidence: Put after each link how probable it is: 0-0:0.98.
        out: A picture of one pair (.png, .svg, .pdf).
        choose: Find the layer, head and method with the least errors on these, and keep them in the
            model's folder.
        flip: The gold's source is the model's target.
        limit: With --choose: so many sentences.
        store: With --choose: keep what was found.
    """

    source: Annotated[str | None, typer.Argument(metavar="SOURCE")] = None
    target: Annotated[str | None, typer.Argument(metavar="TARGET")] = None
    text: bool = False
    model: ModelOptions
    reverse_model: Annotated[
        str | None, typer.Option(metavar="NAME|DIR", autocompletion=shipped.complete_model)
    ] = None
    links: LinkOptions
    adapting: AdaptOptions
    languages: corpora.LanguageOptions
    format: Literal["text", "json", "tmx"] = "text"
    confidence: bool = False
    out: Path | None = None
    choose: Annotated[Path | None, typer.Option(metavar="GOLD")] = None
    flip: bool = False
    limit: int | None = None
    store: Annotated[bool, typer.Option("--store/--no-store")] = True


def open_aligner(model: ModelOptions, links: LinkOptions | None = None) -> Aligner:
    """The aligner of a model: by the options, else by the choice kept with it, else by the usual one.

    A note on standard error says which of these it is.
    """
    from regard.translation.aligning.aligner import Aligner
    from regard.translation.aligning.choice import Choice, find, taught, usual

    changes = {} if links is None else links.changes
    Choice(**{"layer": 0, **changes})  # refuses what is out of range before a model is opened
    translator = model.open()
    configuration = translator.run.configuration
    stored, guided = find(translator.run), taught(configuration)
    if stored is not None:
        base = stored.choice
        why = f"chosen by {stored.gold}, AER {stored.aer:.1f} there"
        why += "" if stored.current else ", for other weights than these: choose again"
    elif guided is not None:
        base, why = guided, "what its training taught to look at linked words"
    else:
        base = usual(configuration.model.decoder_layers)
        why = "the usual, since nothing was chosen for this model (regard align --choose GOLD)"
    start = replace(base, head=None) if "layer" in changes and "head" not in changes else base
    choice = replace(start, **changes)
    if choice != base or (stored is None and changes):
        why = "as asked for"
    report.note(f"{model.model}: {choice}; {why}")
    return Aligner(translator.model, translator.tokenizers, choice)


def read_gold(
    path: Path, *, flip: bool, limit: int | None, lines: tuple[Path | None, Path | None]
) -> Gold:
    """Gold links with their words: from the file itself, or from two files of lines."""
    from regard.translation.aligning.words import normalised_words
    from regard.translation.evaluation import gold as golds
    from regard.translation.text.corpora import Parallel

    source, target = map(corpora.locate, lines)
    gold = golds.read_gold(path, limit)
    _check_origin(
        path, [sure | possible for sure, possible in zip(gold.sure, gold.possible, strict=True)]
    )
    gold = gold.flipped() if flip else gold
    if gold.words is not None or source is None or target is None:
        return gold
    files = Parallel(source, target)
    words = [(normalised_words(ours), normalised_words(theirs)) for ours, theirs in files.rows()][
        :limit
    ]
    if len(words) != len(gold):
        raise DataError(
            f"{path} has {len(gold)} lines, {files.source} and {files.target} {len(words)}: "
            "they must be about the same sentences"
        )
    for number, (ours, theirs) in enumerate(words):
        for link in gold.sure[number] | gold.possible[number]:
            if link[0] >= len(ours) or link[1] >= len(theirs):
                raise DataError(
                    f"{path}:{number + 1}: link {link[0]}-{link[1]}, the sentence has {len(ours)} and "
                    f"{len(theirs)} words, from 0 (are the sides exchanged? --flip)"
                )
    return replace(gold, words=words)


def _check_origin(path: Path, links: Sequence[Set[Link]]) -> None:
    """A note where links seem to count from 1: those of Regard and of Pharaoh's format count from 0."""
    from regard.translation.evaluation.alignment import count_from_one

    if count_from_one(links):
        report.note(
            f"{path}: no link has a word 0: links are read as counted from 0, these seem to count from 1"
        )


def gold_words(gold: Gold, path: Path) -> list[tuple[Words, Words]]:
    """The words of gold sentences. Raises `ConfigurationError` where there are none to align."""
    if gold.words is None:
        raise ConfigurationError(
            f"{path}: links without words: give the sentences as well, a file of each side"
        )
    return gold.words


def score_links(
    path: Path,
    model: ModelOptions,
    hypotheses: Path | None,
    lines: tuple[Path | None, Path | None],
    flip: bool,
    adapted: bool,
    format: report.Format,
) -> None:
    """`regard evaluate --alignments`: score a file of links, or those of the gold's sentences: learnt, or a model's."""
    from regard.translation.aligning.adapted import adapt
    from regard.translation.evaluation.alignment import diagonal_links, measure_alignment
    from regard.translation.evaluation.gold import read_links

    if lines.count(None) == 1:
        raise ConfigurationError("--source and --target belong together: give both")
    if adapted and hypotheses is not None:
        raise ConfigurationError("--adapt makes the links: leave out --hypotheses")
    gold = read_gold(path, flip=flip, limit=None, lines=lines)
    if hypotheses is not None:
        links = read_links(hypotheses)
        _check_origin(hypotheses, links)
        if len(links) != len(gold):
            raise DataError(f"{hypotheses} has {len(links)} lines, {path} {len(gold)}")
    elif adapted:
        links = [pair.links for pair in adapt(gold_words(gold, path)).aligned()]
    else:
        links = [pair.links for pair in open_aligner(model).align(gold_words(gold, path))]
    scores = measure_alignment(links, gold.sure, gold.possible)
    diagonal = None
    if gold.words is not None:
        plain = [diagonal_links(len(ours), len(theirs)) for ours, theirs in gold.words]
        diagonal = measure_alignment(plain, gold.sure, gold.possible)
    if format == "json":
        beside = {} if diagonal is None else {"diagonal": asdict(diagonal)}
        print(report.as_json({"sentences": len(gold), **asdict(scores), **beside}))
        return
    sure = sum(map(len, gold.sure))
    possible = sum(len(p | s) for p, s in zip(gold.possible, gold.sure, strict=True))
    report.say(
        f"{len(gold)} sentences, {sure} sure links, {possible} sure or possible; {scores.links} found\n"
        f"AER {scores.aer:.2f}  precision {scores.precision:.2f}  recall {scores.recall:.2f}  "
        f"F1 {scores.f1:.2f}"
    )
    if diagonal is not None:
        report.say(f"the diagonal: AER {diagonal.aer:.2f}")
