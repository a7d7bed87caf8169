"""Runs of a language model: a prompt, what may come next at each token, and every attention, with or without edits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.looks import StoredLook
from regard.errors import RegardError
from regard.explorer import targets
from regard.explorer.contract import Scene
from regard.explorer.targets import Task
from regard.watching import Seen, change, watch
from regard.watching.change import Change
from regard.watching.edits import Edit, From, Scale
from regard.watching.effect_table import Effect
from regard.watching.effects import estimated
from regard.watching.errors import WatchError
from regard.watching.inputs import ModelInputs
from regard.watching.metrics import Difference, LogProbability, Metric, logits_of
from regard.watching.scan import Scan
from regard.watching.spelling import decoded, encoded, spelled

LISTED = 10  # tokens that may come next, of each place
KEPT = 100  # of these, log-probabilities that a change is compared with


class PromptError(RegardError):
    """A prompt that the model cannot read."""


def no_task(doing: str = "", done: int = 0, of: int = 0) -> None:
    """The task of a caller who waits to the end."""


@dataclass(frozen=True, eq=False)
class FromPrompt:
    """An edit that takes the outputs of heads, or their weights, from the same model's run of another prompt."""

    text: str
    heads: int | None = None
    replaces: str = "outputs"


Edits = Mapping[str, Sequence[Edit | FromPrompt]]
NO_EDITS: Edits = {}


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

    def read(
        self,
        ids: Sequence[int],
        edits: Edits = NO_EDITS,
        task: Task = no_task,
        chat: bool = False,
        source: Sequence[int] = (),
    ) -> Reading:
        """Run the model on a prompt.

        Args:
            ids: of the prompt; of an encoder-decoder those of the target, as the decoder reads them.
            edits: of attentions, by name.
            task: called before each layer.
            chat: whether the texts of other prompts, of `FromPrompt`, are written as messages too.
            source: the ids that an encoder reads.

        Raises:
            PromptError: the model failed, or returned no logits for each token.
            WatchError: edits of attentions or heads that do not exist, or another prompt of another length.
        """
        resolved = {
            name: [self._resolved(edit, ids, task, chat) for edit in several]
            for name, several in edits.items()
        }
        with watch(self.model, values=True) as seen:
            logits, edited = self._logits(ids, source, resolved, task)
        scores = logits.log_softmax(-1)
        top = scores.topk(min(KEPT, scores.shape[-1]))
        tokens = torch.tensor(ids[1:], device=scores.device)
        of_tokens = scores[:-1].gather(-1, tokens[:, None])[:, 0].tolist()
        return Reading(
            self,
            list(ids),
            list(source),
            seen,
            edited,
            resolved,
            top.indices,
            top.values,
            of_tokens,
            scores,
            scores.shape[-1],
        )

    def _resolved(
        self, edit: Edit | FromPrompt, ids: Sequence[int], task: Task, chat: bool
    ) -> Edit:
        """An edit with the run of its prompt; of an encoder-decoder another source of the same target."""
        if isinstance(edit, Edit):
            return edit
        prompt = self.ids(edit.text, chat)
        ids, source = (ids, prompt) if self.has_source else (prompt, [])
        with watch(self.model, values=True) as other:
            self._logits(ids, source, {}, task)
        return From(other, heads=edit.heads, replaces=edit.replaces)  # type: ignore[arg-type]

    def _logits(
        self,
        ids: Sequence[int],
        source: Sequence[int],
        edits: Mapping[str, Sequence[Edit]],
        task: Task,
    ) -> tuple[Tensor, Change | None]:
        """The logits at each token, (length, vocabulary)."""
        edited = change(self.model, edits) if edits else nullcontext()
        with torch.no_grad(), layers_told(self.model, task), edited as opened:
            output = self.run(ids, source)
        logits = logits_of(output)[0]
        if len(logits) != len(ids):
            raise PromptError(
                f"the model returned {len(logits)} rows of logits for {len(ids)} tokens"
            )
        return logits, opened

    def run(self, ids: Sequence[int], source: Sequence[int] = ()) -> Any:
        """The output of the model."""
        return self.inputs(ids, source).run(self.model)

    def inputs(self, ids: Sequence[int], source: Sequence[int] = ()) -> ModelInputs:
        """What the model is called with."""
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


@dataclass(eq=False)
class Reading:
    """The run of a model on a prompt.

    Attributes:
        language: the model.
        ids: the prompt; of an encoder-decoder the target, as the decoder read it.
        source: what an encoder read.
        seen: its attentions, with values.
        edited: the change that was open, or None.
        edits: its edits.
        likeliest: (length, 100), the likeliest tokens after each token.
        scores: (length, 100), their log-probabilities.
        of_tokens: (length - 1,), the log-probability of each token but the first.
        all_scores: (length, vocabulary), the log-probabilities of all tokens, until its first scene is made.
        vocabulary: how many tokens there are.
        rows: the tokens that the scene lists at each place.
    """

    language: LanguageModel
    ids: list[int]
    source: list[int]
    seen: Seen
    edited: Change | None
    edits: Mapping[str, Sequence[Edit]]
    likeliest: Tensor
    scores: Tensor
    of_tokens: list[float]
    all_scores: Tensor | None
    vocabulary: int = 0
    rows: list[list[dict[str, Any]]] | None = None
    scans: dict[Any, Effects] = field(default_factory=dict)

    def run_again(self) -> Any:
        """The output of the model, with the same edits."""
        with change(self.language.model, self.edits) if self.edits else nullcontext():
            return self.language.run(self.ids, self.source)

    def scene(
        self, text: str, chat: bool = False, base: Reading | None = None, moved: bool = False
    ) -> Scene:
        """The scene of this run.

        Args:
            text: the prompt, as it was typed.
            chat: whether it is a message of a chat.
            base: a run that this one is compared with: at each token of the same prompt, else at the last.
            moved: whether to show what each key moves (`Seen.moved`) in place of its weight.
        """
        if self.rows is None:
            self.rows, self.all_scores = self._next(base), None
        language = self.language
        decoder, encoder = (spelled(language.tokenizer, ids) for ids in (self.ids, self.source))
        labels = {"encoder": encoder, "decoder": decoder} if self.source else decoder
        title = text if text.strip() else language.name
        scene: Scene = self.seen.scene(tokens=labels, title=title)
        attentions = [self._edited(each, moved) for each in scene.attentions]
        prompt = {
            "text": text,
            "target": language.text(self.ids[1:]) if self.source else None,
            "chat": chat,
            "template": language.has_template,
            "log_probabilities": [None, *self.of_tokens],
            "next": self.rows,
            "edited": bool(self.edits),
            "moved": moved,
        }
        return replace(scene, attentions=attentions, model=language.name, more={"prompt": prompt})

    def _edited(self, attention: Any, moved: bool) -> Any:
        """An attention with its edited weights, or with what it moves."""
        look, name = attention.look, attention.name
        if self.edited is not None and name in self.edited:
            look = StoredLook(self.edited.weights(name)[0])
        if moved:
            look = look.scaled(self.seen.readings(name).norms()[0], normalised=True)
        return replace(attention, look=look)

    def _next(self, base: Reading | None) -> list[list[dict[str, Any]]]:
        """The likeliest tokens after each token, and those of the run before, with both log-probabilities."""
        assert self.all_scores is not None
        places = range(len(self.ids))
        same = base is not None and base.ids == self.ids
        earlier = [
            base._log_probabilities(at if same else -1)
            if base and (same or at == len(self.ids) - 1)
            else None
            for at in places
        ]
        listed = [
            list(
                dict.fromkeys(
                    [*self.likeliest[at, :LISTED].tolist(), *list(earlier[at] or ())[:LISTED]]
                )
            )
            for at in places
        ]
        ids = sorted({token for tokens in listed for token in tokens})
        names = dict(zip(ids, self.names(ids), strict=True))
        rows = []
        for at, tokens in zip(places, listed, strict=True):
            scores = self.all_scores[
                at, torch.tensor(tokens, device=self.all_scores.device)
            ].tolist()
            entries = [
                {"id": token, "token": names[token], "log_probability": score}
                for token, score in zip(tokens, scores, strict=True)
            ]
            if (was := earlier[at]) is not None:
                for entry in entries:
                    entry["before"] = was.get(entry["id"])
            rows.append(sorted(entries, key=lambda entry: -entry["log_probability"]))
        return rows

    def _log_probabilities(self, place: int) -> dict[int, float]:
        """The log-probabilities of the likeliest tokens after a token."""
        return dict(zip(self.likeliest[place].tolist(), self.scores[place].tolist(), strict=True))

    def names(self, ids: Sequence[int]) -> list[str]:
        """Tokens that may come next, as text."""
        return spelled(self.language.tokenizer, ids, apart=True)

    @property
    def nbytes(self) -> int:
        return self.seen.nbytes

    def effects(
        self,
        token: int,
        minus: int | None,
        place: int,
        edit: FromPrompt | None,
        chat: bool,
        task: Task,
    ) -> Effects:
        """The effects of switching off each head, or of the heads of another prompt, on this run's prediction."""
        at = token, minus, place, None if edit is None else edit.text
        if at not in self.scans:
            resolved = None if edit is None else self.language._resolved(edit, self.ids, task, chat)
            self.scans = {at: Effects(self, token, minus, place, resolved)}
        return self.scans[at]


class Effects:
    """The effects of all heads on the log-probability of a token, or the difference of the logits of two."""

    def __init__(
        self, reading: Reading, token: int, minus: int | None, place: int, edit: Edit | None
    ) -> None:
        if reading.edits:
            raise WatchError("effects are those of a run without edits: undo the edits")
        place = place if place + 1 < len(reading.ids) else -1  # the last one needs no other logits
        self._metric: Metric = (
            LogProbability(token, place) if minus is None else Difference(token, minus, place)
        )
        self._language, self._edit = reading.language, edit
        self._inputs = self._language.inputs(reading.ids, reading.source)
        self._scan: Scan | None = None
        self._groups: dict[int, list[Effect]] = {}

    def _new(self) -> Scan:
        return Scan(
            self._language.model, self._inputs, self._metric, "heads", self._edit or Scale(0.0)
        )

    def estimate(self, task: Task) -> tuple[float, list[Effect]]:
        """The metric, and the effects by its gradient."""
        with layers_told(self._language.model, task):
            table = estimated(self._new())
        return table.base, list(table)

    def measured(self, number: int, task: Task) -> tuple[float, list[Effect], int]:
        """The metric, the effects of one group of heads, each switched off in a run, and how many groups there are.

        Raises:
            PromptError: there is no such group.
        """
        if self._scan is None:
            task("preparing the runs", 0, 1)
            scan = self._new()
            scan.prepare()
            self._scan = scan
        count = len(self._scan.groups)
        if not number < count:
            raise PromptError(f"part: there are {count} parts")
        if number not in self._groups:
            task("running the model without each head", number, count)
            self._groups[number] = self._scan.group(number)
        return self._scan.base, self._groups[number], count


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
