"""`regard.effects(model, inputs, metric)`: the effect of each head, layer or key on a metric of the output."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from time import monotonic
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.by_name import not_callable
from regard.watching.change import OnWeights, change
from regard.watching.edits import Edit, Scale
from regard.watching.effect_table import Effect, EffectTable
from regard.watching.errors import WatchError
from regard.watching.gradients import of_entries, output_gradients
from regard.watching.inputs import ModelInputs, copy_of, leaves
from regard.watching.metrics import Divergence
from regard.watching.paths import Layers
from regard.watching.replay import Blocks
from regard.watching.seen import Seen
from regard.watching.watch import watch

Of = Literal["heads", "layers", "keys"]
Method = Literal["run", "gradient"]
Progress = Callable[[int, int], None]
ROOM, ROOM_ON_DEVICE = 512, 8192  # tokens of a batch
CLOSE = 1e-4  # relative, of outputs of passes that should be the same
TOLD = 2.0  # seconds; a shorter scan is not announced


def effects(
    model: nn.Module,
    inputs: Any,
    metric: Callable[[Any], Any],
    of: Of = "heads",
    edit: Edit | OnWeights | None = None,
    method: Method = "run",
    *,
    layers: Layers = None,
    batch: int | None = None,
    progress: bool | Progress = True,
    agreement: bool = False,
) -> EffectTable:
    """The effect of each head, layer or key on a metric: with its attention edited, minus without.

    With `method="run"` the model runs once for each of them, several in one batch, and the layers
    below an edit are computed once where a test run shows that nothing else changes. The number of
    passes and their estimated time are written to stderr before. An interruption returns the rows
    that are done. With `method="gradient"` all are estimated from one forward and one backward
    pass: attribution patching (Kramár et al. 2024, arXiv 2403.00745, equation 3).

    Args:
        model: any module that can be watched, in evaluation mode.
        inputs: a tensor, a tuple, a mapping of arguments, or a function that runs the model.
        metric: a function of the model's output, one of `regard.metrics` or your own, which returns
            one number, or one for each batch entry, of which the mean counts.
        of: "heads", "layers" (all heads of an attention), or "keys" (what all attentions read from
            one position).
        edit: of `regard.edits`, or a function of weights; `Scale(0.0)` by default, which switches off.
        method: "run" or "gradient".
        layers: the attentions to edit, as for `regard.watch`; None for all.
        batch: how many edits run in one batch; by default as many as make 512 tokens, or 8,192 on a device.
        progress: whether to write to stderr, or a function of the edits done and those there are.
        agreement: estimate by the gradient and run as well: each row has both effects.

    Returns:
        An `EffectTable`: rows, `sorted()`, `array()`, `plot()`.

    Raises:
        WatchError: no attention was seen, or the metric returns no number.

    Example:
        >>> import torch, regard
        >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
        >>> x = torch.randn(1, 5, 8)
        >>> table = regard.effects(model, (x, x, x), lambda output: output[0].norm())
        >>> [row.label for row in table]
        ['0.0', '0.1']
    """
    _check(model, metric, of, edit, method)
    edit = Scale(0.0) if edit is None else edit
    scan = Scan(model, ModelInputs(inputs), metric, of, edit, layers, batch, progress)
    if agreement:
        return _with_runs(estimated(scan), scan.run())
    return scan.run() if method == "run" else estimated(scan)


def _check(model: Any, metric: Any, of: Any, edit: Any, method: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: pass the torch.nn.Module")
    if not callable(metric):
        raise not_callable("metric", metric, "one of regard.metrics, or a function of the output")
    if of not in ("heads", "layers", "keys"):
        raise ValueError(f'of is {of!r}: pass "heads", "layers" or "keys"')
    if method not in ("run", "gradient"):
        raise ValueError(f'method is {method!r}: pass "run" or "gradient"')
    if edit is not None and (isinstance(edit, type) or not callable(edit)):
        raise not_callable("edit", edit, "one of regard.edits, or a function of weights")
    if of == "keys" and isinstance(edit, Edit) and edit.edits_outputs:
        raise ValueError(
            'edit is of the outputs of heads, which have no keys: pass replaces="weights"'
        )
    if model.training:
        text = "the model is in training mode, so that dropout may change the effects: call model.eval()"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


class Attention(NamedTuple):
    """An attention of the model."""

    name: str
    path: str
    layer: int
    heads: int
    shape: tuple[int, ...]  # of the look


class Unit(NamedTuple):
    """A head, a layer or a key that is edited; None for all of them."""

    attention: Attention | None = None
    head: int | None = None
    key: int | None = None

    def row(self, effect: float) -> Effect:
        name, layer = (
            ("", None) if self.attention is None else (self.attention.name, self.attention.layer)
        )
        return Effect(name, layer, self.head, self.key, effect)

    def placed(self, edited: Tensor, plane: Tensor) -> Tensor:
        """The plane of weights or outputs with this unit edited."""
        if self.head is None and self.key is None:
            return edited
        index = (..., self.head, slice(None), slice(None)) if self.key is None else (..., self.key)
        plane = plane.clone()
        plane[index] = edited[index]
        return plane


@dataclass(frozen=True, eq=False)
class OfCopies(Edit):
    """An edit of another unit in each copy of a batch."""

    edit: Edit | OnWeights
    units: Mapping[int, Unit]  # by the number of the copy
    copies: int
    entries: int  # of the batch, in each copy

    @property
    def edits_outputs(self) -> bool:
        return isinstance(self.edit, Edit) and self.edit.edits_outputs

    def bound(self, names: Sequence[str]) -> OfCopies:
        return replace(self, edit=self.edit.bound(names)) if isinstance(self.edit, Edit) else self

    def of(self, weights: Tensor, start: int) -> Tensor:
        if self.copies > 1 and len(weights) != self.copies * self.entries:
            raise WatchError(
                f"an attention has {len(weights)} batch entries, and the model {self.entries} in each of"
                f" {self.copies} copies: pass batch=1"
            )
        planes = list(weights.chunk(self.copies))
        for number, unit in self.units.items():
            plane = planes[number]
            edited = self.edit(plane, start) if isinstance(self.edit, Edit) else self.edit(plane)
            planes[number] = unit.placed(edited, plane)
        return torch.cat(planes)


def attentions_of(seen: Seen) -> list[Attention]:
    """The attentions of a run. One that its module computes second is edited with the first."""
    attentions: list[Attention] = []
    for name in seen:
        look, path = seen[name], seen.path(name)
        if "#" not in path:
            heads = look.shape[-3] if look.caption.headed else 1
            attentions.append(Attention(name, path, len(attentions), heads, look.shape))
    return attentions


def units_of(attentions: Sequence[Attention], of: Of) -> list[Unit]:
    """Every head, layer or key.

    Raises:
        WatchError: the attentions have other numbers of keys, so that a key has no one meaning.
    """
    if of == "layers":
        return [Unit(each) for each in attentions]
    if of == "heads":
        return [Unit(each, head) for each in attentions for head in range(each.heads)]
    lengths = {each.shape[-1] for each in attentions}
    if len(lengths) > 1:
        raise WatchError(
            f"the attentions have {' and '.join(map(str, sorted(lengths)))} keys: choose those of one"
            ' sequence, such as layers="encoder.*"'
        )
    return [Unit(key=key) for key in range(max(lengths, default=0))]


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
        self.model, self.inputs, self.of, self.edit = model, inputs, of, edit
        self.metric, self.layers, self._batch, self._progress = metric, layers, batch, progress
        self._passes = 0

    @torch.no_grad()
    def prepare(self) -> None:
        """Run the model without edits: the metric, the units, and how many of them go into a batch."""
        with watch(self.model, layers=self.layers) as seen:
            self._pass()
        attentions = attentions_of(seen)
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
            blocks = self._blocks.below_last() if reuses else []
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
        return OfCopies(self.edit, units, copies, self.inputs.entries)

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
            stack.enter_context(change(self.model, edits))
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


def estimated(scan: Scan) -> EffectTable:
    """The gradient of the metric at each output of a head, times its change."""
    if isinstance(scan.metric, Divergence):
        raise WatchError(
            "the divergence from the unedited output has a gradient of 0 there, so that it cannot be estimated:"
            ' use method="run"'
        )
    backward = output_gradients(scan.model, scan.inputs, scan.metric, scan.layers)
    rows: list[Effect] = []
    attentions = attentions_of(backward.seen)
    units = units_of(attentions, scan.of)
    by_key: Tensor | float = 0.0
    with torch.no_grad():
        for attention in attentions:
            weights, gradient = backward.weights(attention.name), backward.by_name[attention.name]
            edit = scan.edit
            if isinstance(edit, Edit):
                edit = edit.bound([attention.path, attention.name])
            if isinstance(edit, Edit) and edit.edits_outputs:
                outputs = weights @ backward.values(attention.name)
                changes = (edit(outputs) - outputs) * gradient
            else:
                changes = (edit(weights) - weights) * backward.of_weights(attention.name)
            by_head = changes.sum((*range(changes.ndim - 3), -2, -1))
            if scan.of == "heads":
                rows += [
                    Unit(attention, head).row(float(by_head[head]))
                    for head in range(attention.heads)
                ]
            elif scan.of == "layers":
                rows.append(Unit(attention).row(float(by_head.sum())))
            else:
                by_key = by_key + changes.sum(tuple(range(changes.ndim - 1)))
    if isinstance(by_key, Tensor):
        rows = [unit.row(float(effect)) for unit, effect in zip(units, by_key, strict=True)]
    return EffectTable(tuple(rows), scan.of, backward.metric, "gradient", len(units), 1)


def _with_runs(estimates: EffectTable, runs: EffectTable) -> EffectTable:
    """The estimates with the effects of the runs beside them."""
    pairs: Iterator[tuple[Effect, Effect]] = zip(estimates, runs, strict=False)
    rows = [replace(estimate, run=run.effect) for estimate, run in pairs]
    return replace(estimates, effects=tuple(rows), passes=runs.passes, reused=runs.reused)
