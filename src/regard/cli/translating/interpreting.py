"""Translate a stream, a bounded part of it at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from regard.cli.output.answers import LineFormat
from regard.cli.output.doubts import Doubts

if TYPE_CHECKING:
    from regard.cli.translating.serving import Served
    from regard.translation.translator import Translation, Translator


@dataclass
class Interpreter:
    """Translates one stream into another.

    Attributes:
        translator: a translator, or an engine with the same methods.
        settings: the arguments of each call of `Translator.translate`.
        out: the stream that translations are written to.
        seed: the seed of sampling for the first part of the text; each later part has the next number.
        doubts: counts of doubtful translations.
    """

    translator: Translator | Served
    settings: dict[str, Any]
    out: TextIO
    seed: int | None = None
    doubts: Doubts = field(init=False)

    def __post_init__(self) -> None:
        self.doubts = Doubts(self.translator.longest)

    def lines(
        self,
        chunks: Iterable[list[str]],
        form: LineFormat,
        prefix: str | None = None,
        *,
        own_prefixes: bool = False,
        draw: bool = False,
    ) -> None:
        """Each line is a sentence; with `own_prefixes`, a tab and the beginning of its translation follow."""
        for chunk in chunks:
            texts, begun = chunk, prefix if prefix is None else [prefix] * len(chunk)
            if own_prefixes:
                columns = [line.partition("\t") for line in chunk]
                texts, begun = [text for text, _, _ in columns], [words for _, _, words in columns]
            for translation in self._translate(texts, prefix=begun):
                self.doubts.add([translation])
                for line in form.lines(translation, self.doubts.seen):
                    self.out.write(line + "\n")
                if draw:
                    _draw(translation)
            self.out.flush()

    def paragraphs(self, chunks: Iterable[list[str]]) -> None:
        """Each chunk is text of several sentences; the white space between them is kept."""
        from regard.translation.text import sentences

        self.doubts.unit = "sentence"
        for chunk in chunks:
            parts = sentences.split("".join(chunk), self.translator.source_language)
            found = self._translate([part.text for part in parts])
            self.doubts.add(one for one in found if one.source)
            self.out.write(sentences.join(parts, [one.text for one in found]))
            self.out.flush()

    def _translate(self, texts: list[str], **more: Any) -> list[Translation]:
        found = self.translator.translate(texts, seed=self.seed, **self.settings, **more)
        if self.seed is not None:
            self.seed = (self.seed + 1) % 2**63
        return found


def _draw(translation: Translation) -> None:
    from regard.cli.output import drawing

    if translation.looks:
        drawing.print_alignment(drawing.last_cross(translation))
