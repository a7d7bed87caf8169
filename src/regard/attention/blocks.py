"""A block of the Transformer, of encoders and of decoders: its sublayers, each with a norm and a residual."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.by_name import named, unknown
from regard.attention.constants import flag, whole
from regard.attention.dropout import Dropout
from regard.attention.heads import HeadMemory, MultiHeadAttention, Norm, check_steps, new_norm
from regard.attention.layer_calls import call
from regard.attention.looks import Look
from regard.attention.normalisers import NormaliserLike
from regard.attention.positions import Rotary
from regard.attention.scores import ScoreLike
from regard.attention.torch_names import BLOCK, PLACES, READING, THROUGH, answers

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


Attend = Callable[..., Tensor]  # (name, attention, query, [context], mask=, bias=) -> output


class TransformerBlock(nn.Module):
    """Self-attention, cross-attention where there is a context, and a feed-forward layer.

    Each of them, f, is wrapped as ``x + f(norm(x))`` (pre-norm) or ``norm(x + f(x))`` (post-norm).

    Attention Is All You Need (arXiv 1706.03762, section 3.1).

    Args:
        width: Width of what comes in and goes out.
        heads: Number of heads.
        feed_forward: Width of the hidden layer; four times the width by default.
        cross: Whether there is cross-attention, to a context of the same width.
        norm: ``"pre"`` or ``"post"``. Pre-norm blocks need one more norm after the last of them.
        normalisation: ``"layer"`` or ``"rms"``.
        activation: ``"relu"``, ``"gelu"``, ``"gelu_tanh"`` or ``"silu"``, or a function of a tensor.
        gated: Whether the feed-forward layer has a gate.
        dropout: Rate at which the output of f is dropped while training.
        bias: Whether the projections of attention have biases, as in `MultiHeadAttention`.
        feed_forward_bias: Whether the feed-forward layer has biases.
        d_head: Width of a head; ``width // heads`` by default.
        key_heads: Heads of keys and values of self-attention, as in `MultiHeadAttention`.
        qk_norm: Norm of queries and keys of self-attention, as in `MultiHeadAttention`.
        score: Score of every attention, as in `MultiHeadAttention`; by name, each attention has parameters of its own.
        normaliser: Normaliser of every attention, as in `MultiHeadAttention`.
        rotary: Turns queries and keys of self-attention by their places.

    Raises:
        TypeError: If an argument has a wrong type.
        ValueError: If a size, rate or name is impossible.

    Example:
        >>> import torch, regard
        >>> block = TransformerBlock(16, heads=2, cross=True)
        >>> x, context = torch.zeros(3, 5, 16), torch.zeros(3, 7, 16)
        >>> padding = regard.masks.padding([7, 4, 2])
        >>> block(x, context, mask="causal", context_mask=padding).shape
        torch.Size([3, 5, 16])
        >>> _, looks = block.read(x, context, mask="causal", context_mask=padding)
        >>> looks["cross"].shape
        (3, 2, 5, 7)
    """

    @answers(BLOCK | PLACES, {"head_width": "d_head", "attention_bias": "bias"})
    def __init__(
        self,
        width: int,
        heads: int,
        feed_forward: int | None = None,
        *,
        cross: bool = False,
        norm: Literal["pre", "post"] = "pre",
        normalisation: Norm = "layer",
        activation: str | Callable[[Tensor], Tensor] = "relu",
        gated: bool = False,
        dropout: float = 0.0,
        bias: bool = False,
        feed_forward_bias: bool = True,
        d_head: int | None = None,
        key_heads: int | None = None,
        qk_norm: Norm | None = None,
        score: ScoreLike | None = None,
        normaliser: NormaliserLike | None = None,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        width = whole("width", width)
        flag("bias", bias)
        flag("feed_forward_bias", feed_forward_bias)
        shape: dict[str, Any] = {"d_head": d_head, "bias": bias}
        shape |= {"score": score, "normaliser": normaliser}
        extra: dict[str, Any] = {"key_heads": key_heads, "qk_norm": qk_norm, "rotary": rotary}

        def residual() -> Residual:
            return Residual(width, norm, normalisation, dropout)

        self.self_attention = MultiHeadAttention(width, heads, **shape, **extra)
        self.self_residual = residual()
        self.cross_attention = (
            MultiHeadAttention(width, heads, **shape) if flag("cross", cross) else None
        )
        self.cross_residual = residual() if cross else None
        inner = 4 * width if feed_forward is None else whole("feed_forward", feed_forward)
        self.feed_forward = FeedForward(width, inner, activation, gated, feed_forward_bias)
        self.feed_forward_residual = residual()

    @answers(READING | THROUGH)
    def forward(
        self,
        x: Float[Tensor, "*batch queries width"],
        context: Float[Tensor, "*batch keys width"] | HeadMemory | None = None,
        *,
        mask: Any = None,
        context_mask: Any = None,
        bias: Float[Tensor, "..."] | None = None,
        memory: HeadMemory | None = None,
    ) -> Float[Tensor, "*batch queries width"]:
        """The block's output.

        Args:
            x: The sequence.
            context: The memory of cross-attention: an encoder's states, or the result of
                ``cross_attention.remember`` for them.
            mask: Mask of self-attention: ``"causal"`` in a decoder; see `MultiHeadAttention`.
            context_mask: Mask of cross-attention.
            bias: Added to the scores of self-attention.
            memory: Keys and values of earlier steps, from ``self_attention.remember``. Those of x
                are appended to it, in place, and x reads all of them that the mask allows: pass
                ``mask="causal"`` for a prompt of several steps, and for each step after it. Where
                they shall read all, it is ``torch.ones(1, 1, dtype=torch.bool)``.

        Raises:
            ValueError: A context without cross-attention, cross-attention without a context, or
                several steps with a memory and without a mask.
        """
        return self._read(None, x, context, mask, context_mask, bias, memory)

    @answers(READING | THROUGH)
    def read(
        self,
        x: Float[Tensor, "*batch queries width"],
        context: Float[Tensor, "*batch keys width"] | HeadMemory | None = None,
        *,
        mask: Any = None,
        context_mask: Any = None,
        bias: Float[Tensor, "..."] | None = None,
        memory: HeadMemory | None = None,
    ) -> tuple[Float[Tensor, "*batch queries width"], dict[str, Look]]:
        """The output of `forward`, and the looks: "self", and "cross" where there is one."""
        looks: dict[str, Look] = {}
        return self._read(looks, x, context, mask, context_mask, bias, memory), looks

    def _read(
        self,
        looks: dict[str, Look] | None,
        x: Tensor,
        context: Tensor | HeadMemory | None,
        mask: Any,
        context_mask: Any,
        bias: Tensor | None,
        memory: HeadMemory | None,
    ) -> Tensor:
        has_cross = self._modules.get("cross_attention") is not None
        if context is None and has_cross:
            raise ValueError("this block has cross-attention: pass a context")
        if context is not None and not has_cross:
            raise ValueError("this block was built without cross=True: pass no context")

        def attend(
            name: str, attention: MultiHeadAttention, q: Tensor, *of: Any, **how: Any
        ) -> Tensor:
            if name == "self" and memory is not None:
                steps = q.shape[-2]
                check_steps(how["mask"], steps, len(memory) + steps)  # before the memory grows
                how["memory"] = attention.remember(q, memory=memory)
            elif of and isinstance(of[0], HeadMemory):
                how["memory"], of = of[0], ()
            if looks is None:
                output: Tensor = attention(q, *of, **how)
            else:
                output, looks[name] = attention.read(q, *of, **how)
            return output

        return self._through(x, context, attend, mask, context_mask, bias)

    def _through(
        self, x: Tensor, context: Any, attend: Attend, mask: Any, context_mask: Any, bias: Any
    ) -> Tensor:
        """The sublayers one after the other; `attend` computes an attention."""
        layers: Any = self._modules  # as attributes they take ten times as long to find
        attention, cross = layers["self_attention"], layers.get("cross_attention")
        x = layers["self_residual"](x, lambda q: attend("self", attention, q, mask=mask, bias=bias))
        if cross is not None:
            x = layers["cross_residual"](
                x, lambda q: attend("cross", cross, q, context, mask=context_mask)
            )
        output: Tensor = layers["feed_forward_residual"](x, layers["feed_forward"])
        return output
