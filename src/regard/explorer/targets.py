"""Targets of encoder-decoders of Hugging Face: the tokens of a text, and those that a model writes by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.watching.spelling import encoded

LONGEST = 200  # tokens that a model writes


class Task(Protocol):
    """Notes how far a computation is; it raises once nobody waits for it."""

    def __call__(self, doing: str = "", done: int = 0, of: int = 0) -> None: ...


def has_source(model: nn.Module) -> bool:
    """Whether a model reads a source and writes a target."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


@torch.no_grad()
def greedy(model: Any, source: Tensor, task: Task) -> list[int]:
    """The tokens that the decoder reads while it writes the likeliest token at each step.

    Args:
        model: an encoder-decoder.
        source: (1, length), ids.
        task: called at each step.
    """
    limit = min(LONGEST, getattr(model.config, "max_position_embeddings", None) or LONGEST)
    ids: list[int] = model.generate(
        source,
        attention_mask=torch.ones_like(source),
        max_new_tokens=limit - 1,
        do_sample=False,
        num_beams=1,
        streamer=_Steps(task, limit),
    )[0].tolist()
    return ids[:-1] if len(ids) > 1 and ids[-1] in _ends(model) else ids


def forced(model: Any, tokenizer: Any, text: str) -> list[int]:
    """The tokens that the decoder reads while it writes a text, up to the end."""
    labels, words = (_labels(tokenizer, text, special) for special in (True, False))
    if labels[-1:] == words[-1:]:  # the tokenizer writes no end
        labels = [*labels, *_ends(model)[:1]]
    shifted = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if shifted is not None:
        return [int(token) for token in shifted(torch.tensor([labels]))[0]]
    return [model.generation_config.decoder_start_token_id, *labels[:-1]]


def _labels(tokenizer: Any, text: str, special: bool) -> list[int]:
    """The ids of a target, which some tokenizers write with a vocabulary of its own."""
    try:
        return list(tokenizer(text_target=text, add_special_tokens=special)["input_ids"])
    except TypeError:  # one of another project
        return encoded(tokenizer, text, special)


def _ends(model: Any) -> Sequence[int]:
    """The tokens that end a target."""
    ends = model.generation_config.eos_token_id
    return ends if isinstance(ends, list) else [] if ends is None else [ends]


class _Steps:
    """A streamer of transformers that tells a task each step."""

    def __init__(self, task: Task, limit: int) -> None:
        self._task, self._limit, self._done = task, limit, 0

    def put(self, _: Tensor) -> None:
        self._task("writing the target", self._done, self._limit)
        self._done += 1

    def end(self) -> None:
        """Nothing is kept."""
