"""The recurrent translation model: encoder, bridge, decoder, output layer."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.dropout import Dropout
from regard.attention.positions import sinusoidal
from regard.translation.models.protocol import (
    Lengths,
    SourceIds,
    State,
    TargetIds,
    TranslationModel,
    Watched,
    Words,
    as_state,
)
from regard.translation.models.recurrent.attention import DecoderState, Source
from regard.translation.models.recurrent.decoder import (
    BahdanauDecoder,
    Decoder,
    FixedVectorDecoder,
    LuongDecoder,
)
from regard.translation.models.recurrent.encoder import Bridge, Encoder
from regard.translation.settings.recurrent import AttentionName, RecurrentSettings

DECODERS: dict[AttentionName, type[Decoder]] = {
    "bahdanau": BahdanauDecoder,
    "luong": LuongDecoder,
    "none": FixedVectorDecoder,
}
# The name of the only look there is.
LOOK = "decoder.0.cross"


class RecurrentModel(TranslationModel):
    """A recurrent encoder-decoder: Bahdanau et al. (arXiv 1409.0473), Luong et al. (1508.04025), or
    without attention Sutskever et al. (1409.3215).

    The word vector of `padding` is 0.

    Raises:
        ValueError: If embeddings are to be tied across vocabularies of different sizes.

    Example:
        >>> import torch
        >>> model = RecurrentModel(RecurrentSettings(decoder_width=32, tied="none"), 50, 60)
        >>> source, lengths = torch.tensor([[4, 5, 3], [6, 3, 0]]), torch.tensor([3, 2])
        >>> model(source, lengths, torch.tensor([[2, 7], [2, 8]])).shape
        torch.Size([2, 2, 60])
    """

    def __init__(
        self,
        settings: RecurrentSettings,
        source_vocabulary: int,
        target_vocabulary: int,
        padding: int = 0,
    ) -> None:
        super().__init__()
        if settings.tied == "three_way" and source_vocabulary != target_vocabulary:
            raise ValueError(
                "tied 'three_way' needs one vocabulary for both languages, not "
                f"{source_vocabulary} source and {target_vocabulary} target words: "
                "train a joint tokenizer, or choose tied 'target'"
            )
        self.settings, self.padding = settings, padding
        width = settings.embedding_width
        self.target_embedding = nn.Embedding(target_vocabulary, width, padding_idx=padding)
        self.source_embedding = (
            self.target_embedding
            if settings.tied == "three_way"
            else nn.Embedding(source_vocabulary, width, padding_idx=padding)
        )
        self.dropout = Dropout(settings.dropout)
        self.encoder = Encoder(settings)
        self.bridge = Bridge(settings)
        self.decoder = DECODERS[settings.attention](settings)
        self.output = nn.Linear(settings.hidden_width, target_vocabulary)
        if settings.tied != "none":
            self.output.weight = self.target_embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Word vectors and the output layer: normal, of length about 1; padding and biases 0."""
        for layer in (self.output, self.source_embedding, self.target_embedding):
            nn.init.normal_(layer.weight, std=layer.weight.shape[1] ** -0.5)
        nn.init.zeros_(self.output.bias)
        with torch.no_grad():
            self.source_embedding.weight[self.padding].zero_()
            self.target_embedding.weight[self.padding].zero_()

    def encode(self, source: SourceIds, lengths: Lengths) -> Source:
        is_word = torch.arange(source.shape[1], device=source.device) < lengths[:, None]
        readable = None if bool(is_word.all()) else is_word
        words = self.source_embedding(source)
        if self.settings.positions == "sinusoidal":
            size, like = words.shape[-2:], {"device": words.device, "dtype": words.dtype}
            words = words + sinusoidal(*size, **like)
        states, finals = self.encoder(self.dropout(words), readable)
        states, attention = self.dropout(states), self.decoder.attention
        mask = None if readable is None else readable[:, None]
        keys = None if attention is None else attention.keys(states, mask)
        return Source(states, keys, mask, self.bridge(finals))

    def hidden(
        self, source: SourceIds, lengths: Lengths, target: TargetIds, watched: Watched | None = None
    ) -> Float[Tensor, "batch target width"]:
        encoded = self.encode(source, lengths)
        if self.training and self.settings.scheduled_sampling and watched is None:
            return self._sampled(encoded, target)
        states, queries = self.decoder.unroll(self._words(target.t()), encoded)
        hidden: Tensor = self.dropout(states).transpose(0, 1)
        attention = self.decoder.attention
        if watched is not None and watched.wants(LOOK) and attention is not None:
            watched.looks[LOOK] = attention.look(queries, encoded)
        return hidden

    def begin(self, source: SourceIds, lengths: Lengths) -> DecoderState:
        return self.decoder.start(self.encode(source, lengths))

    def advance(
        self, words: Words, state: State
    ) -> tuple[Float[Tensor, "batch width"], DecoderState]:
        hidden, following = self.decoder.step(self._words(words), as_state(DecoderState, state))
        return self.dropout(hidden), following

    def _words(self, words: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch d_word"]:
        embedded: Tensor = self.dropout(self.target_embedding(words))
        return embedded

    def _sampled(self, encoded: Source, target: Tensor) -> Tensor:
        """Scheduled sampling: at the configured rate, a word after the first is drawn from the
        model in place of the translation's own (Bengio et al., arXiv 1506.03099)."""
        state, words = self.decoder.start(encoded), target[:, 0]
        outputs: list[Tensor] = []
        for step in range(target.shape[1]):
            if step:
                words = self._draw(outputs[-1], target[:, step])
            hidden, state = self.decoder.step(self._words(words), state)
            outputs.append(self.dropout(hidden))
        return torch.stack(outputs, dim=1)

    @torch.no_grad()
    def _draw(self, hidden: Tensor, words: Tensor) -> Tensor:
        samples = torch.multinomial(self.logits(hidden).float().softmax(-1), 1)[:, 0]
        sampled = torch.rand(words.shape, device=words.device) < self.settings.scheduled_sampling
        return torch.where(sampled & (words != self.padding), samples, words)
