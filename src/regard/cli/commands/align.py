"""`regard align`: which word of a translation comes from which of its source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli import adapting, aligning
from regard.cli.aligning import AlignOptions, Words, open_aligner
from regard.cli.options import corpora
from regard.cli.options.checks import check_picture, check_writable
from regard.cli.output import answers, drawing, report, streams
from regard.cli.writing import writing
from regard.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.translation.aligning.aligner import Aligned, Aligner
    from regard.translation.aligning.choice import Choice
    from regard.translation.aligning.selection import Chosen, Tried

_CHUNK = 256
Texts = tuple[str, str]


def align(options: AlignOptions) -> None:
    """Link each word of a translation to the word it comes from.

    With --adapt the links are learnt from the text itself, in any two languages, without a model; punctuation is split
    off words. Otherwise a model is forced to write the translations, each word is linked to the one it looked at, and
    words are what white space keeps apart. Each link is SOURCE-TARGET, counted from 0.

    Examples:
        regard align --adapt text.ro text.en > links.txt
        regard align --adapt pairs.tsv --tokenized --confidence
        regard align --adapt memory.tmx --source-language es --target-language en --format tmx > linked.tmx
        regard align text.es text.en > links.txt
        regard align --text "El gato negro duerme ." "The black cat sleeps ." --out links.png
        regard align text.es text.en --layer 1 --head 0 --shift --method threshold --threshold 0.2
        regard align text.es text.en --model es-en --reverse-model runs/en-es --format json
        regard align --choose gold.jsonl --model runs/mine
    """
    streams.output()
    source, target, links = options.source, options.target, options.links
    reverse, limit = options.reverse_model, options.limit
    adapting.check(options)
    if links.method == "grow-diagonal" and reverse is None and not options.adapting.adapt:
        raise ConfigurationError("--method grow-diagonal: give --reverse-model as well")
    if (source is None) != (target is None) and (options.text or options.choose):
        raise ConfigurationError("SOURCE and TARGET belong together: give both")
    if options.choose is not None:
        if links.changes or reverse or options.text or options.out:
            raise ConfigurationError(
                "--choose tries every layer, head and method of one model: leave out --layer, --head, "
                "--method, the other options of links, --reverse-model, --text and --out"
            )
        if limit is not None and limit < 1:
            raise ConfigurationError(f"--limit {limit}: use a whole number, 1 or more")
        _choose(corpora.locate(options.choose), options)
        return
    if source is None:
        raise ConfigurationError(
            "give SOURCE and TARGET, two files of lines, or one of tab-separated pairs or TMX, or --choose GOLD"
        )
    if options.flip or limit is not None or not options.store:
        raise ConfigurationError("--flip, --limit and --no-store belong to --choose")
    if options.out is not None:
        check_picture(options.out)
    if options.format == "tmx":
        adapting.check_languages(options)
    rows = _rows(source, target, options)
    if options.out is not None:
        beginning = list(islice(rows, 2))
        if len(beginning) > 1:
            raise ConfigurationError("--out draws one pair: use --text, or files of one line")
        rows = iter(beginning)
    texts, rows = tee(rows)
    pairs = ((_words(ours, options), _words(theirs, options)) for ours, theirs in rows)
    if options.adapting.adapt:
        _print(texts, adapting.adapted(list(pairs), options), options, "learnt from the text")
        return
    forward, backward = open_aligner(options.model, links), None
    if reverse is not None:
        backward = open_aligner(replace(options.model, model=reverse, to=None))
    title = Path(options.model.model).name
    _print(texts, _aligned(forward, backward, pairs), options, title)


def _aligned(
    forward: Aligner, backward: Aligner | None, pairs: Iterator[tuple[Words, Words]]
) -> Iterator[Aligned]:
    """The links of each pair, by one model or by two."""
    from regard.translation.evaluation.alignment import flipped, grow_diagonal

    while chunk := list(islice(pairs, _CHUNK)):
        ours = forward.align(chunk)
        if backward is None:
            yield from ours
            continue
        theirs = backward.align([(target, source) for source, target in chunk])
        for aligned, reverse in zip(ours, theirs, strict=True):
            yield replace(aligned, links=grow_diagonal(aligned.links, flipped(reverse.links)))


def _print(
    texts: Iterator[Texts], alignments: Iterator[Aligned], options: AlignOptions, title: str
) -> None:
    """A line of links for each pair; a picture of the only one."""
    unread = 0

    def counted() -> Iterator[Aligned]:
        nonlocal unread
        for alignment in alignments:
            unread += alignment.unread
            if options.out is not None:
                _draw(alignment, options.out, f"{title}: word links")
            yield alignment

    if options.format == "tmx":
        lines = adapting.memory(texts, counted(), options)
    else:
        lines = (_line(alignment, options) for alignment in counted())
    for line in lines:
        print(line)
    if unread:
        report.note(f"{unread} words lie beyond what the model reads of a sentence: without links")


def _rows(source: str, target: str | None, options: AlignOptions) -> Iterator[Texts]:
    """Two sentences, or the lines of two files, of a table or of a translation memory."""
    from regard.translation.formats.tmx import is_tmx
    from regard.translation.text.corpora import Parallel

    arguments = [streams.argument(each) for each in (source, target) if each is not None]
    paths = [corpora.locate(Path(each)) for each in arguments]
    for path in () if options.text else paths:
        if not os.path.exists(path) and any(c.isspace() for c in str(path)):
            raise DataError(f"{path}: no such file; for two sentences add --text")
    if options.format != "tmx" and (options.text or target is not None or not is_tmx(paths[0])):
        options.languages.refuse("lines have no languages")
    if options.text:
        return iter([(arguments[0], arguments[1])])
    return options.languages.table(paths[0]).rows() if target is None else Parallel(*paths).rows()


def _words(line: str, options: AlignOptions) -> Words:
    from regard.translation.aligning.words import normalised_words

    if options.adapting.adapt:
        return adapting.split(line, options.adapting)
    return normalised_words(line)


def _line(alignment: Aligned, options: AlignOptions) -> str:
    ordered = sorted(alignment.links)
    weights = [round(float(alignment.weights[target, source]), 4) for source, target in ordered]
    if options.format == "json":
        fields = {
            "source": alignment.source,
            "target": alignment.target,
            "links": ordered,
            "weights": weights,
        }
        return report.as_json(fields, indent=None)
    if options.confidence:
        return " ".join(f"{s}-{t}:{w:.2f}" for (s, t), w in zip(ordered, weights, strict=True))
    return answers.pharaoh(ordered)


def _draw(aligned: Aligned, out: Path, title: str) -> None:
    from regard.viewing.alignment import Alignment
    from regard.viewing.pictures import linked

    if not aligned.source or not aligned.target:
        raise DataError("an empty side: there is nothing to draw")
    alignment = Alignment(aligned.weights.double().numpy(), aligned.target, aligned.source, title)
    drawing.save(linked(alignment, aligned.links), out)
    report.note(f"wrote {out}")


def _choose(path: Path, options: AlignOptions) -> None:
    """Try all, print the table, and keep the best in the model's folder."""
    from regard.translation.aligning import choice as choices
    from regard.translation.aligning.selection import choose as search
    from regard.translation.aligning.word_attention import word_attentions
    from regard.translation.opening import find
    from regard.translation.runs import Run
    from regard.translation.runs.layout import ALIGNMENT

    source, target = options.source, options.target
    lines = None if source is None else Path(source), None if target is None else Path(target)
    gold = aligning.read_gold(path, flip=options.flip, limit=options.limit, lines=lines)
    pairs = aligning.gold_words(gold, path)
    run = Run.open(find(options.model.model))
    place = run.folder / ALIGNMENT
    if options.store:
        check_writable(place)
    # Locked from before the model is read, so that the choice is that of the weights it names.
    with writing(run) if options.store else nullcontext(run) as run:
        translator = options.model.open()
        selection = search(word_attentions(translator.model, translator.tokenizers, pairs), gold)
        if options.format == "json":
            print(report.as_json(_as_object(selection, len(gold))))
        else:
            report.say(
                f"{len(gold)} sentences of {path.name}; alignment error rates in percent, the less the better\n\n"
                + _text(selection)
            )
        if options.store:
            best = selection.best
            choices.keep(
                run, choices.StoredChoice(best.choice, path.name, len(gold), best.scores.aer)
            )
            report.note(f"wrote {place}")


def _text(selection: Chosen) -> str:
    """A row for each matrix, the best of each method in it; the best of all, and of each half."""
    methods = ("argmax", "mutual", "threshold")
    by_row: dict[str, dict[tuple[bool, str], Tried]] = {}
    for trial in selection.tried:
        row = by_row.setdefault(_place(trial.choice), {})
        key = trial.choice.balanced, trial.choice.method
        if key not in row or trial.scores.aer < row[key].scores.aer:
            row[key] = trial
    rows = [["", *(f"{name:>9}" for name in methods * 2)]]
    for place, cells in by_row.items():
        rows.append([place, *(_cell(cells[b, name]) for b in (False, True) for name in methods)])
    table = report.table(rows)
    head = "weights as they are".ljust(30).rjust(table.index("   argmax") + 30) + "balanced"
    best, scores = selection.best, selection.best.scores
    first_half, second_half = selection.crossed
    return f"""{head}
{table}

diagonal {selection.diagonal.aer:.1f}
best     {scores.aer:.1f} (precision {scores.precision:.1f}, recall {scores.recall:.1f}): {best.choice}
chosen on one half, measured on the other:
  first on second {first_half.scores.aer:.1f}: {first_half.choice}
  second on first {second_half.scores.aer:.1f}: {second_half.choice}"""


def _place(choice: Choice) -> str:
    if choice.layer is None:
        return f"all layers     {choice.rows}"
    head = "mean  " if choice.head is None else f"head {choice.head}"
    return f"layer {choice.layer} {head} {choice.rows}"


def _cell(trial: Tried) -> str:
    share = f"@{trial.choice.threshold:.2f}" if trial.choice.method == "threshold" else ""
    return f"{trial.scores.aer:.1f}{share}"


def _as_object(selection: Chosen, sentences: int) -> dict[str, object]:
    def plain(trial: Tried) -> dict[str, object]:
        return {**asdict(trial.choice), **asdict(trial.scores)}

    return {
        "sentences": sentences,
        "diagonal": asdict(selection.diagonal),
        "best": plain(selection.best),
        "first_half_on_second": plain(selection.crossed[0]),
        "second_half_on_first": plain(selection.crossed[1]),
        "tried": [plain(trial) for trial in selection.tried],
    }
