"""Metrics for `regard.effects` and `regard.routes`: functions of a model's output, one number for each batch entry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from regard.watching.errors import WatchError

__all__ = ["Difference", "Divergence", "LogProbability", "Loss", "Metric"]

Token = int | Iterable[int] | Tensor
PADDING = -100  # as in the labels of Hugging Face models


class Metric(ABC):
    """A function of the output of a model: its logits, or an object or tuple that has them."""

    @abstractmethod
    def of(self, logits: Float[Tensor, "entries length vocabulary"]) -> Float[Tensor, "entries"]:
        """The number of each batch entry."""

    @property
    def reads_last(self) -> bool:
        """Whether it reads the logits of the last token alone."""
        return getattr(self, "position", None) == -1

    def beside(self, output: Any) -> Metric:
        """The metric for models whose unedited output is this."""
        return self

    def __call__(self, output: Any) -> Float[Tensor, "entries"]:
        """The number of each batch entry.

        Raises:
            WatchError: the output has no logits.
        """
        return self.of(logits_of(output))


def logits_of(output: Any) -> Float[Tensor, "entries length vocabulary"]:
    """The logits in the output of a model, in float32 or better.

    Raises:
        WatchError: there are none.
    """
    logits = getattr(output, "logits", output)
    logits = logits[0] if isinstance(logits, tuple | list) and logits else logits
    if not isinstance(logits, Tensor) or logits.ndim not in (2, 3):
        kind = list(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise WatchError(
            f"the output is {kind}, and this metric needs logits (entries, length, vocabulary):"
            " pass a function of the output as the metric"
        )
    logits = logits if logits.ndim == 3 else logits.unsqueeze(1)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _at(scores: Tensor, token: Token, position: int) -> Tensor:
    """The score of a token at a position; of a token for each entry if there are several."""
    tokens = torch.as_tensor(token if isinstance(token, int | Tensor) else list(token))
    vocabulary = scores.shape[-1]
    scores = _of_position(scores, position)
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
        raise WatchError(f"token is {token}: the output has logits of tokens 0 to {vocabulary - 1}")
    if tokens.ndim and len(tokens) != len(scores):
        raise WatchError(
            f"there are {len(tokens)} tokens for {len(scores)} batch entries: pass one each"
        )
    index = tokens.to(scores.device).expand(len(scores)).unsqueeze(1).clone()
    return scores.gather(-1, index).squeeze(1)


def _of_position(numbers: Tensor, position: int) -> Tensor:
    """What each entry has at a position of (entries, length, ...)."""
    length = numbers.shape[1]
    if not -length <= position < length:
        raise WatchError(f"position is {position}: the output has positions 0 to {length - 1}")
    return numbers[:, position]


@dataclass(frozen=True)
class LogProbability(Metric):
    """The log-probability of a token.

    Args:
        token: its id, or an id for each batch entry.
        position: of the logits: -1 for the token after the last.

    Example:
        >>> import torch
        >>> LogProbability(3)(torch.zeros(1, 5, 10)).exp()
        tensor([0.1000])
    """

    token: Token
    position: int = -1

    def of(self, logits: Tensor) -> Tensor:
        return _at(logits.log_softmax(-1), self.token, self.position)


@dataclass(frozen=True)
class Difference(Metric):
    """The logit of a token minus that of another.

    Args:
        token: its id, or an id for each batch entry.
        minus: likewise.
        position: of the logits: -1 for the token after the last.
    """

    token: Token
    minus: Token
    position: int = -1

    def of(self, logits: Tensor) -> Tensor:
        return _at(logits, self.token, self.position) - _at(logits, self.minus, self.position)


@dataclass(frozen=True)
class Loss(Metric):
    """The mean of -log p of each token after those before it.

    Args:
        tokens: (entries, length), the ids of the text; -100 for padding, which does not count.
        span: the tokens that count, a slice of their positions; all but the first by default.
    """

    tokens: Tensor
    span: slice = field(default_factory=lambda: slice(1, None))

    def of(self, logits: Tensor) -> Tensor:
        tokens = self.tokens.to(logits.device)
        places = torch.arange(tokens.shape[-1], device=logits.device)[self.span]
        places = places[places > 0]
        if not len(places) or tokens.shape != logits.shape[:2]:
            raise WatchError(
                f"the loss is of tokens {list(tokens.shape)} in {self.span}, and the logits have"
                f" {list(logits.shape[:2])}: pass the tokens of the model and a span with tokens after the first"
            )
        labels = tokens[:, places]
        losses = F.cross_entropy(
            logits[:, places - 1].transpose(1, 2), labels, ignore_index=PADDING, reduction="none"
        )
        return losses.sum(-1) / (labels != PADDING).sum(-1)


@dataclass(frozen=True)
class Divergence(Metric):
    """The Kullback-Leibler divergence of the output from the unedited output, in nats.

    Args:
        position: of the logits; None for the mean over all.
    """

    position: int | None = -1
    unedited: Tensor | None = field(default=None, repr=False)

    def beside(self, output: Any) -> Divergence:
        return Divergence(self.position, logits_of(output).detach().log_softmax(-1))

    def of(self, logits: Tensor) -> Tensor:
        scores = logits.log_softmax(-1)
        base = scores.detach() if self.unedited is None else self.unedited
        divergence = (base.exp() * (base - scores)).sum(-1)
        if self.position is None:
            return divergence.mean(-1)
        return _of_position(divergence, self.position)
