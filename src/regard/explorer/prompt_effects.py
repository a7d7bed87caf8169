"""The effects of heads on what a language model predicts in a run."""

from __future__ import annotations

from regard.explorer.prompt_runs import Reading
from regard.explorer.prompting import PromptError, layers_told
from regard.explorer.targets import Task
from regard.watching.edits import Edit, Scale
from regard.watching.effect_table import Effect
from regard.watching.effects import estimated
from regard.watching.errors import WatchError
from regard.watching.metrics import Difference, LogProbability, Metric
from regard.watching.scan import Scan


class Effects:
    """The effects of all heads on the log-probability of a token, or the difference of the logits of two.

    Args:
        reading: a run without edits.
        token: the token.
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
