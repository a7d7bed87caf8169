"""The options of the form of translations, and translations as lines of text or of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from regard.cli.output import streams
from regard.cli.output.report import Format

if TYPE_CHECKING:
    from regard.translation.results import Candidate, Translation, Word

# Below each of these a word is shown in the colour, in a terminal that has colours.
_COLOURS = ((0.25, "bold red"), (0.5, "red"), (0.75, "yellow"))
Show = Callable[[Sequence["Word"]], str]


@dataclass(frozen=True)
class OutputOptions:
    """The form of the translations.

    Attributes:
        output: Write there, once all is translated; not before.
        look: Draw what each word looked at, too.
        nbest: Translations of each line, each on its own, the line's number first.
        scores: Put the score before each: log-probability over the length penalty.
        confidence: Show how probable each word was: word|0.98, or in a terminal in colours, yellow
            below 0.75, red below 0.5, bold below 0.25.
        alignment: Put after each which source word each word looked at most: 0-0 2-1.
        why: With --memory: name below each, word by word, the stored sentences it came from, and
            the probability that each added.
        format: Lines of text, or a JSON object a line.
    """

    output: Path | None = None
    look: bool = False
    nbest: int = 1
    scores: bool = False
    confidence: bool = False
    alignment: bool = False
    why: bool = False
    format: Format = "text"

    def lines(self, translation: Translation, number: int, show: Show | None) -> Iterator[str]:
        """JSON on one line, or columns with tabs between them: number, score, text and alignment, if wanted."""
        if self.format == "json":
            yield self._json(translation)
            return
        candidates: Sequence[Candidate | Translation] = translation.alternatives[: self.nbest]
        for candidate in candidates or [translation]:
            columns = [str(number)] if self.nbest > 1 else []
            columns += [f"{candidate.score:.4f}"] if self.scores else []
            columns += [show(candidate.words) if show else candidate.text]
            columns += [pharaoh(candidate.alignment)] if self.alignment else []
            yield "\t".join(columns)

    def reasons(self, translation: Translation) -> Iterator[str]:
        """With `why`, a line for each word and stored sentence: word, weight, source and target, tabs before them."""
        if self.why and self.format == "text":
            for word in translation.words:
                for origin in word.origins:
                    yield f"\t{word.text}\t{origin.weight:.2f}\t{origin.source}\t{origin.target}"

    def _json(self, translation: Translation) -> str:
        """Strict JSON (RFC 8259). JSON strings may hold line ends of Unicode and control characters, which
        programs that read lines, and terminals, would obey: they are escaped.
        """
        answer = {"source": translation.source, **self._fields(translation)}
        for name in (
            "quality",
            "unknown",
            "unseen",
            "invented",
            "repeats",
            "unfinished",
            "doubts",
            "read_as",
            "terms",
        ):
            answer[name] = getattr(translation, name)
        answer["sentences"] = [
            {"source": one.source, "translation": one.text} for one in translation.sentences
        ]
        if self.nbest > 1:
            answer["nbest"] = [self._fields(one) for one in translation.alternatives[: self.nbest]]
        return streams.printable(json.dumps(answer, ensure_ascii=False, allow_nan=False))

    def _fields(self, candidate: Candidate | Translation) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "translation": candidate.text,
            "score": candidate.score,
            "log_probability": candidate.log_probability,
            "words": [
                {"word": word.text, "confidence": word.confidence}
                | ({"origins": [vars(one) for one in word.origins]} if self.why else {})
                for word in candidate.words
            ],
        }
        return {**fields, "alignment": pharaoh(candidate.alignment)} if self.alignment else fields


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links as Pharaoh and most tools for alignments write them, source word first, from 0.

    >>> pharaoh([(0, 0), (2, 1)])
    '0-0 2-1'
    """
    return " ".join(f"{source}-{target}" for source, target in links)


def confidences(out: TextIO) -> Show:
    """Words with their confidences: in colours where `out` is a terminal that has them, else in figures."""
    from rich.console import Console
    from rich.style import Style

    console = Console(file=out)

    def coloured(word: Word) -> str:
        styles = [colour for below, colour in _COLOURS if word.confidence < below]
        return Style.parse(styles[0]).render(word.text) if styles else word.text

    if console.is_terminal and console.color_system is not None:
        return lambda words: " ".join(map(coloured, words))
    return lambda words: " ".join(f"{word.text}|{word.confidence:.2f}" for word in words)
