"""The models that a server was started with, opened when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from regard.explorer.server.errors import Refused
from regard.translation.translator import Translator


class Models:
    """Translators by name. No request can name another model or a path.

    Args:
        folders: a name for each bundled model's name or run folder.
        device: where they run.
    """

    def __init__(self, folders: Mapping[str, str | Path], device: str = "cpu") -> None:
        self._folders, self._device = dict(folders), device
        self._open: dict[str, Translator] = {}

    @property
    def names(self) -> list[str]:
        return list(self._folders)

    def open(self, name: str) -> Translator:
        """The translator of this name.

        Raises:
            Refused: there is none.
        """
        if name not in self._folders:
            raise Refused(
                404, f"model: there is none of this name; there are {', '.join(self._folders)}"
            )
        if name not in self._open:
            self._open[name] = Translator.open(self._folders[name], self._device)
        return self._open[name]
