"""The models that a server was started with, and their checkpoints, opened when they are first asked for."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from regard.serving.errors import Refused
from regard.translation.opening import find
from regard.translation.runs import Run
from regard.translation.runs.layout import CHECKPOINTS, MODEL, checkpoints
from regard.translation.translator import Translator

KEPT = 4  # open models beyond those named


class Models:
    """Translators by name. No request can name another model or a path.

    `folders` holds a bundled model's name or a run folder for each name, `memory` the memory that these read.

    The checkpoints of a run are models as well: "reverse@step-300" is one of the run "reverse".
    """

    def __init__(
        self,
        folders: Mapping[str, str | Path],
        device: str = "cpu",
        memory: str | Path | None = None,
    ) -> None:
        self._folders, self._device, self._memory = dict(folders), device, memory
        # Those of models that are broken, or not trained yet, are asked for again.
        self.open = lru_cache(len(self._folders) + KEPT)(self._translator)

    @property
    def names(self) -> list[str]:
        """The models and, after each, the checkpoints that it has now, the newest last."""
        return [name for own in self._folders for name in (own, *self._checkpoints(own))]

    @property
    def trains(self) -> bool:
        """Whether one of them is a run that has, or may get, checkpoints."""
        folders = [find(folder) for folder in self._folders.values()]
        return any((each / CHECKPOINTS).is_dir() or not (each / MODEL).exists() for each in folders)

    def exact(self, name: str) -> str:
        """The name of the weights to open: for a run without final weights, its newest checkpoint."""
        if name in self._folders and not (find(self._folders[name]) / MODEL).exists():
            return next(reversed(self._checkpoints(name)), name)
        return name

    def _checkpoints(self, name: str) -> dict[str, Path]:
        named_folders = checkpoints(find(self._folders[name]))
        return {f"{name}@{folder.name}": folder for _, folder in named_folders}

    def _translator(self, name: str) -> Translator:
        """The translator of this name; `open` keeps those of the last requests.

        Raises:
            Refused: there is none.
            ModelError: it is broken, or nothing is trained yet.
        """
        if name in self._folders:
            translator = Translator.open(self._folders[name], self._device)
            if self._memory is not None:
                translator.read_memory(self._memory)
            return translator
        run_name = name.rpartition("@")[0]
        checkpoint = self._checkpoints(run_name).get(name) if run_name in self._folders else None
        if checkpoint is None:
            names = ", ".join(self.names)
            raise Refused(404, f"model: there is none of this name; there are {names}")
        run = Run.open(find(self._folders[run_name]))
        tokenizers = run.directed(run.tokenizers(), None)
        model = run.checkpoint_model(checkpoint, tokenizers).to(self._device)
        return Translator(run, model, tokenizers)
