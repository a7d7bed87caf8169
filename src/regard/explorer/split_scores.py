"""The score of a query with a key as a sum over pairs of summands of the residual stream, of any language model.

With the deviations of norms fixed, a query of a head is linear in the stream of its token, and a key in that of its
own (Elhage et al. 2021). The linear map is the derivative of the query in the input of its attention, so that
projections of any layout and rotations by positions are followed. A map that is not linear is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.explorer.direct import Direct, DirectError, Norm
from regard.watching import watch
from regard.watching.captured import CapturedCall, Selection

BIASES = "biases"
ROWS = 4  # on which a norm of queries or keys is tried


class _Computed(Exception):
    """The attention has run, and nothing above it is needed."""


@dataclass(frozen=True, eq=False)
class AttentionGraph:
    """One attention of a run, with the graph from its input to its queries and keys."""

    entered: Float[Tensor, "1 length width"]
    call: CapturedCall

    @classmethod
    def of(cls, model: nn.Module, run: Callable[[], Any], path: str) -> AttentionGraph:
        """Run the model up to an attention.

        Raises:
            DirectError: its input is not a vector for each token.
        """
        inputs: list[Tensor] = []

        def enter(_: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
            def freed(value: Any) -> Any:
                if inputs or not isinstance(value, Tensor) or value.ndim != 3:
                    return value
                inputs.append(value.detach().requires_grad_())
                return inputs[0]

            torch.set_grad_enabled(True)
            return tuple(map(freed, arguments)), {name: freed(x) for name, x in options.items()}

        def leave(*_: Any) -> None:
            raise _Computed

        attention = model.get_submodule(path)
        with torch.no_grad(), ExitStack() as stack:
            attentions = stack.enter_context(watch(model, layers=[path], gradients=True))
            stack.callback(attention.register_forward_hook(leave).remove)
            for module in attention.modules():
                stack.callback(module.register_forward_hook(_with_fixed_deviation).remove)
            hook = attention.register_forward_pre_hook(enter, with_kwargs=True)
            stack.callback(hook.remove)
            with suppress(_Computed):
                run()
        if not inputs or not len(attentions):
            raise DirectError("its input is not a vector for each token")
        return cls(inputs[0], attentions.parts(next(iter(attentions))))

    @torch.enable_grad()
    def split(
        self, side: str, head: int, place: int, summands: Float[Tensor, "summands width"]
    ) -> Float[Tensor, "summands_and_biases d_head"]:
        """What each summand of the input adds to the query or key of a head at a place, and what biases add.

        Raises:
            DirectError: they are not linear in it.
        """
        call = self.call.selected(Selection(heads=(head,), gradients=True))
        vector = getattr(call, side).reshape(-1, getattr(call, side).shape[-1])[place]
        rows = []
        for number in vector:
            (gradient,) = torch.autograd.grad(number, self.entered, retain_graph=True)
            rows.append(gradient[0, place])
        (total,) = torch.autograd.grad(vector.sum(), self.entered, create_graph=True)
        if total.requires_grad:
            (second,) = torch.autograd.grad(
                total.sum(), self.entered, retain_graph=True, allow_unused=True
            )
            if second is not None and bool(second.any()):
                raise DirectError(f"its {side} is not linear in the input of the attention")
        gradients = torch.stack(rows)
        # The bias of the norm before is one of them.
        biases = vector.detach() - gradients @ summands.sum(0)
        return torch.cat([summands @ gradients.mT, biases[None]])


def _with_fixed_deviation(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
    """The output of a norm of queries or keys as a product with a constant."""
    if not torch.is_grad_enabled():  # of a probe
        return None
    if "Norm" not in type(module).__name__ or not (inputs and isinstance(output, Tensor)):
        return None
    source = inputs[0]
    try:
        with torch.no_grad():
            norm = Norm.of(module, source.flatten(0, -2)[:ROWS])
    except (DirectError, RuntimeError):
        return None  # then the query is not linear, which is said
    if norm.centred or bool(norm.bias.any()):
        return None
    return source * (output / source).detach()


@dataclass(eq=False)
class ScoreSplits:
    """The splits of scores of one run; the attention that was asked for last is kept."""

    model: nn.Module
    run: Callable[[], Any]
    direct: Direct
    paths: dict[str, str]  # by the names of attentions
    _graph: tuple[str, AttentionGraph] | None = field(default=None, repr=False)

    def of(self, name: str, head: int, query: int, key: int) -> tuple[list[str], Tensor, Tensor]:
        """The names of the summands, and what each adds to the query and to the key of a head.

        Raises:
            DirectError: the reason why they cannot be split.
        """
        if self._graph is None or self._graph[0] != name:
            self._graph = name, AttentionGraph.of(self.model, self.run, self.paths[name])
        graph = self._graph[1]
        names = self.direct.names[: self.direct.names.index(name)]
        queries = graph.split("query", head, query, self.direct.entering(name, query))
        keys = graph.split("key", head, key, self.direct.entering(name, key))
        return [*names, BIASES], queries, keys
