"""`regard translate`: sentences in, translations out, one line for one line; or paragraphs."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from regard.cli import options
from regard.cli.options import corpora
from regard.cli.output import answers, streams
from regard.cli.output.answers import Columns, Format, JsonLines
from regard.cli.signals import Signals
from regard.cli.translating import serving
from regard.cli.translating.interpreting import Interpreter
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.decoding.search import Search
    from regard.translation.translator import Translator

EXAMPLES = """\b
Examples:
  regard translate "El gato negro duerme." --look
  regard translate < text.es > text.en
  regard translate --input text.es --output text.en
  regard translate --paragraphs < book.es > book.en
  regard translate "Hace frío." --nbest 3 --scores
  regard translate "Hace frío." --prefix "The weather"
  regard translate "Hace frío." --confidence --alignment
  regard translate --format json < text.es > text.jsonl
  regard translate "Hace frío." --sample --temperature 0.7 --seed 1
  regard translate --model runs/one --model runs/two "Buenos días." """

# Paragraphs that are translated together.
_PARAGRAPHS = 32
_FEW = 4


def translate(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Sentences; without any, lines of standard input."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="Translate the lines of a file, plain or gzip."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="Write there, once all is translated; not before."
        ),
    ] = None,
    model: options.Models = None,
    to: options.To = None,
    beam: options.Beam = None,
    look: Annotated[
        bool, typer.Option("--look", help="Draw what each word looked at, too.")
    ] = False,
    nbest: Annotated[
        int,
        typer.Option(
            help="Translations of each sentence, a line each, the sentence's number first."
        ),
    ] = 1,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores", help="Put the score before each: log-probability over the length penalty."
        ),
    ] = False,
    confidence: Annotated[
        bool,
        typer.Option(
            "--confidence",
            help="Show how probable each word was: word|0.98, or in a terminal in colours, "
            "yellow below 0.75, red below 0.5, bold below 0.25.",
        ),
    ] = False,
    alignment: Annotated[
        bool,
        typer.Option(
            "--alignment",
            help="Put after each which source word each word looked at most: 0-0 2-1.",
        ),
    ] = False,
    form: Annotated[
        Format, typer.Option("--format", help="Lines of text, or a JSON object a line.")
    ] = Format.text,
    prefix: Annotated[
        str | None, typer.Option(metavar="WORDS", help="What every translation must begin with.")
    ] = None,
    prefixes: Annotated[
        bool,
        typer.Option(
            "--prefixes", help="Each sentence may be followed by a tab and its own --prefix."
        ),
    ] = False,
    paragraphs: Annotated[
        bool,
        typer.Option(
            "--paragraphs",
            help="Text of any number of sentences: find them, translate them, keep what is between.",
        ),
    ] = False,
    sample: options.Sample = False,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: Annotated[int | None, typer.Option(help="Of --sample: the same draws again.")] = None,
    length_penalty: options.LengthPenalty = None,
    coverage_penalty: options.CoveragePenalty = None,
    no_repeat_ngram: options.NoRepeatNgram = None,
    batch_tokens: options.BatchTokens = None,
    line_buffered: Annotated[
        bool, typer.Option("--line-buffered", help="Answer each line before the next is read.")
    ] = False,
    device: options.Device = "cpu",
    engine: Annotated[
        serving.EngineName,
        typer.Option(
            help="Who searches; ctranslate2 takes a Transformer, or a folder exported to it."
        ),
    ] = serving.EngineName.regard,
    quantization: options.Quantization = None,
    shortlist: options.Shortlist = False,
) -> None:
    """Translate sentences.

    Each TEXT is one sentence. Without any, each line of --input or of standard input is one, and gives one line:
    an empty line an empty one. Only a line feed ends a line; control characters within one become spaces.
    """
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    options.check_drawing(drawing, seed, sample)
    options.check_batch_tokens(batch_tokens)
    json = form is Format.json
    models = model or [options.DEFAULT_MODEL]
    by_line = {
        "--nbest": nbest > 1,
        "--scores": scores,
        "--confidence": confidence,
        "--alignment": alignment,
        "--format json": json,
        "--prefix": prefix is not None,
        "--prefixes": prefixes,
        "--look": look,
    }
    if paragraphs:
        _exclude("--paragraphs", by_line, "it gives text as it was laid out")
    if shortlist:
        begun = {"--prefix": prefix is not None, "--prefixes": prefixes}
        _exclude("--shortlist", begun, "a prefix may ask for any word")
    if prefixes:
        _exclude("--prefixes", {"--prefix": prefix is not None}, "give each sentence its own")
    if look:
        several = {
            "--format json": json,
            "several models": len(models) > 1,
            "--output": out is not None,
        }
        _exclude("--look", several, "a drawing is of one model, among lines of text")
    elsewhere = engine is serving.EngineName.ctranslate2
    if elsewhere:
        serving.refuse(
            {
                **{name: on for name, on in by_line.items() if name not in ("--nbest", "--scores")},
                "--sample": sample,
                "--coverage-penalty": coverage_penalty is not None,
                "--batch-tokens": batch_tokens is not None,
                f"--device {device}": device != "cpu",
                "--shortlist": shortlist,
            }
        )
    if texts:
        _exclude("TEXT", {"--input": source is not None}, "give sentences, or a file of them")
        options.check_sentences(
            texts,
            "translate its lines with `regard translate --input {0}` or `regard translate < {0}`; "
            "to translate the name itself, give it on standard input",
        )
    if source is not None:
        source = corpora.found(source)
    if out is None:
        streams.output()
    else:
        options.check_writable(out)
    if not texts and source is None:
        streams.standard_input()
    given = {
        "nbest": nbest,
        "sampling": sample,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "length_penalty": length_penalty,
        "coverage_penalty": coverage_penalty,
        "no_repeat_ngram": no_repeat_ngram,
    }

    from regard.translation.decoding.search import Search
    from regard.translation.text import sentences

    # What is out of range or missing is refused before a model is opened.
    _search(Search(), beam, given)
    if paragraphs:
        sentences.split("", "")
    prefix = None if prefix is None else streams.argument(prefix)
    lines, at_once = _lines(texts, source, out, line_buffered)
    translator: Translator | serving.Served
    if elsewhere:
        translator = serving.served(models, to, quantization or options.Stored.float32, paragraphs)
        at_once = at_once if at_once == 1 else at_once * translator.engine.workers
    else:
        from regard.translation.models import compiling

        # For a few sentences, loading compiled loops takes longer than doing without.
        compiling.want(texts is None or not 0 < len(texts) <= _FEW)
        translator = options.open_translator(
            models, device, to, shortlist=shortlist, stored=quantization
        )
    settings: dict[str, Any] = {"search": _search(translator.search, beam, given)}
    if batch_tokens is not None:
        settings["batch_tokens"] = batch_tokens
        # Enough of short lines to fill a large batch.
        at_once = at_once if at_once == 1 else max(at_once, batch_tokens // 32)
    if sample and seed is None:
        seed = secrets.randbelow(2**62)
    # A signal must not leave the unfinished file behind.
    with contextlib.nullcontext() if out is None else Signals(), streams.destination(out) as result:
        interpreter = Interpreter(translator, settings, result, seed)
        if paragraphs:
            blocks = (f"{text}\n" for text in lines) if texts else sentences.paragraphs(lines)
            interpreter.paragraphs(streams.chunks(blocks, min(at_once, _PARAGRAPHS)))
        else:
            settings.update(looks=look, alignments=alignment)
            show = answers.confidences(result) if confidence else None
            style = JsonLines(nbest, alignment) if json else Columns(nbest, scores, alignment, show)
            chunks = streams.chunks(lines, at_once)
            interpreter.lines(chunks, style, prefix=prefix, own_prefixes=prefixes, draw=look)
    interpreter.doubts.say()


def _search(own: Search, beam: int | None, given: dict[str, int | float | bool | None]) -> Search:
    changes = {name: value for name, value in given.items() if value is not None}
    nbest = given["nbest"] or 1
    # Whoever asks for ten translations and names no beam means one that holds them.
    size = beam if beam is not None else max(own.beam, int(nbest))
    return own.changed(**{**changes, "beam": size})


def _lines(
    texts: list[str] | None, path: Path | None, out: Path | None, line_buffered: bool
) -> tuple[Iterator[str], int]:
    """The sentences, and how many of them to translate together.

    Raises `ConfigurationError` where the output would replace the input.
    """
    if texts:
        return map(streams.argument, texts), streams.LINES
    from regard.translation.text.corpora import decoded_lines, opened

    source = streams.standard_input() if path is None else opened(path)
    if out is not None and _is_same(source, out):
        raise ConfigurationError(f"--output {out}: is the input: choose another name")
    by_hand = path is None and source.isatty()
    if by_hand:
        print("one sentence a line; Ctrl-D ends", file=sys.stderr)
    lines = decoded_lines(source, "standard input" if path is None else str(path))
    return lines, 1 if line_buffered or by_hand else streams.LINES


def _is_same(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is the one of this name, whatever links lead there."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except (OSError, ValueError):  # nothing is there, or the input is no file
        return False


def _exclude(option: str, others: dict[str, bool], why: str) -> None:
    """Raises `ConfigurationError` naming the first of the others that is given beside an option."""
    for other, given in others.items():
        if given:
            raise ConfigurationError(f"{option} and {other} do not go together: {why}")
