"""Text in, translations out, a bounded part of it at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from regard.cli.output.answers import Answers
from regard.cli.output.doubts import Doubts

if TYPE_CHECKING:
    from regard.cli.translating.serving import Served
    from regard.translation.translator import Translation, Translator


@dataclass
class Interpreter:
    """A translator at work between two streams.

    Attributes:
        translator: who translates.
        settings: what `Translator.translate` is given each time.
        out: where translations are written.
        seed: of sampling; each part of the text has the one after it.
        doubts: what was noticed about the translations.
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
        answers: Answers,
        *,
        prefix: str | None = None,
        own_prefixes: bool = False,
        draw: bool = False,
    ) -> None:
        """Each line is a sentence; with `own_prefixes` followed by a tab and how its translation begins."""
        for chunk in chunks:
            texts, begun = chunk, prefix if prefix is None else [prefix] * len(chunk)
            if own_prefixes:
                columns = [line.partition("\t") for line in chunk]
                texts, begun = [text for text, _, _ in columns], [words for _, _, words in columns]
            for translation in self._translate(texts, prefix=begun):
                self.doubts.add([translation])
                for line in answers.lines(translation, self.doubts.seen):
                    self.out.write(line + "\n")
                if draw:
                    _draw(translation)
            self.out.flush()

    def paragraphs(self, chunks: Iterable[list[str]]) -> None:
        """Each chunk is text to be cut into sentences; what is between them is written as it is."""
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
