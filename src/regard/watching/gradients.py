"""The gradient of a metric at the output of every head, from one forward and one backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.watching.change import change
from regard.watching.edits import Edit
from regard.watching.errors import WatchError
from regard.watching.inputs import ModelInputs
from regard.watching.paths import Layers
from regard.watching.seen import Seen
from regard.watching.watch import watch


@dataclass(frozen=True, eq=False)
class Shifted(Edit):
    """Add zeros to the outputs of heads, of which a backward pass gives the gradient."""

    shifts: dict[str, list[Tensor]]  # by path
    path: str = ""

    @property
    def edits_outputs(self) -> bool:
        return True

    def bound(self, names: Sequence[str]) -> Shifted:
        return replace(self, path=names[0])

    def of(self, weights: Tensor, start: int) -> Tensor:
        shift = torch.zeros_like(weights, requires_grad=True)
        self.shifts.setdefault(self.path, []).append(shift)
        return weights + shift


@dataclass(frozen=True)
class OutputGradients:
    """The attentions of a pass, the gradient at the output of each, and the metric."""

    seen: Seen
    by_name: dict[str, Float[Tensor, "*batch heads queries d_value"]]
    metric: float

    def weights(self, name: str) -> Float[Tensor, "*batch heads queries keys"]:
        weights = self.seen[name].weights()
        return weights if weights.ndim > 3 else weights.unsqueeze(-3)

    def values(self, name: str) -> Float[Tensor, "*batch heads keys d_value"]:
        values = self.seen.parts(name).values()
        return values if values.ndim > 3 else values.unsqueeze(-3)

    def of_weights(self, name: str) -> Float[Tensor, "*batch heads queries keys"]:
        """The gradient of the metric in each weight."""
        return self.by_name[name] @ self.values(name).mT


def output_gradients(
    model: nn.Module, inputs: ModelInputs, metric: Any, layers: Layers, *, frozen: bool = False
) -> OutputGradients:
    """The gradients of a metric. `frozen` weights pass none on to queries and keys.

    Raises:
        WatchError: the metric has no gradient, or an attention ran more than once.
    """
    shifts: dict[str, list[Tensor]] = {}
    edits: list[Any] = [Tensor.detach] * frozen + [Shifted(shifts)]
    if any(each.is_inference() for each in model.parameters()):
        raise WatchError(
            "the model was made under torch.inference_mode, so that it has no gradients: make it outside, or"
            ' use method="run"'
        )
    with torch.inference_mode(False), torch.enable_grad():
        try:
            with watch(model, layers=layers, values=True) as attentions:
                with change(model, {"*": edits}):
                    output = inputs.without_inference().run(model)
                value = of_entries(metric(output)).mean()
        except WatchError:
            len(attentions)  # where no attention was seen, this raises with the reasons
            raise
        paths = {name: attentions.path(name) for name in attentions}
        if any(
            len(shifts[path]) != 1 or len(attentions.steps(name)) != 1
            for name, path in paths.items()
        ):
            raise WatchError('an attention runs more than once in a pass: use method="run"')
        if not value.requires_grad:
            raise WatchError(
                "the metric has no gradient: return a tensor that is computed from the output of the"
                ' model, or use method="run"'
            )
        tensors = [shifts[path][0] for path in paths.values()]
        gradients = torch.autograd.grad(value, tensors, allow_unused=True)
    by_name = {
        name: torch.zeros_like(shift) if gradient is None else gradient
        for name, shift, gradient in zip(paths, tensors, gradients, strict=True)
    }
    return OutputGradients(attentions, by_name, float(value.detach()))


def of_entries(value: Any) -> Tensor:
    """The value of a metric as (entries,).

    Raises:
        WatchError: it is not a number, or a number for each batch entry.
    """
    if isinstance(value, bool | int | float):
        return torch.tensor([float(value)], dtype=torch.float64)
    if isinstance(value, Tensor) and value.ndim < 2 and value.numel():
        return value.reshape(-1)
    kind = (
        f"a tensor of shape {list(value.shape)}"
        if isinstance(value, Tensor)
        else f"a {type(value).__name__}"
    )
    raise WatchError(f"the metric returned {kind}: return one number, or one for each batch entry")
