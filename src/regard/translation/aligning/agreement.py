"""The attention of a translator that agrees most with links from elsewhere: no gold links are needed to choose it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from regard.translation.aligning.aligner import Aligner, links_of, weights_of
from regard.translation.aligning.selection import matrix_choices
from regard.translation.aligning.word_attention import WordPair, word_attentions
from regard.translation.evaluation.alignment import Link, measure_alignment
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Tokenizers

_THRESHOLDS = (0.2, 0.3, 0.4)


def agreeing(
    model: TranslationModel,
    tokenizers: Tokenizers,
    pairs: Sequence[WordPair],
    links: Sequence[Set[Link]],
) -> tuple[Aligner, float] | None:
    """The aligner whose links have the greatest F1 with these, and this F1, from 0 to 1; None without a full pair.

    Its attention is balanced, and read with a threshold.

    Raises:
        ConfigurationError: the model has no attention to the source.
    """
    readings = word_attentions(model, tokenizers, pairs)
    full = next((reading for reading in readings if reading.written), None)
    if full is None:
        return None
    trials = []
    for plain in matrix_choices(full, (True,)):
        matrices = [weights_of(reading, plain) for reading in readings]
        for threshold in _THRESHOLDS:
            choice = replace(plain, method="threshold", threshold=threshold)
            theirs = [links_of(weights, choice) for weights in matrices]
            trials.append((measure_alignment(theirs, links).f1, choice))
    f1, choice = max(trials, key=lambda trial: trial[0])
    return Aligner(model, tokenizers, choice), f1 / 100
