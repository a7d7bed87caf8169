"""Runs of a language model on a prompt: its predictions and every attention, with or without edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.attention.looks import StoredLook
from regard.explorer.contract import Attention, Scene
from regard.explorer.predictions import Predictions
from regard.explorer.prompting import LanguageModel, PromptError, layers_told, no_task
from regard.explorer.targets import Task
from regard.watching import Seen, change, watch
from regard.watching.change import Change
from regard.watching.edits import Edit, From
from regard.watching.metrics import logits_of
from regard.watching.spelling import spelled


@dataclass(frozen=True, eq=False)
class FromPrompt:
    """An edit that takes the outputs of heads, or their weights, from the same model's run of another prompt."""

    text: str
    heads: int | None = None
    replaces: str = "outputs"


Edits = Mapping[str, Sequence[Edit | FromPrompt]]
NO_EDITS: Edits = {}


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
        predictions: what may come next at each token.
    """

    language: LanguageModel
    ids: list[int]
    source: list[int]
    seen: Seen
    edited: Change | None
    edits: Mapping[str, Sequence[Edit]]
    predictions: Predictions

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
        language = self.language
        decoder, encoder = (spelled(language.tokenizer, ids) for ids in (self.ids, self.source))
        labels = {"encoder": encoder, "decoder": decoder} if self.source else decoder
        title = text if text.strip() else language.name
        scene: Scene = self.seen.scene(tokens=labels, title=title)
        attentions = [self._edited(attention, moved) for attention in scene.attentions]
        prompt = {
            "text": text,
            "target": language.text(self.ids[1:]) if self.source else None,
            "chat": chat,
            "template": language.has_template,
            "log_probabilities": [None, *self.predictions.of_tokens],
            "next": self.predictions.rows(base.predictions if base else None, self.names),
            "edited": bool(self.edits),
            "moved": moved,
        }
        return replace(scene, attentions=attentions, model=language.name, more={"prompt": prompt})

    def _edited(self, attention: Attention, moved: bool) -> Attention:
        """An attention with its edited weights, or with what it moves."""
        look, name = attention.look, attention.name
        if self.edited is not None and name in self.edited:
            look = StoredLook(self.edited.weights(name)[0])
        if moved:
            look = look.scaled(self.seen.readings(name).norms()[0], normalised=True)
        return replace(attention, look=look)

    def names(self, ids: Sequence[int]) -> list[str]:
        """Tokens that may come next, as text."""
        return spelled(self.language.tokenizer, ids, apart=True)

    @property
    def nbytes(self) -> int:
        return self.seen.nbytes


def read(
    language: LanguageModel,
    ids: Sequence[int],
    edits: Edits = NO_EDITS,
    task: Task = no_task,
    chat: bool = False,
    source: Sequence[int] = (),
) -> Reading:
    """Run a model on a prompt.

    Args:
        language: the model.
        ids: of the prompt; of an encoder-decoder those of the target, as the decoder reads them.
        edits: of attentions, by name.
        task: called before each layer.
        chat: whether the texts of other prompts, of `FromPrompt`, are written as messages too.
        source: the ids that an encoder reads.

    Raises:
        PromptError: the model failed, or returned no logits for each token.
        WatchError: edits of attentions or heads that do not exist, or another prompt of another length.
    """
    edits_of_runs = {
        name: [with_run(language, edit, ids, task, chat) for edit in several]
        for name, several in edits.items()
    }
    with watch(language.model, values=True) as attentions:
        logits, edited = _logits(language, ids, source, edits_of_runs, task)
    predictions = Predictions(logits, ids)
    return Reading(
        language, list(ids), list(source), attentions, edited, edits_of_runs, predictions
    )


def with_run(
    language: LanguageModel, edit: Edit | FromPrompt, ids: Sequence[int], task: Task, chat: bool
) -> Edit:
    """An edit with the run of its prompt; of an encoder-decoder another source of the same target."""
    if isinstance(edit, Edit):
        return edit
    prompt = language.ids(edit.text, chat)
    ids, source = (ids, prompt) if language.has_source else (prompt, [])
    with watch(language.model, values=True) as donor:
        _logits(language, ids, source, {}, task)
    return From(donor, heads=edit.heads, replaces=edit.replaces)  # type: ignore[arg-type]


def _logits(
    language: LanguageModel,
    ids: Sequence[int],
    source: Sequence[int],
    edits: Mapping[str, Sequence[Edit]],
    task: Task,
) -> tuple[Tensor, Change | None]:
    """The logits at each token, (length, vocabulary)."""
    context = change(language.model, edits) if edits else nullcontext()
    with torch.no_grad(), layers_told(language.model, task), context as edited:
        output = language.run(ids, source)
    logits = logits_of(output)[0]
    if len(logits) != len(ids):
        raise PromptError(f"the model returned {len(logits)} rows of logits for {len(ids)} tokens")
    return logits, edited
