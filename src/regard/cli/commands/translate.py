"""`regard translate`: one translation for each line, or translated paragraphs."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, TextIO

import typer

from regard.cli.options import corpora
from regard.cli.options.checks import (
    changed_options,
    check_sentences,
    check_writable,
    exclude,
    option,
)
from regard.cli.options.memory import MemoryOptions
from regard.cli.options.model import DEFAULT_MODEL, FEW, MODEL, Device, To, open_translator
from regard.cli.options.removed import Shortlist, note_removed
from regard.cli.options.search import SamplingOptions, SearchOptions
from regard.cli.output import drawing, report, streams
from regard.cli.output.answers import OutputOptions, confidences
from regard.cli.output.doubts import DoubtCounts
from regard.cli.signals import Signals
from regard.errors import ConfigurationError, library

if TYPE_CHECKING:
    from regard.interop.engine import Engine
    from regard.translation.decoding.search import Search
    from regard.translation.formats import Document
    from regard.translation.results import Translation
    from regard.translation.translator import Translator

Translate = Callable[..., "list[Translation]"]
_PREFIXES = ("--prefix", "--prefixes")
_BY_LINE = ("--confidence", "--alignment", "--format json", *_PREFIXES, "--look", "--why")
_NO_ENGINE = ("--memory", "--sample", "--coverage-penalty", "--batch-tokens", "--device")
# An option, those that it excludes, and why.
_EXCLUDED = (
    (
        "a file of a format",
        ("TEXT", "--paragraphs", "--line-buffered", "--nbest", "--scores", *_BY_LINE),
        "its text is translated in its place; --input-format lines translates each line",
    ),
    (
        "--paragraphs",
        ("--whole-lines", "--nbest", "--scores", *_BY_LINE),
        "it gives text as it was laid out",
    ),
    ("--glossary", _PREFIXES, "a beginning may have no place for a term"),
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
        input: Translate the lines of a file, or a file of a format, such as film.srt; plain, .gz, .bz2, .xz
            or .zst.
        input_format: What the input is: lines, or a file of which only the text is translated.
            [default: by the ending of --input]
        columns: Translate these columns of a table with tabs between them, counted from 1; the
            others stay. Several times for several.
        paragraphs: Sentences may go on after a line break; keep lists, headings and empty lines.
        whole_lines: Translate each line as a whole, however many sentences it has.
        prefix: Begin every translation with these words.
        prefixes: Each line may be followed by a tab and its own --prefix.
        line_buffered: Answer each line before the next is read.
        glossary: Terms that translations have as this file lists them: source, tab, target on a
            line. A target of = leaves a term as it is; word* also stands for longer words.
    """

    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT")] = None
    input: Path | None = None
    input_format: Literal["lines", "srt", "vtt", "po", "html", "xlf", "md"] | None = None
    columns: Annotated[list[int] | None, typer.Option("--column", metavar="NUMBER", min=1)] = None
    paragraphs: bool = False
    whole_lines: bool = False
    prefix: Annotated[str | None, typer.Option(metavar="WORDS")] = None
    prefixes: bool = False
    line_buffered: bool = False
    glossary: Annotated[Path | None, typer.Option(metavar="FILE")] = None

    @property
    def format(self) -> str:
        """The format of the input: "lines", "table", or one of `regard.translation.formats`."""
        if self.columns:
            return "table"
        from regard.translation.formats import FORMATS
        from regard.translation.text.packed import bare_name

        ending = Path(bare_name(str(self.input or ""))).suffix[1:].lower()
        return self.input_format or (ending if ending in FORMATS else "lines")


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
    recall: MemoryOptions
    device: Device = "cpu"
    engine: Literal["regard", "ctranslate2"] = "regard"
    explain: bool = False
    quantization: Literal["float32", "int8"] | None = None
    shortlist: Shortlist = False

    def check(self) -> None:
        """Raises `ConfigurationError` for options that exclude one another or are out of range."""
        from regard.translation.decoding.search import Search

        self.sampling.check()
        self.recall.check()
        if self.outputs.why and self.recall.memory is None:
            raise ConfigurationError("--why names sentences of a memory: add --memory")
        groups = (self, self.inputs, self.outputs, self.search, self.sampling, self.recall)
        used = {option(name) for name in changed_options(*groups)}
        used |= {"TEXT"} if self.inputs.texts else set()
        used |= {"a file of a format"} if self.inputs.format != "lines" else set()
        used |= {"several models"} if len(self.models or ()) > 1 else set()
        used |= {f"--format {self.outputs.format}", f"--engine {self.engine}"}
        spelling = {
            "--device": f"--device {self.device}",
            "a file of a format": "--column"
            if self.inputs.columns
            else f"--input-format {self.inputs.format}",
        }
        for name, exclusions, why in _EXCLUDED:
            if name in used:
                exclude(
                    spelling.get(name, name),
                    {spelling.get(other, other): other in used for other in exclusions},
                    why,
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
        if options.explain:
            report.say("engine: ctranslate2", file=sys.stderr)
        library("ctranslate2", "ctranslate2")
        if len(models) > 1:
            raise ConfigurationError("--engine ctranslate2 serves one model: give --model once")
        engine = _exported(models[0], options)
        return engine, engine.sentence_language or "", engine.workers
    translator = open_translator(models, options.device, to, FEW)
    options.recall.let_read(translator)
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
    doubts: DoubtCounts,
    options: TranslateOptions,
) -> None:
    """Each line gives a translation; with `--prefixes`, a tab and the beginning of its translation follow."""
    inputs, outputs = options.inputs, options.outputs
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
            for line in outputs.reasons(translation):
                out.write(line + "\n")
            if translation.looks:
                layers = drawing.layers(translation)
                drawing.print_alignment(drawing.mean_of_heads(layers[max(layers)]))
        out.flush()


def write_paragraphs(
    translate: Translate,
    chunks: Iterable[list[str]],
    out: TextIO,
    doubts: DoubtCounts,
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


def write_document(
    translate: Translate, document: Document, at_once: int, out: TextIO, doubts: DoubtCounts
) -> None:
    """A file of a format with its text translated; doubts name the lines of the file."""
    texts: list[str] = []
    lines = document.lines()
    for chunk in streams.chunks(document.texts, at_once):
        translations = translate(chunk)
        doubts.add(translations, lines)
        texts += [translation.text for translation in translations]
    out.write(document.translated(texts))


# Paragraphs that are translated together.
_PARAGRAPHS = 32


def translate(options: TranslateOptions) -> None:
    """Translate lines, sentence by sentence.

    Each TEXT is a line. Without any, those of --input or of standard input are read. Each gives one line, an empty
    line an empty one. Only a line feed ends a line; control characters within one become spaces. The sentences of a
    line are found, translated one by one, and joined with what stood between them. A line that is only a number is
    its own translation.

    Of subtitles (.srt, .vtt), messages (.po) and pages (.html) only the text is translated; all else is written as it
    was.

    Examples:
        regard translate "El gato negro duerme." --look
        regard translate < text.es > text.en
        regard translate --input text.es --output text.en
        regard translate --input film.es.srt --output film.en.srt
        regard translate --input messages.po --output new.po
        regard translate --input text.es --glossary terms.tsv
        regard translate --paragraphs < book.es > book.en
        regard translate "Hace frío." --nbest 3 --scores
        regard translate "Hace frío." --prefix "The weather"
        regard translate "Hace frío." --confidence --alignment
        regard translate --format json < text.es > text.jsonl
        regard translate --memory memory --why "Hace frío."
        regard translate "Hace frío." --sample --temperature 0.7 --seed 1
        regard translate --model runs/one --model runs/two "Buenos días."
    """
    inputs, outputs, search = options.inputs, options.outputs, options.search
    from regard.translation.text.glossary import Glossary

    options.check()
    _check_places(inputs, outputs)
    _check_format(inputs)
    document = None if inputs.format == "lines" else _document(inputs, outputs.output)
    lines, at_once = (
        _lines(inputs, outputs.output) if document is None else (iter(()), streams.LINES)
    )
    glossary = None if inputs.glossary is None else Glossary.open(inputs.glossary)
    translator, language, together = open_engine(options)
    if at_once > 1:
        # Enough short lines to fill a large batch.
        at_once = max(at_once * together, (search.batch_tokens or 0) // 32)
    settings = {"search": options.of(translator.search), **search.batches}
    settings |= {"looks": True} if outputs.look else {}
    settings |= {"alignments": True} if outputs.alignment else {}
    settings |= {"origins": True} if outputs.why else {}
    settings |= {"whole_lines": True} if inputs.whole_lines else {}
    settings |= {} if glossary is None else {"glossary": glossary}
    seed = secrets.randbelow(2**62) if options.sampling.seed is None else options.sampling.seed
    seeds = itertools.count(seed)

    def translated(texts: list[str], **more: Any) -> list[Translation]:
        more |= {"seed": next(seeds) % 2**63} if options.sampling.sample else {}
        return translator.translate(texts, **settings, **more)

    doubts = DoubtCounts(translator.longest, "sentence" if inputs.paragraphs else "line")
    # Signals are caught so that no unfinished file is left behind.
    with (
        contextlib.nullcontext() if outputs.output is None else Signals(),
        streams.destination(outputs.output) as result,
    ):
        if document is not None:
            write_document(translated, document, at_once, result, doubts)
        elif inputs.paragraphs:
            from regard.translation.text import sentences

            texts = (f"{text}\n" for text in lines) if inputs.texts else sentences.paragraphs(lines)
            chunks = streams.chunks(texts, min(at_once, _PARAGRAPHS))
            write_paragraphs(translated, chunks, result, doubts, language)
        else:
            write_lines(translated, streams.chunks(lines, at_once), result, doubts, options)
    doubts.say()


def _check_format(inputs: InputOptions) -> None:
    """Raises `ConfigurationError` for a translation memory, which is a corpus: its lines are no text."""
    from regard.translation.formats.tmx import is_tmx

    if inputs.input is not None and inputs.input_format is None and is_tmx(inputs.input):
        raise ConfigurationError(
            f"{inputs.input}: a translation memory is a corpus: `regard train`, `regard align` and "
            "`regard data check` read it; --input-format lines translates it as plain text"
        )


def _check_places(inputs: InputOptions, outputs: OutputOptions) -> None:
    """Raises `RegardError` where the input cannot be read or the output cannot be written."""
    check_sentences(
        inputs.texts or [],
        "translate its lines with `regard translate --input {0}` or `regard translate < {0}`; "
        "to translate the name itself, give it on standard input",
    )
    if outputs.output is None:
        streams.output()
    else:
        check_writable(outputs.output)


def _lines(inputs: InputOptions, out: Path | None) -> tuple[Iterator[str], int]:
    """The sentences, and how many of them to translate together."""
    if inputs.texts:
        return map(streams.argument, inputs.texts), streams.LINES
    from regard.translation.text.corpora import decoded_lines

    source, name = _binary_input(inputs, out)
    by_hand = inputs.input is None and source.isatty()
    if by_hand:
        print("one sentence a line; Ctrl-D ends", file=sys.stderr)
    return decoded_lines(source, name), 1 if inputs.line_buffered or by_hand else streams.LINES


def _document(inputs: InputOptions, out: Path | None) -> Document:
    """The input, as a file of its format."""
    from regard.translation.formats import FORMATS, decode, tables

    source, name = _binary_input(inputs, out)
    if inputs.columns:
        return tables.read(decode(source, name), name, inputs.columns)
    return FORMATS[inputs.format](decode(source, name), name)


def _binary_input(inputs: InputOptions, out: Path | None) -> tuple[BinaryIO, str]:
    """The open input, and its name in errors."""
    from regard.translation.text.corpora import open_text

    path = corpora.locate(inputs.input)
    source = streams.standard_input() if path is None else open_text(path)
    if out is not None and _is_same(source, out):
        raise ConfigurationError(f"--output {out}: is the input: choose another name")
    return source, "standard input" if path is None else str(path)


def _is_same(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is the one of this name, through links too."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except (OSError, ValueError):  # there is no such file, or the input is no file
        return False
