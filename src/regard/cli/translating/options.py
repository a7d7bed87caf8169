"""Options of `regard translate`: its input, its output, and which of them exclude one another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options.checks import exclude
from regard.cli.options.model import Device, SpeedOptions
from regard.cli.options.search import SamplingOptions, SearchOptions
from regard.cli.output.report import Format

if TYPE_CHECKING:
    from regard.translation.decoding.search import Search


class EngineName(StrEnum):
    regard = "regard"
    ctranslate2 = "ctranslate2"


@dataclass(frozen=True)
class InputOptions:
    """The text, and the beginnings of its translations.

    Attributes:
        texts: Sentences; without any, lines of standard input.
        source: Translate the lines of a file, plain or gzip.
        paragraphs: Text of any number of sentences: find and translate them, and keep the text
            between.
        prefix: Begin every translation with these words.
        prefixes: Each sentence may be followed by a tab and its own --prefix.
        line_buffered: Answer each line before the next is read.
    """

    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT")] = None
    source: Annotated[Path | None, typer.Option("--input")] = None
    paragraphs: bool = False
    prefix: Annotated[str | None, typer.Option(metavar="WORDS")] = None
    prefixes: bool = False
    line_buffered: bool = False


@dataclass(frozen=True)
class OutputOptions:
    """The form of the translations.

    Attributes:
        out: Write there, once all is translated; not before.
        look: Draw what each word looked at, too.
        nbest: Translations of each sentence, a line each, the sentence's number first.
        scores: Put the score before each: log-probability over the length penalty.
        confidence: Show how probable each word was: word|0.98, or in a terminal in colours, yellow
            below 0.75, red below 0.5, bold below 0.25.
        alignment: Put after each which source word each word looked at most: 0-0 2-1.
        form: Lines of text, or a JSON object a line.
    """

    out: Annotated[Path | None, typer.Option("--output")] = None
    look: bool = False
    nbest: int = 1
    scores: bool = False
    confidence: bool = False
    alignment: bool = False
    form: Annotated[Format, typer.Option("--format")] = Format.text


@dataclass(frozen=True)
class EngineOptions:
    """The engine that searches, and its device.

    Attributes:
        engine: The engine of the search; ctranslate2 takes a Transformer, or a folder exported to
            it.
        explain: Say on standard error which engine searches, and why a faster one does not.
    """

    device: Device = "cpu"
    engine: EngineName = EngineName.regard
    explain: bool = False


@dataclass(frozen=True)
class TranslateOptions:
    """All options of one command."""

    models: list[str]
    given: InputOptions
    wanted: OutputOptions
    search: SearchOptions
    sampling: SamplingOptions
    engine: EngineOptions
    speed: SpeedOptions

    def check(self) -> None:
        """Raises `ConfigurationError` for options that exclude one another or are out of range."""
        from regard.translation.decoding.search import Search

        given, wanted = self.given, self.wanted
        self.sampling.check()
        json = {"--format json": wanted.form is Format.json}
        prefix = {"--prefix": given.prefix is not None}
        prefixes = {"--prefixes": given.prefixes}
        ranked = {"--nbest": wanted.nbest > 1, "--scores": wanted.scores}
        extras = {"--confidence": wanted.confidence, "--alignment": wanted.alignment}
        by_line = {**extras, **json, **prefix, **prefixes, "--look": wanted.look}
        if given.paragraphs:
            exclude("--paragraphs", {**ranked, **by_line}, "it gives text as it was laid out")
        if self.speed.shortlist:
            exclude("--shortlist", {**prefix, **prefixes}, "a prefix may ask for any word")
        if given.prefixes:
            exclude("--prefixes", prefix, "give each sentence its own")
        if wanted.look:
            several = {"several models": len(self.models) > 1, "--output": wanted.out is not None}
            why = "a drawing is of one model, among lines of text"
            exclude("--look", {**json, **several}, why)
        if self.engine.engine is EngineName.ctranslate2:
            device = self.engine.device
            ours = {
                "--sample": self.sampling.sample,
                "--coverage-penalty": self.search.coverage_penalty is not None,
                "--batch-tokens": self.search.batch_tokens is not None,
                f"--device {device}": device != "cpu",
                "--shortlist": self.speed.shortlist,
            }
            why = "that engine gives texts and their scores; leave --engine out"
            exclude("--engine ctranslate2", {**by_line, **ours}, why)
        if given.texts:
            several_inputs = {"--input": given.source is not None}
            exclude("TEXT", several_inputs, "give sentences, or a file of them")
        self.search.check()
        self.of(Search())

    def of(self, own: Search) -> Search:
        """A model's own search with the changes.

        Without --beam, the beam is at least as large as the number of translations wanted.
        """
        nbest, beam = self.wanted.nbest, self.search.beam
        size = max(own.beam, nbest) if beam is None else beam
        return self.search.of(own, **self.sampling.changes, nbest=nbest, beam=size)
