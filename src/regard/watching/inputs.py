"""The inputs of a model, several copies of them in one batch, and the output of each copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

from torch import Tensor, nn


def mapped(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same tuple, list or mapping with its tensors changed; other objects are kept."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        members = {name: mapped(member, change) for name, member in tree.items()}
        return members if type(tree) is dict else type(tree)(**members)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(member, change) for member in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(mapped(member, change) for member in tree)
    return tree


def leaves(tree: Any) -> list[Tensor]:
    """The tensors of real numbers in a tuple, list or mapping."""
    tensors: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point() and not tensor.is_nested:
            tensors.append(tensor)
        return tensor

    mapped(tree, note)
    return tensors


def repeated(tree: Any, entries: int, copies: int) -> Any:
    """Several copies of each tensor of a batch, one after another along its first axis."""
    return mapped(
        tree,
        lambda tensor: (
            tensor.repeat(copies, *[1] * (tensor.ndim - 1))
            if copies > 1 and tensor.ndim and len(tensor) == entries
            else tensor
        ),
    )


def copy_of(output: Any, number: int, copies: int, entries: int) -> Any:
    """The output of one copy."""
    if copies == 1:
        return output
    return mapped(
        output,
        lambda tensor: (
            tensor[number * entries : (number + 1) * entries]
            if tensor.ndim and len(tensor) == copies * entries
            else tensor
        ),
    )


LAST_LOGITS = "logits_to_keep"  # an argument of language models of transformers


@dataclass(frozen=True)
class ModelInputs:
    """A tensor, a tuple, a mapping of arguments, or a function that runs the model."""

    inputs: Any
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """The number of batch entries; 0 if the tensors do not tell."""
        sizes: set[int] = set()
        if not self._is_function:
            tree = dict(self.inputs) if isinstance(self.inputs, Mapping) else self.inputs

            def note(tensor: Tensor) -> Tensor:
                sizes.add(len(tensor) if tensor.ndim else 0)
                return tensor

            mapped(tree, note)
        return sizes.pop() if len(sizes) == 1 else 0

    @property
    def _is_function(self) -> bool:
        return callable(self.inputs) and not isinstance(self.inputs, Tensor | Mapping)

    def without_inference(self) -> ModelInputs:
        """The same, with tensors of inference mode copied, so that they can be in a graph."""
        if self._is_function:
            return self
        inputs = mapped(self.inputs, lambda each: each.clone() if each.is_inference() else each)
        return replace(self, inputs=inputs)

    def of_last_logits(self, model: nn.Module) -> ModelInputs:
        """The same; a model of Hugging Face then computes the logits of the last token alone."""
        names = self.inputs if isinstance(self.inputs, Mapping) else ()
        if (
            self._is_function
            or LAST_LOGITS not in signature(model.forward).parameters
            or any(name in names for name in (LAST_LOGITS, "labels"))
        ):
            return self
        return replace(self, options={LAST_LOGITS: 1})

    def run(self, model: nn.Module, copies: int = 1) -> Any:
        """The output of the model for several copies of the batch."""
        if self._is_function:
            return self.inputs(model)
        if isinstance(self.inputs, Mapping):
            return model(**repeated(dict(self.inputs), self.entries, copies), **self.options)
        arguments = self.inputs if isinstance(self.inputs, tuple) else (self.inputs,)
        return model(*repeated(arguments, self.entries, copies), **self.options)
