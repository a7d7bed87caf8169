"""Models that take time to open: a thread opens them, and the page says so until they are there."""

from collections.abc import Callable, Sequence
from threading import Thread
from time import monotonic
from typing import NamedTuple

from regard.explorer import page
from regard.explorer.contract import Scene
from regard.explorer.prompting import LanguageModel


class Opened(NamedTuple):
    """What a model is shown as: it reads prompts, or it has run once."""

    language: LanguageModel | None = None
    scene: Scene | None = None


class Opening:
    """Models that a thread opens, one after another.

    Args:
        names: of the models, in order.
        end: called with everything that was opened; its errors are kept like those of `open_model`.
    """

    def __init__(
        self,
        names: Sequence[str],
        open_model: Callable[[str], Opened],
        end: Callable[[list[Opened]], None],
    ) -> None:
        self._names, self._open, self._end = names, open_model, end
        self._opened: list[Opened] = []
        self._start = monotonic()
        self.fault: BaseException | None = None
        self.done = not names

    def begin(self, stop: Callable[[], None]) -> None:
        """Open them in a thread, and call `stop` if one cannot be opened: then `fault` says why."""

        def work() -> None:
            try:
                for name in self._names:
                    self._opened.append(self._open(name))
                self._end(self._opened)
                self.done = True
            except BaseException as fault:
                self.fault = fault
                stop()

        if not self.done:
            # A daemon, because a model that is being opened cannot be interrupted, and Ctrl-C has to end the server.
            Thread(target=work, name="opening", daemon=True).start()

    def page(self) -> str:
        """The page while the models are opened."""
        number, seconds = min(len(self._opened), len(self._names) - 1), monotonic() - self._start
        return page.opening(
            f"Regard opens {self._names[number]} (model {number + 1} of {len(self._names)}, {int(seconds)} s so far). "
            "The explorer appears here when it is ready."
        )
