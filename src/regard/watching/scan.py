"""Runs of a model with one unit after another edited: in batches, and from the lowest layer that changes."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from regard.watching.change import OnWeights, change
from regard.watching.edits import Edit
from regard.watching.effect_table import Effect, EffectTable
from regard.watching.gradients import of_entries
from regard.watching.inputs import ModelInputs, copy_of, leaves
from regard.watching.metrics import Metric
from regard.watching.paths import Layers, exactly
from regard.watching.replay import Blocks
from regard.watching.units import Attention, Of, OfCopies, Unit, attentions_of, units_of
from regard.watching.watch import watch

Progress = Callable[[int, int], None]
ROOM, ROOM_ON_DEVICE = 512, 8192  # tokens of a batch
CLOSE = 1e-4  # relative, of outputs of passes that should be the same
TOLD = 2.0  # seconds; a shorter scan is not announced


class Scan:
    """The runs of a model with one unit after another edited."""

    def __init__(
        self,
        model: nn.Module,
        inputs: ModelInputs,
        metric: Callable[[Any], Any],
        of: Of,
        edit: Edit | OnWeights,
        layers: Layers = None,
        batch: int | None = None,
        progress: bool | Progress = False,
    ) -> None:
        if isinstance(metric, Metric) and metric.reads_last:
            inputs = inputs.of_last_logits(model)
        self.model, self.inputs, self.of, self.edit = model, inputs, of, edit
        self.metric, self.layers, self._batch, self._progress = metric, layers, batch, progress
        self._passes = 0

    @torch.no_grad()
    def prepare(self) -> None:
        """Run the model without edits: the metric, the units, and how many of them go into a batch."""
        with watch(self.model, layers=self.layers, values=True) as run:
            self._pass()
        attentions = attentions_of(run)
        self._of_outputs = isinstance(self.edit, Edit) and (
            self.edit.edits_outputs
            or (
                self.edit.is_of_readings
                and self.of != "keys"
                and all(run.parts(each.name).value is not None for each in attentions)
            )
        )
        del run  # its queries, keys and values are not needed any more
        self.units = units_of(attentions, self.of)
        self._paths = [each.path for each in attentions]
        self._blocks = Blocks(self.model, self._paths)
        start = monotonic()
        with self._blocks.recorded():
            output = self._pass()
        self._seconds = monotonic() - start
        self._metric: Any = getattr(self.metric, "beside", lambda _: self.metric)(output)
        self.base = self._number(output)
        copies, self._reuses = self._room(attentions, self.units, output)
        self.groups = [self.units[at : at + copies] for at in range(0, len(self.units), copies)]

    @torch.no_grad()
    def group(self, number: int) -> list[Effect]:
        """The effects of the units of one batch."""
        group = self.groups[number]
        numbers = self._metrics(group, self._reuses)
        return [unit.row(each - self.base) for unit, each in zip(group, numbers, strict=True)]

    def run(self) -> EffectTable:
        """The effects, or those of the units before an interruption."""
        self.prepare()
        rows: list[Effect] = []
        total = len(self.units)
        share = 0.5 if self._reuses and self.of != "keys" else 1.0
        seconds = self._seconds * total * share
        tell = _Telling(self._progress, total, self.of, len(self.groups), seconds)
        try:
            for number in range(len(self.groups)):
                rows += self.group(number)
                tell(len(rows))
        except KeyboardInterrupt:
            if not rows:
                raise
        tell.end(len(rows))
        return EffectTable(
            tuple(rows), self.of, self.base, "run", total, self._passes, self._reuses
        )

    def _pass(self, copies: int = 1) -> Any:
        self._passes += 1
        return self.inputs.run(self.model, copies)

    def _room(
        self, attentions: list[Attention], units: list[Unit], unedited: Any
    ) -> tuple[int, bool]:
        """How many copies run in a batch, and whether layers are reused: what a pass without edits allows."""
        entries = self.inputs.entries
        alike = entries and all(
            len(each.shape) > 2 and each.shape[0] == entries for each in attentions
        )
        tokens = max(1, entries) * max((max(each.shape[-2:]) for each in attentions), default=1)
        device = next((each.device.type for each in self.model.parameters()), "cpu")
        room = (ROOM if device == "cpu" else ROOM_ON_DEVICE) // tokens
        largest = (
            min(max(1, room if self._batch is None else self._batch), len(units)) if alike else 1
        )
        reusable = self._blocks.objection is None and self.of != "keys"
        for copies, reuses in ((largest, reusable), (largest, False), (1, reusable)):
            if (copies, reuses) != (1, False) and self._agrees(copies, reuses, unedited):
                return copies, reuses
        return 1, False

    def _agrees(self, copies: int, reuses: bool, unedited: Any) -> bool:
        """Whether each copy has the output of a pass alone, or its metric where the output holds no tensors."""
        try:
            blocks = self._blocks.below(self._paths[-1:]) if reuses else []
            # The last attention runs in any case. It refuses copies that are not its batch entries.
            edits: dict[str, Edit] = {self._paths[-1]: self._of_copies({}, copies)}
            outputs = list(self._outputs(edits, blocks, copies))
        except Exception:  # such as of layers that read the cache of another layer
            return False
        expected = leaves(unedited) or [torch.tensor(self._number(unedited))]
        return all(
            _are_close(leaves(output) or [torch.tensor(self._number(output))], expected)
            for output in outputs
        )

    def _number(self, output: Any) -> float:
        """The mean of the metric over the batch entries."""
        return float(of_entries(self._metric(output)).double().mean())

    def _of_copies(self, units: Mapping[int, Unit], copies: int) -> OfCopies:
        return OfCopies(self.edit, units, copies, self.inputs.entries, self._of_outputs)

    def _metrics(self, group: list[Unit], reuses: bool) -> list[float]:
        edits: dict[str, Edit] = {}
        copies = len(group)
        if group[0].attention is None:
            of_copies = self._of_copies(dict(enumerate(group)), copies)
            edits = dict.fromkeys(self._paths, of_copies)
        else:
            placed = enumerate(group)
            for path, members in groupby(placed, lambda pair: pair[1].attention.path):  # type: ignore[union-attr]
                edits[path] = self._of_copies(dict(members), copies)
        blocks = self._blocks.below(edits) if reuses else []
        return [self._number(output) for output in self._outputs(edits, blocks, copies)]

    def _outputs(self, edits: dict[str, Edit], blocks: list[str], copies: int) -> Iterator[Any]:
        """The output of each copy."""
        entries = self.inputs.entries
        with ExitStack() as stack:
            stack.enter_context(self._blocks.replayed(blocks, entries, copies))
            stack.enter_context(
                change(self.model, {exactly(path): edit for path, edit in edits.items()})
            )
            output = self._pass(copies)
        return (copy_of(output, number, copies, entries) for number in range(copies))


def _are_close(tensors: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Whether tensors are the same but for rounding, which grows with their largest number."""
    if [each.shape for each in tensors] != [each.shape for each in expected]:
        return False
    for computed, reference in zip(tensors, expected, strict=True):
        size = float(reference.abs().nan_to_num(posinf=0.0).max()) if reference.numel() else 0.0
        bound = max(CLOSE, 4 * torch.finfo(reference.dtype).eps) * size
        if not torch.allclose(computed, reference, rtol=0.0, atol=bound, equal_nan=True):
            return False
    return True


class _Telling:
    """Tells how many passes there are and what time they take, and then how many are done."""

    def __init__(
        self, progress: bool | Progress, total: int, of: str, passes: int, seconds: float
    ) -> None:
        self._call = progress if callable(progress) else None
        self._total, self._writes = total, progress is True and seconds > TOLD
        if self._writes:
            text = f"{total} {of} in {passes} passes: about {max(1, round(seconds))} s or less"
            print(text, file=sys.stderr, flush=True)

    def __call__(self, finished: int) -> None:
        if self._call is not None:
            self._call(finished, self._total)
        elif self._writes and sys.stderr.isatty():
            print(f"\r{finished} of {self._total}", end="", file=sys.stderr, flush=True)

    def end(self, finished: int) -> None:
        if self._writes and sys.stderr.isatty():
            print(file=sys.stderr)
        if finished < self._total:
            print(f"interrupted: {finished} of {self._total} are done", file=sys.stderr)
