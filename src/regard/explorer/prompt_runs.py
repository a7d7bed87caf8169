"""Runs of a language model on a prompt: its predictions, every attention, with or without edits, and heads' effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.looks import StoredLook
from regard.explorer.contract import Attention, Scene
from regard.explorer.prompting import LanguageModel, PromptError, Task, layers_told, no_task
from regard.watching import Seen, change, watch
from regard.watching.change import Change
from regard.watching.edits import Edit, From, Scale
from regard.watching.effect_table import Effect
from regard.watching.effects import estimated
from regard.watching.errors import WatchError
from regard.watching.metrics import Difference, LogProbability, Metric, logits_of
from regard.watching.scan import Scan
from regard.watching.spelling import spelled

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


class Effects:
    """The effects of all heads on the log-probability of a token, or the difference of the logits of two.

    Args:
        reading: a run without edits.
        minus: the other token, or None.
        place: after which they may follow.
        edit: of each head; it is switched off if there is none.
    """

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
