"""Models of the literature, with the sizes that their papers give."""

from collections.abc import Callable
from dataclasses import dataclass

from regard.costs.architectures import FORMULAS, Built, Stack
from regard.costs.parts import Part, Parts, matrix, scored, scores_and_values, times
from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.settings.transformer import TransformerSettings


@dataclass(frozen=True)
class Model:
    """A model that can be counted.

    Args:
        source: the paper, or the file of the configuration.
        length: tokens of a sequence, unless the caller says how many.
        built: the sizes of the model that is counted and measured; None for a module.
        words: sizes of the vocabularies.
        published: parameters in the paper, where it gives them.
        remark: how the count or the measured model differs from the paper.
        formula: the parts for numbers of queries and of keys, where they are not those of `built`.
    """

    source: str
    length: int
    built: Built | None
    words: tuple[int, int] = (0, 0)
    published: int | None = None
    remark: str = ""
    formula: Callable[[int, int], Parts] | None = None

    def parts(self, queries: int, keys: int) -> Parts:
        """The parts for numbers of queries and of keys."""
        if self.formula is not None:
            return self.formula(queries, keys)
        return FORMULAS[type(self.built)](self.built, self.words, queries, keys)

    @property
    def width(self) -> int | None:
        """d_model, where there is one."""
        return getattr(self.built, "width", None)

    @property
    def longest(self) -> int | None:
        """The largest number of positions that it has learned, where there is one."""
        match self.built:
            case Stack(positions=positions):
                return positions
            case TransformerSettings(positions="learned", longest=longest):
                return longest
        return None


def bahdanau(queries: int, keys: int) -> Parts:
    """RNNsearch of Bahdanau et al. 2015, arXiv 1409.0473, sections A.1 and A.2; it writes no biases.

    n = n' = 1,000 (states, alignment), m = 620 (word vectors), l = 500 (maxout), 30,000 words a language.
    """
    n, m, l, words = 1000, 620, 500, 30_000  # noqa: E741

    def cell(rows: int, *inputs: int) -> Parts:
        return [matrix("recurrence", d_in, 3 * n, rows) for d_in in (*inputs, n)]

    matrices, width = scored("additive", queries, keys, n, 2 * n, n, prepared=True)
    return [
        Part("embeddings", 2 * words * m),
        *times(2, cell(keys, m)),
        matrix("recurrence", n, n, 1),  # W_s, from the backward state to the first state
        *cell(queries, m, 2 * n),
        *matrices,
        *scores_and_values(queries, keys, 1, width, 2 * n, cache=keys * 2 * n),
        *(matrix("output layer", d_in, 2 * l, queries) for d_in in (n, m, 2 * n)),
        matrix("output layer", l, words, queries),
    ]


def _transformer(width: int, inner: int, heads: int) -> TransformerSettings:
    return TransformerSettings(
        encoder_layers=6,
        decoder_layers=6,
        width=width,
        heads=heads,
        feed_forward=inner,
        norm="post",
    )


_BAHDANAU = RecurrentSettings(
    embedding_width=620, encoder_width=1000, decoder_width=1000, attention_width=1000, tied="none"
)
_LUONG = RecurrentSettings(
    cell="lstm",
    encoder_layers=4,
    decoder_layers=4,
    bidirectional=False,
    embedding_width=1000,
    encoder_width=1000,
    decoder_width=1000,
    attention="luong",
    score="general",
    bridge="copy",
    tied="none",
)
_VASWANI = "Vaswani et al. 2017, arXiv 1706.03762, table 3"
_GPT2 = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, table 2"
_CORRECTED = "The authors' repository corrects the paper: its counts were wrong."
_PIECES = (50_257, 50_257)  # of the GPT models

PAPERS: dict[str, Model] = {
    "bahdanau-2015": Model(
        "Bahdanau et al. 2015, arXiv 1409.0473, appendix A",
        50,
        _BAHDANAU,
        (30_000, 30_000),
        remark="The model that is measured has biases, and a tanh layer of width 620 for the maxout.",
        formula=bahdanau,
    ),
    "luong-2015": Model(
        "Luong et al. 2015, arXiv 1508.04025, section 4.1, score general, input feeding",
        50,
        _LUONG,
        (50_000, 50_000),
        remark="Biases are counted; the paper does not say whether there are any.",
    ),
    "vaswani-base": Model(
        _VASWANI,
        50,
        _transformer(512, 2048, 8),
        (37_000, 37_000),
        65_000_000,
        "The paper says 65 million, and not what it counts; its big model agrees within 1%.",
    ),
    "vaswani-big": Model(_VASWANI, 50, _transformer(1024, 4096, 16), (37_000, 37_000), 213_000_000),
    "bert-base": Model(
        "Devlin et al. 2019, arXiv 1810.04805, section 3; 30,522 words, as released",
        512,
        Stack(12, 768, 12, 512, segments=2, causal=False, pooler=True),
        (30_522, 30_522),
        110_000_000,
    ),
    "gpt-2": Model(_GPT2, 1024, Stack(12, 768, 12, 1024), _PIECES, 117_000_000, _CORRECTED),
    "gpt-2-xl": Model(_GPT2, 1024, Stack(48, 1600, 25, 1024), _PIECES, 1_542_000_000, _CORRECTED),
    "gpt-3": Model(
        "Brown et al. 2020, arXiv 2005.14165, table 2.1",
        2048,
        Stack(96, 12_288, 96, 2048),
        _PIECES,
        175_000_000_000,
        "Sparse layers are counted as dense ones.",
    ),
}
