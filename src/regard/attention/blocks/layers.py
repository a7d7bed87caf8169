"""The feed-forward layer, the norms, and how each sublayer is wrapped."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.by_name import named, unknown
from regard.attention.constants import flag, whole
from regard.attention.dropout import Dropout
from regard.attention.heads import Norm, new_norm
from regard.attention.layer_calls import call

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
EXAMPLE = 'a name, such as "gelu", or a function of a tensor, such as F.gelu'


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2, position by position (Vaswani et al. 2017, arXiv 1706.03762, equation 2).

    Gated it is W2 (f(W1 x + b1) * (W3 x + b3)) + b2 (Shazeer 2020, arXiv 2002.05202, equation 6).

    Args:
        width: Width of what comes in and goes out.
        inner: Width of the hidden layer.
        activation: f: "relu", "gelu", "gelu_tanh" or "silu", or a function of a tensor.
        gated: Whether the hidden layer is multiplied by W3 x + b3.
        bias: Whether there are b1, b2 and b3.

    Example:
        >>> import torch
        >>> FeedForward(4, 16)(torch.zeros(2, 3, 4)).shape
        torch.Size([2, 3, 4])
    """

    def __init__(
        self,
        width: int,
        inner: int,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        gated: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        width, inner = whole("width", width), whole("inner", inner)
        gated, bias = flag("gated", gated), flag("bias", bias)
        self.inner = nn.Linear(width, inner, bias=bias)
        self.gate = nn.Linear(width, inner, bias=bias) if gated else None
        self.outer = nn.Linear(inner, width, bias=bias)
        self.activation: Callable[[Tensor], Tensor] = named(
            "activation",
            activation,
            {name: partial(ACTIVATIONS.get, name) for name in ACTIVATIONS},
            EXAMPLE,
        )

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        layers: Any = self._modules  # as attributes they take ten times as long to find
        inner, gate = self.activation(call(layers["inner"], x)), layers.get("gate")
        return call(layers["outer"], inner if gate is None else inner * call(gate, x))


class Residual(nn.Module):
    """x + dropout(f(norm(x))) with a norm before f, norm(x + dropout(f(x))) with a norm after it.

    The paper's norm comes after (section 5.4); before is Xiong et al. 2020, arXiv 2002.04745.

    Args:
        width: Width of x.
        norm: "pre" or "post".
        normalisation: "layer" or "rms".
        dropout: Rate at which the output of f is dropped while training.
    """

    def __init__(
        self, width: int, norm: str = "pre", normalisation: Norm = "layer", dropout: float = 0.0
    ) -> None:
        super().__init__()
        if not isinstance(norm, str) or norm not in ("pre", "post"):
            raise unknown("norm", norm, ("pre", "post"))
        self.norm = new_norm(width, normalisation)
        self.dropout = Dropout(dropout)
        self.before = norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        layers: Any = self._modules
        norm, dropout = layers["norm"], layers["dropout"]
        if self.before:
            return x + call(dropout, sublayer(call(norm, x)))
        return call(norm, x + call(dropout, sublayer(x)))
