"""Scores of translations against references, computed by sacreBLEU, with its signatures."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.errors import ConfigurationError, DataError
from regard.translation.evaluation import segmenting
from regard.translation.evaluation.segmenting import USUAL

MEASURES = ("bleu", "chrf", "ter", "exact")


@dataclass(frozen=True)
class Scores:
    """Corpus scores in percent; a score that was not computed is None.

    Attributes:
        bleu: BLEU (Papineni et al. 2002), higher is better.
        chrf: chrF2 (Popović 2015), higher is better.
        ter: translation edit rate (Snover et al. 2006), lower is better.
        exact: sentences equal to their reference, letter for letter.
        signatures: by measure, sacreBLEU's description of the computation.
    """

    sentences: int
    bleu: float | None = None
    chrf: float | None = None
    ter: float | None = None
    exact: float | None = None
    signatures: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = []
        for name, title in zip(MEASURES, ("BLEU", "chrF", "TER", "exact match"), strict=True):
            value = getattr(self, name)
            if value is not None:
                signature = self.signatures.get(name)
                lines.append(f"{title} {value:.2f}" + (f"  {signature}" if signature else ""))
        return "\n".join(lines)


def measure(
    translations: Sequence[str],
    *references: Sequence[str],
    measures: Sequence[str] = MEASURES,
    tokenizer: str = USUAL,
) -> Scores:
    """Compare translations with their references, one set of them or several.

    With the defaults these are the scores and signatures of the `sacrebleu` command
    (Post 2018, arXiv 1804.08771).

    Args:
        translations: plain text, not tokenised.
        references: sets of references; a translation is an exact match if it equals one of its
            references; an empty reference beside one with text is none.
        measures: which of "bleu", "chrf", "ter", "exact"; TER takes longest, and ignores case.
        tokenizer: that of BLEU. With "zh", "ja-mecab" and "char", TER counts Chinese and Japanese characters.

    Raises:
        DataError: nothing to compare, or unequal numbers.
        ConfigurationError: a measure or a tokenizer that does not exist, or a tokenizer that cannot be used here.

    >>> ours, given = ["a small house", "yes"], ["a small house", "no"]
    >>> scores = measure(ours, given, measures=["chrf", "exact"])
    >>> scores.exact
    50.0
    >>> measure(ours, given, ["the house", "yes"], measures=["exact"]).exact
    100.0
    """
    for reference_set in references:
        if len(translations) != len(reference_set):
            raise DataError(f"{len(translations)} translations for {len(reference_set)} references")
    if not (translations and references):
        raise DataError("nothing to compare: no translations")
    if unknown := [name for name in measures if name not in MEASURES]:
        raise ConfigurationError(f"no measure {unknown[0]!r}: use {', '.join(MEASURES)}")
    values: dict[str, float] = {}
    signatures: dict[str, str] = {}
    for name, metric in metrics(measures, tokenizer).items():
        values[name] = float(metric.corpus_score(list(translations), references).score)
        signatures[name] = str(metric.get_signature())
    if "exact" in measures:
        same = sum(
            ours in (list(filter(None, texts)) or texts)
            for ours, *texts in zip(translations, *references, strict=True)
        )
        values["exact"] = 100.0 * same / len(translations)
    return Scores(sentences=len(translations), signatures=signatures, **values)


def metrics(measures: Sequence[str], tokenizer: str = USUAL) -> dict[str, Any]:
    """sacreBLEU's metrics of these names; "exact" is not one of them. Raises `ConfigurationError`."""
    from sacrebleu.metrics.bleu import BLEU  # not needed to translate
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    segmenting.check(tokenizer)
    asian = tokenizer in ("zh", "ja-mecab", "char")
    kinds: dict[str, Any] = {
        "bleu": lambda: BLEU(tokenize=tokenizer),
        "chrf": CHRF,
        "ter": lambda: TER(normalized=asian, asian_support=asian),
    }
    return {name: kind() for name, kind in kinds.items() if name in measures}
