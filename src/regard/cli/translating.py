"""The options of `regard translate`, and the translation of a stream, a bounded part of it at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from regard.cli.options.checks import changed_options, exclude, option
from regard.cli.options.model import DEFAULT_MODEL, MODEL, Device, To, open_translator
from regard.cli.options.removed import Shortlist, note_removed
from regard.cli.options.search import SamplingOptions, SearchOptions
from regard.cli.output import drawing, report, streams
from regard.cli.output.answers import OutputOptions, confidences
from regard.cli.output.doubts import Doubts
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.interop.engine import Engine
    from regard.translation.decoding.search import Search
    from regard.translation.translator import Translation, Translator

Translate = Callable[..., "list[Translation]"]
# For so few sentences, loading compiled loops takes longer than translating without them.
_FEW = 4
_PREFIXES = ("--prefix", "--prefixes")
_BY_LINE = ("--confidence", "--alignment", "--format json", *_PREFIXES, "--look")
_NO_ENGINE = ("--sample", "--coverage-penalty", "--batch-tokens", "--device")
# An option, those that it excludes, and why.
_EXCLUDED = (
    (
        "--paragraphs",
        ("--whole-lines", "--nbest", "--scores", *_BY_LINE),
        "it gives text as it was laid out",
    ),
    ("--prefixes", ("--prefix",), "give each line its own"),
    (
        "--look",
        ("--format json", "several models", "--output"),
        "a drawing is of one model, among lines of text",
    ),
    (
        "--engine ctranslate2",
        (*_BY_LINE, *_NO_ENGINE),
        "that engine gives texts and their scores; leave --engine out",
    ),
    ("TEXT", ("--input",), "give sentences, or a file of them"),
)


@dataclass(frozen=True)
class InputOptions:
    """The text, and the beginnings of its translations.

    Attributes:
        texts: Lines of text; without any, those of standard input.
        input: Translate the lines of a file, plain or gzip.
        paragraphs: Sentences may go on after a line break; keep lists, headings and empty lines.
        whole_lines: Translate each line as a whole, however many sentences it has.
        prefix: Begin every translation with these words.
        prefixes: Each line may be followed by a tab and its own --prefix.
        line_buffered: Answer each line before the next is read.
    """

    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT")] = None
    input: Path | None = None
    paragraphs: bool = False
    whole_lines: bool = False
    prefix: Annotated[str | None, typer.Option(metavar="WORDS")] = None
    prefixes: bool = False
    line_buffered: bool = False


@dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    """All options of the command.

    Attributes:
        models: A bundled model's name or a run folder; several times: the mean of their
            probabilities. [default: es-en]
        engine: The engine of the search; ctranslate2 takes a Transformer, or a folder exported to
            it.
        explain: Say on standard error which engine searches, and why a faster one does not.
        quantization: How --engine ctranslate2 stores weights: int8 is quicker and changes some
            words. [default: float32]
    """

    models: Annotated[list[str] | None, MODEL] = None
    to: To = None
    inputs: InputOptions
    outputs: OutputOptions
    search: SearchOptions
    sampling: SamplingOptions
    device: Device = "cpu"
    engine: Literal["regard", "ctranslate2"] = "regard"
    explain: bool = False
    quantization: Literal["float32", "int8"] | None = None
    shortlist: Shortlist = False

    def check(self) -> None:
        """Raises `ConfigurationError` for options that exclude one another or are out of range."""
        from regard.translation.decoding.search import Search

        self.sampling.check()
        groups = (self, self.inputs, self.outputs, self.search, self.sampling)
        used = {option(name) for name in changed_options(*groups)}
        used |= {"TEXT"} if self.inputs.texts else set()
        used |= {"several models"} if len(self.models or ()) > 1 else set()
        used |= {f"--format {self.outputs.format}", f"--engine {self.engine}"}
        spelling = {"--device": f"--device {self.device}"}
        for name, exclusions, why in _EXCLUDED:
            if name in used:
                exclude(
                    name, {spelling.get(other, other): other in used for other in exclusions}, why
                )
        self.search.check()
        self.of(Search())

    def of(self, search: Search) -> Search:
        """A model's own search with the changes.

        Without --beam, the beam is at least as large as the number of translations wanted.
        """
        nbest, beam = self.outputs.nbest, self.search.beam
        size = max(search.beam, nbest) if beam is None else beam
        return self.search.of(search, **self.sampling.changes, nbest=nbest, beam=size)


def open_engine(options: TranslateOptions) -> tuple[Translator | Engine, str, int]:
    """The translator or engine, the language it reads, and how many chunks of lines it translates at a time."""
    models, to = options.models or [DEFAULT_MODEL], options.to
    ours = options.engine == "regard"
    note_removed(
        shortlist=options.shortlist,
        int8=ours and options.quantization == "int8",
        instead="add --engine ctranslate2",
    )
    if not ours:
        from regard.interop import ctranslate2

        if options.explain:
            report.say("engine: ctranslate2", file=sys.stderr)
        ctranslate2.library()
        if len(models) > 1:
            raise ConfigurationError("--engine ctranslate2 serves one model: give --model once")
        engine = _exported(models[0], options)
        return engine, engine.sentence_language or "", engine.workers
    is_short = 0 < len(options.inputs.texts or ()) <= _FEW
    avoid = (
        f"loading compiled loops takes longer than translating {_FEW} sentences" if is_short else ""
    )
    translator = open_translator(models, options.device, to, avoid)
    if options.explain:
        name, reason = translator.engine.name, translator.engine.reason
        report.say(f"engine: {name}" + (f" ({reason})" if reason else ""), file=sys.stderr)
    return translator, translator.source_language, 1


def _exported(model: str, options: TranslateOptions) -> Engine:
    """The engine ctranslate2 of a bundled model, a run or an exported folder."""
    from regard.interop.engine import Engine, is_exported

    if not is_exported(model):
        translator = open_translator(model, "cpu", options.to)
        return Engine.of(translator, quantization=options.quantization or "float32")
    exported = {"an exported folder": options.to is not None}
    exclude(f"--to {options.to}", exported, "name the model it was made of")
    return Engine(model)


def write_lines(
    translate: Translate,
    chunks: Iterable[list[str]],
    out: TextIO,
    doubts: Doubts,
    options: TranslateOptions,
) -> None:
    """Each line gives a translation; with `--prefixes`, a tab and the beginning of its translation follow."""
    inputs = options.inputs
    show = confidences(out) if options.outputs.confidence else None
    prefix = None if inputs.prefix is None else streams.argument(inputs.prefix)
    for chunk in chunks:
        prefixes = {} if prefix is None else {"prefix": [prefix] * len(chunk)}
        if inputs.prefixes:
            columns = [line.partition("\t") for line in chunk]
            chunk = [text for text, _, _ in columns]
            prefixes = {"prefix": [words for _, _, words in columns]}
        for translation in translate(chunk, **prefixes):
            doubts.add([translation])
            for line in options.outputs.lines(translation, doubts.total, show):
                out.write(line + "\n")
            if translation.looks:
                layers = drawing.layers(translation)
                drawing.print_alignment(drawing.mean_of_heads(layers[max(layers)]))
        out.flush()


def write_paragraphs(
    translate: Translate,
    chunks: Iterable[list[str]],
    out: TextIO,
    doubts: Doubts,
    language: str,
) -> None:
    """Each chunk is text of several sentences; the white space between them is kept."""
    from regard.translation.text import sentences

    for chunk in chunks:
        divided = sentences.split("".join(chunk), language)
        translations = translate([part.text for part in divided], whole_lines=True)
        doubts.add(one for one in translations if one.source)
        out.write(sentences.join(divided, [one.text for one in translations]))
        out.flush()
