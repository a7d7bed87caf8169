"""The runs that pages have open: the scene of each, under an id that cannot be guessed."""

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from regard.explorer import translating
from regard.explorer.contract import Attention, Scene
from regard.explorer.numbers import Arithmetic
from regard.explorer.server.models import Models
from regard.explorer.tiles import Tiles
from regard.serving.errors import Refused
from regard.translation.results import Translation
from regard.watching.change import Edits

KEPT = 64
PYRAMIDS = 3  # heads whose tiles are kept, over all runs: each of up to 300 MB


@dataclass(frozen=True, eq=False)
class Run:
    """A scene whose looks can be asked; of a translation also the name of its model, and itself."""

    scene: Scene
    model: str = ""
    translation: Translation | None = None
    edits: Mapping[str, Edits] = field(default_factory=dict)
    _numbers: list[Arithmetic] = field(default_factory=list)

    def attention(self, name: str) -> Attention:
        for attention in self.scene.attentions:
            if attention.name == name:
                return attention
        raise Refused(404, "attention: this run has none of this name")

    def arithmetic(self, models: Models) -> Arithmetic:
        """The numbers of this translation's pass, which is run again when they are first asked for."""
        if self.translation is None:
            raise Refused(400, "run: this run is not a translation")
        if not self._numbers:
            translator = models.open(self.model)
            self._numbers.append(translating.arithmetic(translator, self.translation, self.edits))
        return self._numbers[0]


class Runs:
    """The last runs. An old one is dropped; its page asks anew."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._tiles: OrderedDict[tuple[Attention, int], Tiles] = OrderedDict()

    def add(self, run: Run) -> str:
        """Keep a run; returns its id."""
        name = secrets.token_urlsafe(16)
        self._runs[name] = run
        while len(self._runs) > KEPT:
            self._runs.popitem(last=False)
        return name

    def __getitem__(self, name: str) -> Run:
        if name not in self._runs:
            raise Refused(410, "this run is no longer kept: reload the page")
        self._runs.move_to_end(name)
        return self._runs[name]

    def tiles(self, attention: Attention, head: int) -> Tiles:
        """The tiles of a head, or of the mean of the heads (-1)."""
        at = (attention, head)
        if at not in self._tiles:
            look = attention.look
            if len(look.shape) == 3:
                look = look.mean_heads() if head < 0 else look[head]
            self._tiles[at] = Tiles(look)
        self._tiles.move_to_end(at)
        while len(self._tiles) > PYRAMIDS:
            self._tiles.popitem(last=False)
        return self._tiles[at]
