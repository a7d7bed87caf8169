"""What a language model predicts after each token of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

LISTED = 10  # tokens that may come next, of each place
KEPT = 100  # of these, log-probabilities that a change is compared with
BLOCK = 1 << 22  # logits whose probabilities are computed together

Spelling = Callable[[Sequence[int]], list[str]]


class Predictions:
    """The log-probabilities of the tokens that may follow each token of a prompt.

    They are computed for some rows at a time, so that no second array of the logits' size is made. The logits are kept
    until `rows` is called.

    Attributes:
        vocabulary: how many tokens there are.
        of_tokens: (length - 1,), the log-probability of each token of the prompt but the first.
    """

    def __init__(self, logits: Float[Tensor, "length vocabulary"], ids: Sequence[int]) -> None:
        self.ids, self.vocabulary = list(ids), logits.shape[-1]
        self._logits: Tensor | None = logits
        self._rows: list[list[dict[str, Any]]] | None = None
        following = torch.tensor([*ids[1:], 0], device=logits.device)[:, None]
        rows, count = max(1, BLOCK // self.vocabulary), min(KEPT, self.vocabulary)
        blocks = [
            _largest(block, tokens, count)
            for block, tokens in zip(logits.split(rows), following.split(rows), strict=True)
        ]
        self._likeliest, self._scores, self._largest, of_following = map(
            torch.cat, zip(*blocks, strict=True)
        )
        self.of_tokens: list[float] = of_following[:-1, 0].tolist()

    def rows(self, base: Predictions | None, spelled: Spelling) -> list[list[dict[str, Any]]]:
        """The likeliest tokens after each token, and those of another run, with both log-probabilities.

        Args:
            base: the other run, which is compared at each token of the same prompt, else at the last. That of the
                first call is kept.
            spelled: the texts of tokens.
        """
        if self._rows is None:
            self._rows, self._logits = self._compared(base, spelled), None
        return self._rows

    def _compared(self, base: Predictions | None, spelled: Spelling) -> list[list[dict[str, Any]]]:
        assert self._logits is not None
        base_scores = [self._of_base(base, place) for place in range(len(self.ids))]
        likeliest = self._likeliest[:, :LISTED].tolist()
        candidates = [
            list(dict.fromkeys([*tokens, *list(scores or ())[:LISTED]]))
            for tokens, scores in zip(likeliest, base_scores, strict=True)
        ]
        ids = sorted({token for tokens in candidates for token in tokens})
        names = dict(zip(ids, spelled(ids), strict=True))
        rows = []
        for place, (tokens, compared) in enumerate(zip(candidates, base_scores, strict=True)):
            logits = self._logits[place, torch.tensor(tokens, device=self._logits.device)]
            # Not less the log-normaliser: where logits are large, rounding it loses the digits that count.
            scores = (logits - self._largest[place] + self._scores[place, 0]).tolist()
            entries = [
                {"id": token, "token": names[token], "log_probability": score}
                for token, score in zip(tokens, scores, strict=True)
            ]
            if compared is not None:
                for entry in entries:
                    entry["before"] = compared.get(entry["id"])
            rows.append(sorted(entries, key=lambda entry: -entry["log_probability"]))
        return rows

    def _of_base(self, base: Predictions | None, place: int) -> dict[int, float] | None:
        """The log-probabilities of the tokens that were likeliest in the other run, where a place can be compared."""
        if base is None:
            return None
        if base.ids != self.ids:
            if place + 1 < len(self.ids):
                return None
            place = -1
        tokens, scores = base._likeliest[place].tolist(), base._scores[place].tolist()
        return dict(zip(tokens, scores, strict=True))


def _largest(logits: Tensor, tokens: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The likeliest tokens of each row, their log-probabilities, the largest logit, and the score of one token."""
    scores = logits.log_softmax(-1)
    top = scores.topk(count)
    largest = logits.gather(-1, top.indices[:, :1])
    return top.indices, top.values, largest, scores.gather(-1, tokens)
