"""A language model that reads prompts: its tokenizer and its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.explorer import targets
from regard.explorer.targets import Task
from regard.watching.inputs import ModelInputs
from regard.watching.spelling import decoded, encoded


class PromptError(RegardError):
    """A prompt that the model cannot read."""


def no_task(doing: str = "", done: int = 0, of: int = 0) -> None:
    """The task of a caller who waits to the end."""


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A model that returns logits for token ids, and its tokenizer.

    The prompt of an encoder-decoder is its source; the tokens that it predicts are those of its target.

    Args:
        name: to show.
        model: in evaluation mode; it is called with ids of shape (1, length).
        tokenizer: of Hugging Face or `tokenizers`, or any object with `encode` and `decode`.
        start: the ids of the first prompt.
        start_target: the ids that the decoder first reads; the model writes the target if there are none.
    """

    name: str
    model: nn.Module
    tokenizer: Any
    start: Sequence[int]
    start_target: Sequence[int] = ()

    @property
    def has_source(self) -> bool:
        """Whether the model is an encoder-decoder."""
        return targets.has_source(self.model)

    @property
    def has_template(self) -> bool:
        """Whether the tokenizer can write a prompt as a message of a chat."""
        return not self.has_source and bool(getattr(self.tokenizer, "chat_template", None))

    def ids(self, text: str, chat: bool = False) -> list[int]:
        """The tokens of a prompt; with `chat`, of the model's own template around it.

        Raises:
            PromptError: there is no token, or no template.
        """
        if chat and not self.has_template:
            raise PromptError(f"chat: the tokenizer of {self.name} has no chat template")
        if chat:
            message = [{"role": "user", "content": text}]
            text = self.tokenizer.apply_chat_template(
                message, tokenize=False, add_generation_prompt=True
            )
        ids = encoded(self.tokenizer, text, special=not chat)
        if not ids:
            raise PromptError("text: the prompt has no tokens")
        return ids

    def token(self, text: str) -> int:
        """The first token of a text.

        Raises:
            PromptError: there is none.
        """
        ids = encoded(self.tokenizer, text, special=False)
        if not ids:
            raise PromptError(f"token: {text!r} has no tokens")
        return ids[0]

    def target(self, source: Sequence[int], text: str, task: Task = no_task) -> list[int]:
        """The tokens that the decoder reads: those of a text; without one, of what the model writes."""
        if text:
            return targets.forced(self.model, self.tokenizer, text)
        return targets.greedy(self.model, self._tensor(source), task)

    def text(self, ids: Sequence[int]) -> str:
        """The text of tokens; of an encoder-decoder without the special tokens that encoding adds."""
        return decoded(self.tokenizer, ids, special=not self.has_source)

    def run(self, ids: Sequence[int], source: Sequence[int] = ()) -> Any:
        """The output of the model."""
        return self.inputs(ids, source).run(self.model)

    def inputs(self, ids: Sequence[int], source: Sequence[int] = ()) -> ModelInputs:
        """The inputs of the model."""
        if not self.has_source:
            return ModelInputs((self._tensor(ids),))
        sides = {"input_ids": self._tensor(source), "decoder_input_ids": self._tensor(ids)}
        return ModelInputs({**sides, "use_cache": False})

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=self.device)

    @property
    def device(self) -> torch.device:
        return next((each.device for each in self.model.parameters()), torch.device("cpu"))


@contextmanager
def layers_told(model: nn.Module, task: Task) -> Iterator[None]:
    """Call the task before each layer that runs inside."""
    layers = [
        layer
        for module in model.modules()
        if isinstance(module, nn.ModuleList) and len(module) > 1
        for layer in module
    ]
    done = 0

    def tell(*_: Any) -> None:
        nonlocal done
        task("running the model", done, len(layers))
        done += 1

    handles = [layer.register_forward_pre_hook(tell) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def objection(model: nn.Module, inputs: Any, tokenizer: Any) -> str | None:
    """Why no prompt can be typed for a model with these inputs, or None."""
    if targets.has_source(model) and not callable(getattr(model, "generate", None)):
        return f"the {type(model).__name__} writes no tokens: pass a model with an output layer"
    if tokenizer is None:
        return "there is no tokenizer"
    if not (
        callable(getattr(tokenizer, "encode", None))
        and callable(getattr(tokenizer, "decode", None))
    ):
        return f"the tokenizer is a {type(tokenizer).__name__} without encode and decode"
    if start_of(inputs) is None:
        return "the inputs are no ids of one sequence"
    return None


def start_of(inputs: Any, side: str = "input_ids") -> list[int] | None:
    """The ids of the one sequence that a model was called with; of an encoder-decoder by the name of the argument."""
    if isinstance(inputs, Mapping):
        if set(inputs) - {"input_ids", "attention_mask", "decoder_input_ids", "use_cache"}:
            return None
        inputs = inputs.get(side)
    elif side != "input_ids":
        return None
    elif isinstance(inputs, tuple | list) and len(inputs) == 1:
        (inputs,) = inputs
    if not isinstance(inputs, Tensor) or inputs.is_floating_point() or inputs.ndim != 2:
        return None
    return inputs[0].tolist() if len(inputs) == 1 and inputs.shape[1] else None
