"""Text in, translations out, a bounded part of it at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from regard.cli.answers import Answers

if TYPE_CHECKING:
    from regard.cli.serving import Served
    from regard.translation.translator import Translation, Translator


@dataclass
class Interpreter:
    """A translator at work between two streams.

    Attributes:
        translator: who translates.
        settings: what `Translator.translate` is given each time.
        out: where translations are written.
        seed: of sampling; each part of the text has the one after it.
        sentences: how many were translated, and
        cut: of how many the end was left out.
    """

    translator: Translator | Served
    settings: dict[str, Any]
    out: TextIO
    seed: int | None = None
    sentences: int = 0
    cut: int = 0

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
                self.sentences += 1
                for line in answers.lines(translation, self.sentences):
                    self.out.write(line + "\n")
                if draw:
                    _draw(translation)
            self.out.flush()

    def paragraphs(self, chunks: Iterable[list[str]]) -> None:
        """Each chunk is text to be cut into sentences; what is between them is written as it is."""
        from regard.translation.text import sentences

        for chunk in chunks:
            parts = sentences.split("".join(chunk), self.translator.source_language)
            found = self._translate([part.text for part in parts])
            self.sentences += sum(part.text != "" for part in parts)
            self.out.write(sentences.join(parts, [one.text for one in found]))
            self.out.flush()

    def say_what_was_cut(self) -> None:
        if self.cut:
            print(
                f"note: {self.cut} of {self.sentences} sentences were longer than "
                f"{self.translator.longest} pieces and were cut",
                file=sys.stderr,
            )

    def _translate(self, texts: list[str], **more: Any) -> list[Translation]:
        found = self.translator.translate(texts, seed=self.seed, **self.settings, **more)
        if self.seed is not None:
            self.seed = (self.seed + 1) % 2**63
        self.cut += sum(one.cut > 0 for one in found)
        return found


def _draw(translation: Translation) -> None:
    from regard.cli import drawing

    if translation.looks:
        drawing.print_alignment(drawing.last_cross(translation))
