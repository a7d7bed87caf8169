"""What tells good translations, without a reference: see `quality`."""

import math
from statistics import fmean

from regard.translation.results import Translation


def features(translation: Translation) -> list[float]:
    """What tells a good translation of a sentence.

    In their order: the mean probability of its words, the mean log-probability of its pieces, the agreement of the
    hypotheses, the logarithm of the source's length in pieces, the pieces of a source word, and whether words of the
    source were read as others.
    """
    confidences = [word.confidence for word in translation.words]
    pieces = len(translation.source_ids)
    return [
        fmean(confidences) if confidences else math.nan,  # CTranslate2 does not tell them
        translation.log_probability / max(1, len(translation.target_pieces)),
        math.nan if translation.agreement is None else translation.agreement,
        math.log(pieces + 1),
        pieces / max(1, len(translation.source.split())),
        float(bool(translation.read_as)),
    ]
