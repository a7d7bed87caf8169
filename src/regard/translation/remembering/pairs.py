"""Sentence pairs as a model reads them, and the states in which it writes their targets."""

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

from regard.translation.decoding import forced
from regard.translation.lines import spans_of
from regard.translation.reading.carrying import as_bare
from regard.translation.text.batches import sources
from regard.translation.text.corpora import Pair
from regard.translation.text.normalisation import composed, normalise
from regard.translation.text.sentences import of_line
from regard.translation.text.stand_ins import STAND_IN, StandIns
from regard.translation.translator import Translator

BATCH_TOKENS = 4096  # positions of a pass
Encoded = tuple[list[int], list[int]]


def as_read(translator: Translator, pairs: Sequence[Pair]) -> list[tuple[str, str]]:
    """Pairs of lines as pairs of sentences that the model reads: words stand for code, markup and addresses.

    Short ones come first, so that those of a batch are of like length. Pairs that are too long are left out.
    """
    configuration, words = translator.run.configuration.data, translator.words
    readable, search = translator.tokenizers.readable, translator.search
    sentences = dict[tuple[str, str], int]()
    for pair in pairs:
        stand_ins = StandIns()
        marked = [
            stand_ins.put(line, spans_of(line, readable, words, search))
            for line in map(composed, pair[:2])
        ]
        language = translator.sentence_language
        source = [part.text for part in of_line(marked[0], language)]
        target = [
            part.text for part in of_line(marked[1], language and configuration.target_language)
        ]
        if len(source) != len(target):
            source, target = marked[:1], marked[1:]
        for source_text, target_text in zip(source, target, strict=True):
            bare = as_bare(source_text, stand_ins.spans, words)
            for stand_in, (word, _) in bare.words.items():
                target_text = target_text.replace(stand_in, word)
            read = normalise(bare.text), normalise(STAND_IN.sub("", target_text))
            sizes = list(map(len, encoded(translator, read)))
            if min(sizes) and max(sizes) <= translator.longest:
                sentences[read] = max(sizes)
    return sorted(sentences, key=sentences.__getitem__)


def encoded(translator: Translator, pair: Sequence[str]) -> Encoded:
    """The ids of both sides."""
    tokenizers, (source, target) = translator.tokenizers, pair
    return tokenizers.source.encode(source), tokenizers.target.encode(target)


def batches(translator: Translator, pairs: Iterable[Sequence[str]]) -> Iterator[list[Encoded]]:
    """Neighbouring pairs together, as many as a pass takes."""
    batch, longest = list[Encoded](), 0
    for pair in pairs:
        ids = encoded(translator, pair)
        size = max(map(len, ids)) + 1
        if batch and (len(batch) + 1) * max(longest, size) > BATCH_TOKENS:
            yield batch
            batch, longest = [], 0
        batch.append(ids)
        longest = max(longest, size)
    if batch:
        yield batch


def states_of(translator: Translator, batch: Sequence[Encoded]) -> tuple[Tensor, Tensor]:
    """The output layer's input before each target token and its end, and these tokens."""
    device = next(translator.model.parameters()).device
    source, lengths = sources([ids for ids, _ in batch])
    targets = [ids for _, ids in batch]
    hidden, tokens = forced.states(translator.model, source.to(device), lengths.to(device), targets)
    return hidden.float().cpu(), tokens.cpu()
