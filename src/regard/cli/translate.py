"""`regard translate`: sentences in, translations out, one line for one line."""

from __future__ import annotations

import dataclasses
import secrets
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options, streams
from regard.translation.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.decoding.search import Search
    from regard.translation.translator import Translation

EXAMPLES = """\b
Examples:
  regard translate "El gato negro duerme." --look
  regard translate "Buenos días." "¿Qué tal?" --beam 10
  regard translate < text.es > text.en
  regard translate --model runs/dates "3 de marzo de 1998"
  regard translate "Hace frío." --beam 8 --nbest 3 --scores
  regard translate "Hace frío." --sample --temperature 0.7 --seed 1"""


def translate(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Sentences; without any, lines of standard input."),
    ] = None,
    model: options.Model = options.DEFAULT_MODEL,
    beam: Annotated[
        int | None, typer.Option(help="Hypotheses kept; 1 is greedy. [default: the model's own]")
    ] = None,
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
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw words by chance instead of the likeliest.")
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(help="Of --sample: below 1 bolder, above 1 more even.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Of --sample: among so many words.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Of --sample: among the fewest words of this probability.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of --sample: the same draws again.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Alpha of ((5 + n) / 6)^alpha; more favours length.")
    ] = None,
    line_buffered: Annotated[
        bool, typer.Option("--line-buffered", help="Answer each line before the next is read.")
    ] = False,
    device: options.Device = "cpu",
) -> None:
    """Translate sentences.

    Each TEXT is one sentence. Without any, each line of standard input is one, and gives one line: an empty
    line an empty one. Only a line feed ends a line; control characters within one become spaces.
    """
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    for name, value in drawing.items():
        if value is not None and not sample:
            raise ConfigurationError(
                f"--{name.replace('_', '-')} {value}: is for sampling: add --sample"
            )
    if seed is not None and not 0 <= seed < 2**63:
        raise ConfigurationError(f"--seed {seed}: use a whole number, 0 to 2^63 - 1")
    out = streams.output()
    if not texts:
        streams.standard_input()
    given = {
        "nbest": nbest,
        "sampling": sample,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "length_penalty": length_penalty,
    }

    from regard.translation.decoding.search import Search

    _search(Search(), beam, given)  # refuses what is out of range before a model is opened
    inputs = _inputs(texts, line_buffered)
    translator = options.open_translator(model, device)
    search = _search(translator.search, beam, given)
    if sample and seed is None:
        seed = secrets.randbelow(2**62)
    number, cut = 0, 0
    for place, chunk in enumerate(inputs):
        translations = translator.translate(
            chunk, search=search, looks=look, seed=None if seed is None else (seed + place) % 2**63
        )
        for translation in translations:
            number += 1
            cut += translation.cut > 0
            _print(translation, number, nbest, scores)
            if look:
                _draw(translation)
        out.flush()
    if cut:
        print(
            f"note: {cut} of {number} sentences were longer than {translator.longest} pieces and were cut",
            file=sys.stderr,
        )


def _search(own: Search, beam: int | None, given: dict[str, int | float | bool | None]) -> Search:
    changes = {name: value for name, value in given.items() if value is not None}
    nbest = given["nbest"] or 1
    # Whoever asks for ten translations and names no beam means one that holds them.
    size = beam if beam is not None else max(own.beam, int(nbest))
    return dataclasses.replace(own, **{**changes, "beam": size})  # type: ignore[arg-type]


def _inputs(texts: list[str] | None, line_buffered: bool) -> Iterator[list[str]]:
    if texts:
        return streams.chunks(map(streams.argument, texts))
    from regard.translation.text.corpora import decoded_lines

    source = streams.standard_input()
    if source.isatty():
        print("one sentence a line; Ctrl-D ends", file=sys.stderr)
    lines = decoded_lines(source, "standard input")
    return streams.chunks(lines, 1 if line_buffered or source.isatty() else streams.LINES)


def _print(translation: Translation, number: int, nbest: int, scores: bool) -> None:
    found = translation.alternatives or [(translation.text, translation.score)]
    for text, score in found[:nbest] if nbest > 1 else [(translation.text, translation.score)]:
        columns = [str(number)] if nbest > 1 else []
        columns += [f"{score:.4f}"] if scores else []
        print("\t".join([*columns, text]))


def _draw(translation: Translation) -> None:
    from regard.cli import drawing

    if translation.looks:
        drawing.print_alignment(drawing.last_cross(translation))
