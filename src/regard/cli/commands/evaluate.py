"""`regard evaluate`: scores on a test set, with the signatures that let others repeat them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli import options
from regard.cli.evaluating import linking, testsets
from regard.cli.evaluating.testsets import Searching, TestSet
from regard.cli.options import corpora
from regard.cli.output import report
from regard.cli.output.doubts import Doubts
from regard.errors import ConfigurationError

EXAMPLES = """\b
Examples:
  regard evaluate --model es-en --source test.es --target test.en
  regard evaluate --model es-en --tsv test.tsv --source-column 1 --target-column 0
  regard evaluate --model runs/mine --tsv test.tsv --beam 10 --out translations.txt
  regard evaluate --model runs/mine --tsv valid.tsv --length-penalty 1.5
  regard evaluate --model runs/mine --tsv test.tsv --baseline es-en
  regard evaluate --hypotheses translations.txt --target test.en --baseline others.txt
  regard evaluate --model es-en --alignments gold.jsonl --flip
  regard evaluate --model runs/dates --generated"""


def evaluate(
    model: options.Model = options.DEFAULT_MODEL,
    to: options.To = None,
    hypotheses: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Score these translations (or links), one a line."),
    ] = None,
    source: options.SourceFile = None,
    target: options.TargetFile = None,
    tsv: Annotated[Path | None, typer.Option(metavar="FILE", help="Both, in columns.")] = None,
    source_column: Annotated[
        int | None, typer.Option(help="Column of --tsv, from 0. [default: as in the training]")
    ] = None,
    target_column: Annotated[
        int | None, typer.Option(help="Column of --tsv, from 0. [default: as in the training]")
    ] = None,
    generated: Annotated[
        bool,
        typer.Option("--generated", help="The held-out part of the data the model's task makes."),
    ] = False,
    beam: options.Beam = None,
    length_penalty: options.LengthPenalty = None,
    coverage_penalty: options.CoveragePenalty = None,
    no_repeat_ngram: options.NoRepeatNgram = None,
    batch_tokens: options.BatchTokens = None,
    quantization: options.Quantization = None,
    shortlist: options.Shortlist = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the translations there, too.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME|DIR",
            help="Another system, its translations or its model, with the same beam and penalties: is the difference "
            "significant?",
        ),
    ] = None,
    resamples: Annotated[int, typer.Option(help="With --baseline: test sets drawn.")] = 1000,
    seed: Annotated[int, typer.Option(help="With --baseline: of the draws.")] = 12345,
    alignments: Annotated[
        Path | None,
        typer.Option(metavar="GOLD", help="Score word links instead: AER, precision, recall."),
    ] = None,
    flip: Annotated[
        bool, typer.Option("--flip", help="The gold's source is the model's target.")
    ] = False,
    format: Annotated[
        report.Format, typer.Option(help="For people, or JSON.")
    ] = report.Format.text,
    device: options.Device = "cpu",
) -> None:
    """Translate a test set and score it: BLEU, chrF, TER and exact matches, by sacreBLEU.

    Every line counts, an empty one too. A file that is not here is looked for in REGARD_DATA.
    """
    searching = Searching(
        beam,
        length_penalty,
        coverage_penalty,
        no_repeat_ngram,
        batch_tokens,
        quantization,
        shortlist,
    )
    searching.check()
    if hypotheses is not None:
        hypotheses = corpora.found(hypotheses)
    if alignments is not None:
        if tsv or generated or searching.given or out or baseline:
            raise ConfigurationError("--alignments scores links: give no options of translations")
        linking.evaluate(
            corpora.found(alignments), model, hypotheses, (source, target), flip, format, device, to
        )
        return
    if flip:
        raise ConfigurationError("--flip belongs to --alignments")
    if hypotheses is not None:
        searching.refuse(baseline)
    given = TestSet(source, target, tsv, source_column, target_column, generated)
    given.check(translated=hypotheses is not None)
    if out is not None:
        if hypotheses is not None:
            raise ConfigurationError("--out writes translations: --hypotheses has them already")
        options.check_writable(out)

    from regard.translation.evaluation import significance
    from regard.translation.evaluation.scores import measure

    significance.check(resamples, seed)
    pairs, doubts = given.files(), None
    if hypotheses is not None:
        pairs = given.with_translations() if pairs is None else pairs
        texts, how = testsets.translations_in(hypotheses, len(pairs)), str(hypotheses)
    else:
        translator = options.open_translator(
            model, device, to, shortlist=shortlist, stored=quantization
        )
        pairs = given.of(translator, model) if pairs is None else pairs
        doubts = Doubts(translator.longest)
        texts = testsets.translate(translator, pairs, searching, doubts)
        how = searching.told(translator.search)
    if out is not None:
        testsets.write(texts, out)
    if doubts is not None:
        doubts.say()
    references = [pair.target for pair in pairs]
    scores = measure(texts, references)
    found = None
    if baseline is not None:
        significance.check(resamples, seed, len(references))
        others = testsets.translations_of(baseline, pairs, searching, device, to)
        found = significance.compare(texts, others, references, resamples=resamples, seed=seed)
    empty = sum(not pair.target or (hypotheses is None and not pair.source) for pair in pairs)
    if format == report.Format.json:
        print(report.as_json(testsets.as_object(scores, found, baseline, empty, how, doubts)))
        return
    report.say(f"{len(pairs)} sentence pairs, {empty} with an empty side; {how}")
    report.say(str(scores))
    if found is not None:
        report.say(testsets.compared(found, str(baseline)))
