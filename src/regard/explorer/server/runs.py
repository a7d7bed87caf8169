"""The runs that pages have open: the scene of each, under an id that cannot be guessed."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass

from regard.explorer.contract import Attention, Scene
from regard.explorer.server.errors import Refused

KEPT = 64


@dataclass(frozen=True, eq=False)
class Run:
    """A scene whose looks can be asked, and the name of its model; "" if it is not a translator's."""

    scene: Scene
    model: str = ""

    def attention(self, name: str) -> Attention:
        for one in self.scene.attentions:
            if one.name == name:
                return one
        raise Refused(404, "attention: this run has none of this name")


class Runs:
    """The last runs. An old one is dropped; its page asks anew."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Run] = OrderedDict()

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
