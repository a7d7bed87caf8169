"""Validation: loss and scores on sentences that are not trained on."""

from collections.abc import Callable, Sequence

import numpy as np

from regard.translation.decoding.search import Search, translate_batch
from regard.translation.engines import choose, evaluating
from regard.translation.evaluation import segmenting
from regard.translation.evaluation.scores import measure
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Tokenizers
from regard.translation.settings.training import TrainingSettings
from regard.translation.text.batches import collate, plan
from regard.translation.text.corpora import Pair
from regard.translation.text.subwords import Ragged
from regard.translation.training.reporting import Quality, Sample
from regard.translation.training.step import Objective

_BATCH_TOKENS = 4096
_GREEDY = Search(beam=1, max_length=100_000)


class Stopped(Exception):
    """A validation was stopped before its end."""


class Validation:
    """Validates on `pairs`, a fixed random sample of the validation set.

    Attributes:
        tokenizer: how BLEU cuts words: by default as the language of the targets asks for.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        tokenizers: Tokenizers,
        settings: TrainingSettings,
        seed: int,
        language: str = "",
    ) -> None:
        random = np.random.default_rng([seed, 0x7A11D])
        rows = np.sort(random.permutation(len(pairs))[: settings.validate_sentences or len(pairs)])
        self.pairs = [pairs[i] for i in rows]
        self._tokenizers = tokenizers
        # The same on every machine, whatever packages it has.
        self.tokenizer = segmenting.plain(segmenting.of_language(language))
        # The samples are always the same ones, evenly spread over the set.
        count = min(settings.validate_samples, len(self.pairs))
        self._shown = [n * len(self.pairs) // count for n in range(count)]
        self._source = Ragged.of(
            tokenizers.source.tagged(pair.tags).encode(pair.source) for pair in self.pairs
        )
        self._target = Ragged.of(tokenizers.target.encode(pair.target) for pair in self.pairs)
        self._batches = plan(
            self._source.lengths, self._target.lengths, batch_tokens=_BATCH_TOKENS, random=random
        )

    def measure(
        self, model: TranslationModel, should_stop: Callable[[], bool] = lambda: False
    ) -> Quality:
        """Translate the sentences greedily and score them.

        Raises:
            Stopped: `should_stop` returned True before one of the batches.
        """
        device = next(model.parameters()).device
        total, tokens = 0.0, 0
        texts: dict[int, str] = {}
        with evaluating(model):
            engine, loss = choose(model), Objective(model, smoothing=0.0)
            for rows in self._batches:
                if should_stop():
                    raise Stopped
                batch = collate(self._source, self._target, rows).to(device)
                total += float(loss(batch))
                tokens += batch.target_tokens
                arguments = model, batch.source, batch.source_lengths
                hypotheses = translate_batch(*arguments, _GREEDY, engine=engine)
                for row, sentence_hypotheses in zip(rows, hypotheses, strict=True):
                    texts[int(row)] = self._tokenizers.target.decode(sentence_hypotheses[0].tokens)
        scores = measure(
            [texts[i] for i in range(len(self.pairs))],
            [pair.target for pair in self.pairs],
            measures=("bleu", "chrf", "exact"),
            tokenizer=self.tokenizer,
        )
        return Quality(
            total / max(1, tokens),
            scores.bleu or 0.0,
            scores.chrf or 0.0,
            scores.exact or 0.0,
            tuple(
                Sample(self.pairs[i].source, self.pairs[i].target, texts[i]) for i in self._shown
            ),
        )
