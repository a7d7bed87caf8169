"""The runs that pages have open: the scene of each, under an id that cannot be guessed."""

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from torch import Tensor

from regard.explorer import contract, translating
from regard.explorer.contract import Attention, Scene
from regard.explorer.direct import Direct, direct
from regard.explorer.numbers import Arithmetic
from regard.explorer.prompt_runs import Effects, FromPrompt, Reading, with_run
from regard.explorer.prompting import Task
from regard.explorer.server.models import Models
from regard.explorer.split_scores import ScoreSplits
from regard.explorer.tiles import Tiles
from regard.serving.errors import Refused
from regard.translation.results import Translation
from regard.watching.change import Edits

KEPT = 64
# Runs that are kept in any case; bytes of their pictures, queries, keys and values.
LEAST, BYTES = 3, 2 << 30
PYRAMIDS = 3  # heads whose tiles are kept, over all runs: each of up to 300 MB


@dataclass(eq=False)
class Prompt:
    """A run of a language model, and the prompt as it was typed."""

    reading: Reading
    text: str
    chat: bool
    _effects: dict[tuple[int, int | None, int, str], Effects] = field(default_factory=dict)

    @cached_property
    def direct(self) -> Direct | str:
        """The summands of its logits, or why there are none."""
        return direct(self.reading.language.model, self.reading.run_again, self.reading.seen)

    @cached_property
    def splits(self) -> ScoreSplits | str:
        """The splits of its scores by those summands, or why there are none."""
        split, reading = self.direct, self.reading
        if isinstance(split, str):
            return split
        paths = {name: reading.seen.path(name) for name in reading.seen}
        return ScoreSplits(reading.language.model, reading.run_again, split, paths)

    def effects(
        self, token: int, minus: int | None, place: int, other_text: str, task: Task
    ) -> Effects:
        """The effects of switching off each head, or of another prompt's heads; those of the last request are kept."""
        at = token, minus, place, other_text
        if at not in self._effects:
            reading, edit = self.reading, None
            if other_text:
                source = FromPrompt(other_text)
                edit = with_run(reading.language, source, reading.ids, task, self.chat)
            self._effects = {at: Effects(reading, token, minus, place, edit)}
        return self._effects[at]

    @property
    def nbytes(self) -> int:
        """The memory of its queries, keys, values and summands."""
        split = vars(self).get("direct")  # if they were computed
        return self.reading.nbytes + (split.nbytes if isinstance(split, Direct) else 0)


@dataclass(frozen=True, eq=False)
class Run:
    """A scene whose looks can be asked; of a translation also the name of its model, and itself."""

    scene: Scene
    model: str = ""
    translation: Translation | None = None
    edits: Mapping[str, Edits] = field(default_factory=dict)
    prompt: Prompt | None = None
    _numbers: list[Arithmetic] = field(default_factory=list)
    _pictures: dict[tuple[str, int, bool], Tensor] = field(default_factory=dict)
    _measured: dict[str, dict[str, Any]] = field(default_factory=dict)

    def attention(self, name: str) -> Attention:
        for attention in self.scene.attentions:
            if attention.name == name:
                return attention
        raise Refused(404, "attention: this run has none of this name")

    def picture(self, attention: Attention, head: int, exact: bool) -> Tensor:
        """The picture of a head, computed once."""
        at = (attention.name, head, exact)
        if at not in self._pictures and not exact and head >= 0:
            for number, picture in enumerate(contract.pictures(attention) or ()):
                self._pictures[attention.name, number, False] = picture
        if at not in self._pictures:
            self._pictures[at] = contract.picture(attention, head, exact)
        return self._pictures[at]

    def measured(self, attention: Attention) -> dict[str, Any]:
        """The measures of an attention, computed once."""
        if attention.name not in self._measured:
            self._measured[attention.name] = contract.measured(attention, self.scene)
        return self._measured[attention.name]

    @property
    def nbytes(self) -> int:
        """The memory of its pictures."""
        return sum(each.nbytes for each in self._pictures.values())

    def arithmetic(self, models: Models) -> Arithmetic:
        """The numbers of this pass; that of a translation is run again when they are first asked for."""
        if self.prompt is not None:
            prompt, reading = self.prompt, self.prompt.reading
            model, splits = reading.language.model, lambda: prompt.splits
            return Arithmetic(model, reading.seen, change=reading.edited, splits=splits)
        if self.translation is None:
            raise Refused(400, "run: this run has no model that could be run again")
        if not self._numbers:
            translator = models.open(self.model)
            self._numbers.append(translating.arithmetic(translator, self.translation, self.edits))
        return self._numbers[0]


class Runs:
    """The last runs. An old one is dropped; its page asks anew."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self.tiles = lru_cache(PYRAMIDS)(_tiles)

    def add(self, run: Run) -> str:
        """Keep a run; returns its id."""
        name = secrets.token_urlsafe(16)
        self._runs[name] = run
        while len(self._runs) > KEPT or (len(self._runs) > LEAST and self._bytes() > BYTES):
            self._runs.popitem(last=False)
        return name

    def _bytes(self) -> int:
        """The memory of pictures, and of the queries, keys and values of prompts, which several runs may share."""
        prompts = {id(run.prompt): run.prompt.nbytes for run in self._runs.values() if run.prompt}
        return sum(run.nbytes for run in self._runs.values()) + sum(prompts.values())

    def __getitem__(self, name: str) -> Run:
        if name not in self._runs:
            raise Refused(410, "this run is no longer kept: reload the page")
        self._runs.move_to_end(name)
        return self._runs[name]


def _tiles(attention: Attention, head: int) -> Tiles:
    """The tiles of a head, or of the mean of the heads (-1)."""
    return Tiles(contract.of_head(attention.look, head))
