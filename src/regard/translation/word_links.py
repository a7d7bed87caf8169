"""Word links of sentence pairs: learnt from the pairs, or read from the attention of a model."""

import os
from collections.abc import Sequence

from regard.errors import ConfigurationError
from regard.translation.aligning.adapted import adapt as adapt_to
from regard.translation.aligning.aligner import Aligned, Aligner
from regard.translation.aligning.words import normalised_words
from regard.translation.linking.learning import chain_names
from regard.translation.linking.priors import Priors
from regard.translation.linking.words import words_of
from regard.translation.translator import Translator

Sentence = str | Sequence[str]


def align(
    pairs: Sequence[tuple[Sentence, Sentence]],
    *,
    adapt: bool = False,
    model: str = "es-en",
    translator: str | None = None,
    priors: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> list[Aligned]:
    """Link the words of sentences and of their translations.

    Args:
        pairs: lines, or lists of words. To adapt, punctuation marks are split off the words of a line; a model reads
            words between spaces.
        adapt: learn from these pairs, of any languages; without `priors`, some hundreds of pairs or more are needed.
        model: otherwise, a bundled model or a run folder whose attention links words.
        translator: to adapt, a model of these languages whose attention is averaged in.
        priors: to adapt, what `regard align --adapt --keep FILE` learnt from another text of these languages.
        seed: of the samples that `adapt` draws.

    Raises:
        ModelError: there is no such model, or its attention cannot align.
        DataError: `priors` is no file that `--keep` wrote.
        ConfigurationError: `translator` or `priors` without `adapt`.

    >>> import regard
    >>> pairs = [("la casa", "the house"), ("la mesa", "the table"), ("una mesa", "a table")] * 9
    >>> sorted(regard.align(pairs, adapt=True)[2].links)
    [(0, 0), (1, 1)]
    """
    if translator is not None and not adapt:
        raise ConfigurationError("translator: only with adapt=True; without it, name a model")
    if priors is not None and not adapt:
        raise ConfigurationError("priors: only with adapt=True")
    split = words_of if adapt else normalised_words

    def words(sentence: Sentence) -> list[str]:
        return split(sentence) if isinstance(sentence, str) else list(sentence)

    word_pairs = [(words(source), words(target)) for source, target in pairs]
    if adapt:
        earlier_text = None if priors is None else Priors.load(priors, chain_names())
        text = adapt_to(word_pairs, seed=seed, priors=earlier_text)
        if translator is not None:
            attending = Translator.open(translator)
            text = text.attended(attending.model, attending.tokenizers)
        return list(text.aligned())
    attending = Translator.open(model)
    return Aligner.of(attending.run, attending.model, attending.tokenizers).align(word_pairs)
