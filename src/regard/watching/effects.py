"""`regard.effects(model, inputs, metric)`: the effect of each head, layer or key on a metric of the output."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.attention.by_name import not_callable
from regard.watching.change import OnWeights
from regard.watching.edits import Edit, Scale
from regard.watching.effect_table import Effect, EffectTable
from regard.watching.errors import WatchError
from regard.watching.gradients import output_gradients
from regard.watching.inputs import ModelInputs
from regard.watching.metrics import Divergence
from regard.watching.paths import Layers
from regard.watching.scan import Progress, Scan
from regard.watching.units import Of, Unit, attentions_of, units_of

Method = Literal["run", "gradient"]


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
