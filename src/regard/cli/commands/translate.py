"""`regard translate`: one translation for each line, or translated paragraphs."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from regard.cli.options import corpora
from regard.cli.options.checks import check_sentences, check_writable
from regard.cli.output import streams
from regard.cli.output.answers import OutputOptions
from regard.cli.output.doubts import Doubts
from regard.cli.signals import Signals
from regard.cli.translating import (
    InputOptions,
    TranslateOptions,
    open_engine,
    write_lines,
    write_paragraphs,
)
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.translator import Translation

# Paragraphs that are translated together.
_PARAGRAPHS = 32


def translate(options: TranslateOptions) -> None:
    """Translate lines, sentence by sentence.

    Each TEXT is a line. Without any, those of --input or of standard input are read. Each gives one line, an empty
    line an empty one. Only a line feed ends a line; control characters within one become spaces. The sentences of a
    line are found, translated one by one, and joined with what stood between them. A line that is only a number is
    its own translation.

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
        regard translate --model runs/one --model runs/two "Buenos días."
    """
    inputs, outputs, search = options.inputs, options.outputs, options.search
    options.check()
    _check_places(inputs, outputs)
    lines, at_once = _lines(inputs, outputs.output)
    translator, language, together = open_engine(options)
    if at_once > 1:
        # Enough short lines to fill a large batch.
        at_once = max(at_once * together, (search.batch_tokens or 0) // 32)
    settings = {"search": options.of(translator.search), **search.batches}
    settings |= {"looks": True} if outputs.look else {}
    settings |= {"alignments": True} if outputs.alignment else {}
    settings |= {"whole_lines": True} if inputs.whole_lines else {}
    seed = secrets.randbelow(2**62) if options.sampling.seed is None else options.sampling.seed
    seeds = itertools.count(seed)

    def translated(texts: list[str], **more: Any) -> list[Translation]:
        more |= {"seed": next(seeds) % 2**63} if options.sampling.sample else {}
        return translator.translate(texts, **settings, **more)

    doubts = Doubts(translator.longest, "sentence" if inputs.paragraphs else "line")
    # Signals are caught so that no unfinished file is left behind.
    with (
        contextlib.nullcontext() if outputs.output is None else Signals(),
        streams.destination(outputs.output) as result,
    ):
        if inputs.paragraphs:
            from regard.translation.text import sentences

            texts = (f"{text}\n" for text in lines) if inputs.texts else sentences.paragraphs(lines)
            chunks = streams.chunks(texts, min(at_once, _PARAGRAPHS))
            write_paragraphs(translated, chunks, result, doubts, language)
        else:
            write_lines(translated, streams.chunks(lines, at_once), result, doubts, options)
    doubts.say()


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
    from regard.translation.text.corpora import decoded_lines, open_text

    path = corpora.locate(inputs.input)
    source = streams.standard_input() if path is None else open_text(path)
    if out is not None and _is_same(source, out):
        raise ConfigurationError(f"--output {out}: is the input: choose another name")
    by_hand = path is None and source.isatty()
    if by_hand:
        print("one sentence a line; Ctrl-D ends", file=sys.stderr)
    lines = decoded_lines(source, "standard input" if path is None else str(path))
    return lines, 1 if inputs.line_buffered or by_hand else streams.LINES


def _is_same(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is the one of this name, through links too."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except (OSError, ValueError):  # there is no such file, or the input is no file
        return False
