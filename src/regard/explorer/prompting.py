"""A language model that reads prompts: its tokenizer, its inputs, and the targets of an encoder-decoder."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.watching.inputs import ModelInputs
from regard.watching.spelling import decoded, encoded

LONGEST = 200  # tokens that a model writes


class PromptError(RegardError):
    """A prompt that the model cannot read."""


class Task(Protocol):
    """Notes how far a computation is; it raises once nobody waits for it."""

    def __call__(self, doing: str = "", done: int = 0, of: int = 0) -> None: ...


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
        return has_source(self.model)

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
            return forced(self.model, self.tokenizer, text)
        return greedy(self.model, self._tensor(source), task)

    def text(self, ids: Sequence[int]) -> str:
        """The text of tokens; of an encoder-decoder without the special tokens that encoding adds."""
        return decoded(self.tokenizer, ids, special=not self.has_source)

    def run(self, ids: Sequence[int], source: Sequence[int] = ()) -> Any:
        return self.inputs(ids, source).run(self.model)

    def inputs(self, ids: Sequence[int], source: Sequence[int] = ()) -> ModelInputs:
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

    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_pre_hook(tell).remove)
        yield


def objection(model: nn.Module, inputs: Any, tokenizer: Any) -> str | None:
    """Why no prompt can be typed for a model with these inputs, or None."""
    if has_source(model) and not callable(getattr(model, "generate", None)):
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


def has_source(model: nn.Module) -> bool:
    """Whether a model reads a source and writes a target."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


@torch.no_grad()
def greedy(model: Any, source: Tensor, task: Task) -> list[int]:
    """The tokens that the decoder reads while it writes the likeliest token at each step.

    Args:
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
