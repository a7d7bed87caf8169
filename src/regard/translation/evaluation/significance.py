"""Tests whether the difference between two systems is significant."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from regard.errors import ConfigurationError, DataError
from regard.translation.evaluation.scores import metrics
from regard.translation.evaluation.segmenting import USUAL

PAIRED = ("bleu", "chrf", "ter")
RESAMPLES, SEED = 1000, 12345
# The most numbers in memory: sacreBLEU keeps the statistics of all resamples.
_MOST_NUMBERS = 2**29
_STATISTICS = 18


@dataclass(frozen=True)
class Difference:
    """One measure of two systems on the same sentences.

    Attributes:
        baseline: its score.
        score: the system's.
        baseline_mean: over the resamples; `baseline_interval` is half the width of its 95% interval.
        mean: of the system; with `interval`.
        p_value: the share of resamples with a difference this large by chance (Koehn 2004).
    """

    baseline: float
    score: float
    baseline_mean: float
    baseline_interval: float
    mean: float
    interval: float
    p_value: float


@dataclass(frozen=True)
class Significance:
    """The differences of two systems, and sacreBLEU's signatures, by measure: "bleu", "chrf", "ter"."""

    resamples: int
    seed: int
    differences: dict[str, Difference] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)


def compare(
    translations: Sequence[str],
    baseline: Sequence[str],
    *references: Sequence[str],
    measures: Sequence[str] = PAIRED,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    tokenizer: str = USUAL,
) -> Significance:
    """Paired bootstrap resampling, sacreBLEU's own (Koehn 2004, "Statistical significance tests for
    machine translation evaluation"; Post 2018, arXiv 1804.08771).

    Args:
        measures: which of "bleu", "chrf", "ter".
        resamples: test sets drawn; a p-value is never below 1 / (resamples + 1).
        seed: 1 or more; sacreBLEU treats 0 as no seed.
        tokenizer: see `measure`.

    Raises:
        DataError: nothing to compare, or unequal numbers.
        ConfigurationError: a measure that is not paired, a tokenizer that cannot be used, or numbers out of range.
    """
    check(resamples, seed, len(translations))
    for reference_set in references:
        if not len(translations) == len(baseline) == len(reference_set):
            raise DataError(
                f"{len(translations)} translations, {len(baseline)} of the baseline and "
                f"{len(reference_set)} references"
            )
    if not (translations and references):
        raise DataError("nothing to compare: no translations")
    if unknown := [name for name in measures if name not in PAIRED]:
        raise ConfigurationError(f"no paired measure {unknown[0]!r}: use {', '.join(PAIRED)}")
    from sacrebleu.significance import PairedTest

    differences: dict[str, Difference] = {}
    signatures: dict[str, str] = {}
    systems: list[tuple[str, Sequence[str]]] = [
        ("baseline", list(baseline)),
        ("system", list(translations)),
    ]
    for name, metric in metrics(measures, tokenizer).items():
        with _seeded(seed):
            test = PairedTest(systems, {name: metric}, references, "bs", resamples)
            by_name, columns = test()
        ((title, signature),) = by_name.items()
        results: Any = columns[title]
        theirs, ours = results
        differences[name] = Difference(
            baseline=theirs.score,
            score=ours.score,
            baseline_mean=float(theirs.mean),
            baseline_interval=float(theirs.ci),
            mean=float(ours.mean),
            interval=float(ours.ci),
            # For equal scores sacreBLEU would give 1 / (resamples + 1): it counts only larger differences.
            p_value=1.0 if ours.score == theirs.score else ours.p_value,
        )
        signatures[name] = str(signature)
    return Significance(resamples, seed, differences, signatures)


def check(resamples: int, seed: int, sentences: int = 1) -> None:
    """Raises `ConfigurationError` for numbers out of range."""
    if not 1 <= resamples <= 1_000_000:
        raise ConfigurationError(f"{resamples} resamples: use 1 to 1,000,000")
    if not 1 <= seed < 2**32:
        raise ConfigurationError(f"seed {seed}: use 1 to {2**32 - 1}")
    if resamples * sentences * _STATISTICS > _MOST_NUMBERS:
        largest = _MOST_NUMBERS // (sentences * _STATISTICS)
        raise ConfigurationError(
            f"{resamples} resamples of {sentences} sentences take too much memory: use at most {largest}"
        )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """sacreBLEU reads its seed from an environment variable."""
    name = "SACREBLEU_SEED"
    old_seed = os.environ.get(name)
    os.environ[name] = str(seed)
    try:
        yield
    finally:
        if old_seed is None:
            del os.environ[name]
        else:
            os.environ[name] = old_seed
