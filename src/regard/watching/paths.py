"""Paths of the modules of a model, including modules that torch does not register."""

from __future__ import annotations

from torch import nn

from regard.watching.running import RunningModule, Stack


class Paths:
    """`named_modules()` of a model, extended by modules that run in it without being registered.

    torch does not register the layers of a Keras functional model, nor modules in an ordinary list
    or dictionary. Such a module is named after the attribute that holds it ("blocks.0"), else after
    its own `name`, else after its class and its number among the calls of that class.
    """

    def __init__(self, model: nn.Module) -> None:
        self._registered: dict[int, str] = {
            id(module): path for path, module in model.named_modules()
        }

    def of(self, stack: Stack) -> str | None:
        """The path of the innermost running module, None if it does not run inside the model."""
        if not stack:
            return None
        frame = stack[-1]
        known = self._registered.get(id(frame.module))
        if known is not None:
            return known
        outer = self.of(stack[:-1])
        if outer is None:
            return None
        name = _name(frame, stack[-2].module)
        return f"{outer}.{name}" if outer else name


def _name(frame: RunningModule, owner: nn.Module) -> str:
    for name, value in vars(owner).items():
        if name.startswith("_"):
            continue
        if value is frame.module:
            return name
        if isinstance(value, list | tuple):
            value = dict(enumerate(value))
        for key, each in value.items() if isinstance(value, dict) else ():
            if each is frame.module:
                return f"{name}.{key}"
    own = getattr(frame.module, "name", None)
    if isinstance(own, str) and own:
        return own
    return f"{type(frame.module).__name__}_{frame.number}"
