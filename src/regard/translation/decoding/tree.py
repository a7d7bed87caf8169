"""The tree of a beam search: the hypotheses that each step kept and dropped."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from regard.translation.decoding.limits import Limits
from regard.translation.decoding.live import Ended, Live
from regard.translation.models.protocol import Logits
from regard.translation.text.tokenizer import EOS


@dataclass(frozen=True)
class Node:
    """A beginning of a translation.

    Attributes:
        parent: the number of the node without its last token; -1 for none.
        token: the last token.
        log_probability: of all its tokens.
        kept: whether the search continued it, or kept it as an ended translation.
    """

    parent: int
    token: int
    log_probability: float
    kept: bool


class Tree:
    """Records the beam search of one sentence, when it is given to one.

    Attributes:
        nodes: a parent before its children, the best of a step first.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._live = [-1]  # the node of each live beginning

    def step(
        self,
        live: Live,
        logits: Logits,
        limits: Limits,
        size: int,
        following: Live,
        rows: Int[Tensor, "one beginnings"],
        ended: Ended,
    ) -> None:
        """Note a step: the beginnings before it, the logits, and the result of `beam.advance`."""
        totals_before = live.totals[0].tolist()
        grown = list(zip(rows[0].tolist(), following.words[0].tolist(), strict=True))
        totals = zip(grown, following.totals[0].tolist(), strict=True)
        # Log-probabilities by live beginning and word.
        surviving = {at: total for at, total in totals if total > float("-inf")}
        for beginning, log_p in zip(ended.beginnings.tolist(), ended.log_p.tolist(), strict=True):
            surviving[beginning, EOS] = totals_before[beginning] + log_p
        candidates = dict(surviving)
        best, words = live.best_words(logits, limits, size + 1, compiled=False)
        for beginning, (row, row_words) in enumerate(
            zip(best.tolist(), words.tolist(), strict=True)
        ):
            for log_p, word in zip(row, row_words, strict=True):
                if (total := totals_before[beginning] + log_p) > float("-inf"):
                    candidates.setdefault((beginning, word), total)
        best_grown = sorted(candidates, key=lambda at: (at not in surviving, -candidates[at]))[
            : 2 * size
        ]
        numbers = {}
        for at in sorted(best_grown, key=lambda at: -candidates[at]):
            numbers[at] = len(self.nodes)
            self.nodes.append(Node(self._live[at[0]], at[1], candidates[at], at in surviving))
        self._live = [numbers.get(at, -1) for at in grown]
