"""`regard evaluate`: scores on a test set, with the signatures that let others repeat them."""

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from regard import files
from regard.cli import aligning, evaluating, shipped
from regard.cli.evaluating import System, TestSet
from regard.cli.options import corpora
from regard.cli.options.checks import check_writable
from regard.cli.output import report
from regard.errors import ConfigurationError


def evaluate(
    *,
    system: System,
    hypotheses: Path | None = None,
    test: TestSet,
    out: Path | None = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="FILE|NAME|DIR", autocompletion=shipped.complete_model)
    ] = None,
    resamples: int = 1000,
    seed: int = 12345,
    tokenize: Annotated[evaluating.Tokenizer | None, typer.Option(metavar="NAME")] = None,
    alignments: Annotated[Path | None, typer.Option(metavar="GOLD")] = None,
    flip: bool = False,
    adapt: bool = False,
    format: report.Format = "text",
) -> None:
    """Translate a test set and score it: BLEU, chrF, TER and exact matches, by sacreBLEU.

    Lines are translated sentence by sentence. Every line counts, an empty one too.
    A file that is not here is looked for in REGARD_DATA.

    Args:
        hypotheses: Score these translations (or links), one a line.
        out: Write the translations there, too.
        baseline: Another system, its translations or its model, with the same beam and penalties:
            is the difference significant?
        resamples: With --baseline: test sets drawn.
        seed: With --baseline: of the draws.
        tokenize: BLEU's tokenizer: 13a, intl, char, zh, ja-mecab, ko-mecab, flores101, flores200,
            spBLEU-1K or none. [default: that of the target language, or 13a]
        alignments: Score word links instead: AER, precision, recall.
        flip: The gold's source is the model's target.
        adapt: With --alignments: learn the links from the gold's sentences, without a model.
        format: For people, or JSON.

    Examples:
        regard evaluate --model es-en --source test.es --target test.en
        regard evaluate --model es-en --tsv test.tsv --source-column 1 --target-column 0
        regard evaluate --model runs/mine --tsv test.tsv --beam 10 --out translations.txt
        regard evaluate --model runs/mine --tsv valid.tsv --length-penalty 1.5
        regard evaluate --model runs/mine --tsv test.tsv --baseline es-en
        regard evaluate --model runs/one --model runs/two --tsv test.tsv
        regard evaluate --hypotheses translations.txt --target one.en --target two.en
        regard evaluate --hypotheses translations.txt --target test.zh --tokenize zh
        regard evaluate --hypotheses translations.txt --target test.en --baseline others.txt
        regard evaluate --model es-en --alignments gold.jsonl --flip
        regard evaluate --adapt --alignments gold.jsonl
        regard evaluate --model runs/dates --generated
    """
    system.search.check()
    system.memory.check()
    hypotheses = corpora.locate(hypotheses)
    if alignments is not None:
        if test.tsv or test.generated or system.options or out or baseline:
            raise ConfigurationError(
                "--alignments scores word links: leave out --tsv, --generated, --out, --baseline and "
                "the options of a search"
            )
        if tokenize or len(test.target or ()) > 1:
            raise ConfigurationError(
                "--alignments scores word links: leave out --tokenize, and give --target once"
            )
        gold, lines = (
            corpora.locate(alignments),
            (test.source, test.target[0] if test.target else None),
        )
        model = system.only("--alignments")
        aligning.score_links(gold, model, hypotheses, lines, flip, adapt, format)
        return
    if flip or adapt:
        raise ConfigurationError(f"{'--flip' if flip else '--adapt'} belongs to --alignments")
    if hypotheses is not None:
        system.check_unused(baseline)
    test.check(translated=hypotheses is not None)
    if out is not None:
        if hypotheses is not None:
            raise ConfigurationError("--out writes translations: --hypotheses has them already")
        check_writable(out)

    from regard.translation.evaluation import significance
    from regard.translation.evaluation.scores import measure

    significance.check(resamples, seed)
    doubts = translator = None
    pairs = test.files()
    if hypotheses is None:
        translator = system.open()
    if pairs is None:
        pairs = test.pairs(translator)
    references = test.references(pairs)
    if blank := sum(any(texts) and not all(texts) for texts in zip(*references, strict=True)):
        report.note(
            f"{blank} of {len(pairs)} sentences have an empty reference beside one with text: BLEU, chrF and TER "
            "take it for a reference"
        )
    tokenizer = evaluating.tokenizer_of(
        tokenize, system.language(translator), chain.from_iterable(references)
    )
    if translator is None:
        assert hypotheses is not None
        texts, origin = evaluating.translations_in(hypotheses, len(pairs)), str(hypotheses)
    else:
        texts, doubts = evaluating.translate(translator, pairs, system)
        origin = system.described(translator)
    if out is not None:
        files.write(out, "".join(f"{text}\n" for text in texts).encode())
    if doubts is not None:
        doubts.say()
    scores = measure(texts, *references, tokenizer=tokenizer)
    comparison = None
    if baseline is not None:
        significance.check(resamples, seed, len(pairs))
        baseline_texts = evaluating.translations_of(baseline, pairs, system)
        comparison = significance.compare(
            texts, baseline_texts, *references, resamples=resamples, seed=seed, tokenizer=tokenizer
        )
    empty = sum(
        not any(texts_of_pair) or (hypotheses is None and not pair.source)
        for pair, *texts_of_pair in zip(pairs, *references, strict=True)
    )
    if format == "text":
        reference_count = f", {len(references)} references each" if len(references) > 1 else ""
        report.say(
            f"{len(pairs)} sentence pairs{reference_count}, {empty} with an empty side; {origin}\n{scores}"
        )
        if comparison is not None:
            report.say(evaluating.compared(comparison, str(baseline)))
        return
    fields = {**asdict(scores), "empty": empty, "translations": origin}
    if doubts is not None:
        fields["doubts"] = doubts.as_object()
    if comparison is not None:
        fields["baseline"] = {"system": baseline, **asdict(comparison)}
    print(report.as_json(fields))
