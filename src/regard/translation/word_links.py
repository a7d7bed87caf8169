"""Word links of sentence pairs: learnt from the pairs, or read from the attention of a model."""

from __future__ import annotations

from collections.abc import Sequence

from regard.translation.aligning.adapted import adapt as adapt_to
from regard.translation.aligning.aligner import Aligned, Aligner
from regard.translation.aligning.words import normalised_words
from regard.translation.linking.words import words_of
from regard.translation.translator import Translator

Sentence = str | Sequence[str]


def align(
    pairs: Sequence[tuple[Sentence, Sentence]],
    *,
    adapt: bool = False,
    model: str = "es-en",
    seed: int = 0,
) -> list[Aligned]:
    """Link the words of sentences and of their translations.

    Args:
        pairs: lines, or lists of words. To adapt, punctuation marks are split off the words of a line; a model reads
            words between spaces.
        adapt: learn from these pairs alone, of any languages; some hundreds of pairs or more are needed.
        model: otherwise, a bundled model or a run folder whose attention links words.
        seed: of the samples that `adapt` draws.

    Raises:
        ModelError: there is no such model, or its attention cannot align.

    >>> import regard
    >>> pairs = [("la casa", "the house"), ("la mesa", "the table"), ("una mesa", "a table")] * 9
    >>> sorted(regard.align(pairs, adapt=True)[2].links)
    [(0, 0), (1, 1)]
    """
    split = words_of if adapt else normalised_words

    def words(sentence: Sentence) -> list[str]:
        return split(sentence) if isinstance(sentence, str) else list(sentence)

    word_pairs = [(words(source), words(target)) for source, target in pairs]
    if adapt:
        return list(adapt_to(word_pairs, seed=seed).aligned())
    translator = Translator.open(model)
    return Aligner.of(translator.run, translator.model, translator.tokenizers).align(word_pairs)
