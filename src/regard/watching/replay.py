"""The outputs of the blocks of a model, kept, so that the blocks below an edit need not run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from regard.watching.inputs import repeated


class Blocks:
    """The layers of a model: the modules in its outermost lists of modules, in the order in which they ran.

    Args:
        model: the model.
        paths: of attentions in it. The lists that hold them count, with all their layers.
    """

    def __init__(self, model: nn.Module, paths: Iterable[str]) -> None:
        self._of_path = {path: block_of(model, path) for path in paths}
        lists = dict.fromkeys(name.rpartition(".")[0] for name in self._of_path.values() if name)
        self._modules = {
            f"{path}.{number}": module
            for path in lists
            for number, module in model.get_submodule(path).named_children()
        }
        self._outputs: dict[str, Any] = {}
        self._calls: list[str] = []

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Keep the outputs of the blocks that run inside."""

        def note(name: str, output: Any) -> None:
            self._calls.append(name)
            self._outputs[name] = output

        handles = [
            module.register_forward_hook(lambda _, __, output, name=name: note(name, output))
            for name, module in self._modules.items()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @property
    def objection(self) -> str | None:
        """Why their outputs cannot stand for them, or None."""
        if len(self._modules) < 2:
            return "the model has no list of layers"
        if sorted(self._calls) != sorted(self._modules):
            return "a layer does not run once in a pass"
        if any("forward" in vars(module) for module in self._modules.values()):
            return "the forward of a layer was replaced"
        return None

    def below(self, paths: Iterable[str]) -> list[str]:
        """The blocks that ran before those of all these attentions."""
        numbers = [self._calls.index(name) if name else 0 for name in map(self._of_path.get, paths)]
        return self._calls[: min(numbers, default=0)]

    @contextmanager
    def replayed(self, names: Iterable[str], entries: int, copies: int) -> Iterator[None]:
        """Inside, these blocks return what they returned before, in several copies."""
        outputs = {name: repeated(self._outputs[name], entries, copies) for name in names}
        try:
            for name, output in outputs.items():
                vars(self._modules[name])["forward"] = lambda *_, output=output, **__: output
            yield
        finally:
            for name in outputs:
                vars(self._modules[name]).pop("forward", None)


def block_of(model: nn.Module, path: str) -> str | None:
    """The path of the member of the outermost list of modules that holds an attention."""
    steps = path.split("#")[0].split(".")
    module: Any = model
    for depth, step in enumerate(steps):
        if isinstance(module, nn.ModuleList):
            return ".".join(steps[: depth + 1])
        module = dict(module.named_children()).get(step)
        if module is None:
            return None
    return None
