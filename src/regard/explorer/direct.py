"""Direct effects: a logit as a sum over what each layer adds to the residual stream.

The stream of a token is its embedding and the outputs of all attentions and other layers. The logit of a token after it
is the stream through the final norm and the unembedding. With the norm's deviation fixed, this is linear, so that each
summand has a part in the logit (nostalgebraist 2020; Elhage et al. 2021). The layers are found by what they compute,
not by their names: a sum that does not agree with the model's logits is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.watching import Seen
from regard.watching.metrics import logits_of
from regard.watching.replay import block_of

CLOSE = 1e-3  # relative to the largest number
FAR = 1e4  # the size of a probe, beside which the epsilon of a norm is nothing


class DirectError(Exception):
    """Why a logit cannot be split; the message is the reason."""


@dataclass(frozen=True, eq=False)
class Direct:
    """The summands of the residual stream of one prompt, and the way from the stream to the logits.

    Attributes:
        names: of the summands: "embedding", the name of each attention, "layer.3.mlp".
        summands: (summands, length, width).
        normed: (length, width), the stream after the norm, as the unembedding read it.
        entries: the norm before each attention, by its name, or why it is not known.
    """

    names: list[str]
    summands: Float[Tensor, "summands length width"]
    unembedding: nn.Linear
    norm: Norm
    normed: Float[Tensor, "length width"]
    entries: Mapping[str, Norm | str]

    @torch.no_grad()
    def entering(self, name: str, place: int) -> Float[Tensor, "summands width"]:
        """What each summand below an attention adds to its input at a place, without biases of the norm.

        Raises:
            DirectError: the norm before the attention is not known.
        """
        norm = self.entries[name]
        if isinstance(norm, str):
            raise DirectError(norm)
        summands = self.summands[: self.names.index(name), place]
        return norm.linear(summands, summands.sum(0))

    @torch.no_grad()
    def of(
        self, vectors: Float[Tensor, "... width"], place: int, token: int
    ) -> Float[Tensor, "..."]:
        """The part of each vector in the logit of a token after a place."""
        stream = self.summands[:, place].sum(0)
        return self.norm.linear(vectors, stream) @ self.unembedding.weight[token]

    @torch.no_grad()
    def logit(self, place: int, token: int) -> float:
        """The logit of a token after a place."""
        logit = float(self.normed[place] @ self.unembedding.weight[token])
        return (
            logit if self.unembedding.bias is None else logit + float(self.unembedding.bias[token])
        )

    @property
    def nbytes(self) -> int:
        return self.summands.nbytes + self.normed.nbytes

    @torch.no_grad()
    def terms(self, place: int, token: int) -> list[tuple[str, float]]:
        """The part of each summand, and of the biases of the norm and the unembedding. Their sum is the logit."""
        terms = self.of(self.summands[:, place], place, token).tolist()
        bias = float(self.norm.bias @ self.unembedding.weight[token])
        if self.unembedding.bias is not None:
            bias += float(self.unembedding.bias[token])
        return [*zip(self.names, terms, strict=True), *[("biases", bias)] * bool(bias)]


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm as scale x (x - mean) x gain + bias, where the scale depends on the stream."""

    gain: Float[Tensor, "width"]
    bias: Float[Tensor, "width"]
    centred: bool
    module: nn.Module | None

    def linear(self, vectors: Tensor, stream: Tensor) -> Tensor:
        """Vectors through the norm with the scale of a stream, without the bias."""
        if self.module is None:
            return vectors
        expected = self.module(stream) - self.bias
        shape = self._centred(stream) * self.gain
        scaled: Tensor = self._centred(vectors) * self.gain * (expected @ shape / (shape @ shape))
        return scaled

    def _centred(self, vectors: Tensor) -> Tensor:
        return vectors - vectors.mean(-1, keepdim=True) if self.centred else vectors

    @classmethod
    def of(cls, module: nn.Module | None, stream: Float[Tensor, "length width"]) -> Norm:
        """The norm that a module computes, found by probes.

        Raises:
            DirectError: it computes something else.
        """
        nothing = torch.zeros_like(stream[0])
        if module is None:
            return cls(nothing + 1, nothing, False, None)
        bias = module(nothing)
        if len(nothing) % 2:
            raise DirectError(
                "the stream has an odd width, which the probes of its norm do not fit"
            )
        signs = torch.ones_like(nothing)
        signs[1::2] = -1.0  # their mean is 0 and their deviation 1
        gain = (module(signs * FAR) - bias) * signs
        for centred in (False, True):
            norm = cls(gain, bias, centred, module)
            computed = torch.stack([norm.linear(row, row) for row in stream]) + bias
            if _close(computed, module(stream)):
                return norm
        raise DirectError(
            f"the final norm is a {type(module).__name__}, which is none that is known"
        )


@torch.no_grad()
def direct(model: nn.Module, run: Callable[[], Any], attentions: Seen) -> Direct | str:
    """Run the model again and find the summands of its stream; or the reason why there are none.

    Args:
        run: runs it on one prompt, under the edits that count.
        attentions: a watch of such a run, for the names of its attentions.
    """
    if any(attentions.kind(name) == "cross" for name in attentions):
        return "the model is an encoder-decoder, whose layers have two attentions"
    paths = {attentions.path(name): name for name in attentions}
    blocks = list(dict.fromkeys(block_of(model, path) for path in paths))
    if None in blocks or not blocks:
        return "an attention is in no list of layers"
    try:
        return _split(model, run, paths, [block for block in blocks if block])
    except DirectError as reason:
        return str(reason)


def _split(
    model: nn.Module, run: Callable[[], Any], paths: Mapping[str, str], blocks: list[str]
) -> Direct:
    inner = tuple(f"{block}." for block in blocks)
    calls: dict[str, tuple[Tensor, Tensor]] = {}  # input and output of modules, in their order

    def keep(path: str) -> Callable[..., None]:
        def hook(
            _: nn.Module, inputs: tuple[Any, ...], options: Mapping[str, Any], output: Any
        ) -> None:
            source = next(
                (each for each in (*inputs, *options.values()) if isinstance(each, Tensor)), None
            )
            output = output[0] if isinstance(output, tuple) else output
            if isinstance(output, Tensor) and output.ndim == 3:
                calls[path] = source if source is not None else output, output

        return hook

    with ExitStack() as stack:
        for path, module in model.named_modules():
            outside = path and not path.startswith(inner)
            child = path.rpartition(".")[0] in blocks
            if outside or child or path in paths:
                handle = module.register_forward_hook(keep(path), with_kwargs=True)
                stack.callback(handle.remove)
        logits = logits_of(run())[0]
    if any(block not in calls for block in blocks):
        raise DirectError("a layer returns no vector for each token")
    names, summands = ["embedding"], [calls[blocks[0]][0][0]]
    entries: dict[str, Norm | str] = {}
    for number, block in enumerate(blocks):
        stream_in, stream_out = (each[0] for each in calls[block])
        attentions = [path for path in paths if path.startswith(f"{block}.") or path == block]
        if len(attentions) != 1 or attentions[0] not in calls:
            raise DirectError(f"{block} has {len(attentions)} attentions: one is expected")
        output = calls[attentions[0]][1][0]
        if output.shape != stream_in.shape:
            raise DirectError(f"the output of {attentions[0]} is not added to the stream")
        remainder = stream_out - stream_in - output
        children = [
            path for path in calls if path.rpartition(".")[0] == block and path not in paths
        ]
        match = next((path for path in children if _close(calls[path][1][0], remainder)), None)
        if match is None:
            raise DirectError(
                f"{block} adds something else than the outputs of its attention and one more layer"
            )
        norms = [path for path in children if _same(calls[path][1], calls[attentions[0]][0])]
        entries[paths[attentions[0]]] = _entry(
            model, norms, calls[block][0], calls[attentions[0]][0], calls
        )
        names += [paths[attentions[0]], f"layer.{number}.{match.rpartition('.')[2]}"]
        summands += [output, remainder]
        if number + 1 < len(blocks) and not _close(calls[blocks[number + 1]][0][0], stream_out):
            raise DirectError(f"the stream changes between {block} and {blocks[number + 1]}")
    final = calls[blocks[-1]][1]
    tops = {
        path: pair
        for path, pair in calls.items()
        if not path.startswith(inner) and path not in blocks
    }
    unembedding, entered = _unembedding(model, tops, logits)
    norm_path = next(
        (
            path
            for path, (source, out) in tops.items()
            if _same(source, final) and _same(out, entered)
        ),
        None,
    )
    if norm_path is None and not _same(final, entered):
        raise DirectError("there is more than a norm between the last layer and the unembedding")
    stacked = torch.stack(summands)
    module = None if norm_path is None else model.get_submodule(norm_path)
    norm = Norm.of(module, final[0])
    split = Direct(names, stacked, unembedding, norm, entered[0], entries)
    token = int(logits[-1].argmax())
    if not _close(
        torch.tensor(sum(part for _, part in split.terms(-1, token))), logits[-1, token].cpu()
    ):
        raise DirectError("the summands do not add up to the logits")
    return split


def _entry(
    model: nn.Module,
    norms: list[str],
    stream: Tensor,
    entered: Tensor,
    calls: Mapping[str, tuple[Tensor, Tensor]],
) -> Norm | str:
    """The norm between the stream and an attention, or why it is not known."""
    path = next((each for each in norms if _same(calls[each][0], stream)), None)
    if path is None and not _same(entered, stream):
        return "there is more than a norm between the residual stream and the attention"
    try:
        return Norm.of(None if path is None else model.get_submodule(path), stream[0])
    except DirectError as reason:
        return str(reason)


def _unembedding(
    model: nn.Module, tops: Mapping[str, tuple[Tensor, Tensor]], logits: Tensor
) -> tuple[nn.Linear, Tensor]:
    """The linear layer whose output the logits are, and its input."""
    for path, (source, output) in reversed(list(tops.items())):
        module = model.get_submodule(path)
        if isinstance(module, nn.Linear) and _same(output[0].to(logits.dtype), logits):
            return module, source
    raise DirectError("the logits are not the output of a linear layer")


def _same(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and (x.data_ptr() == y.data_ptr() or bool(torch.equal(x, y)))


def _close(x: Tensor, y: Tensor) -> bool:
    bound = CLOSE * max(1e-6, float(y.abs().max())) if y.numel() else 0.0
    return x.shape == y.shape and bool(((x - y).abs() <= bound).all())
