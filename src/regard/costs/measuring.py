"""A configuration run here: torch's own counts, the time of a forward pass and the largest memory of its tensors."""

import os
import weakref
from collections.abc import Callable
from timeit import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.attention.attend import attend
from regard.attention.blocks import TransformerBlock
from regard.attention.heads import MultiHeadAttention
from regard.attention.kernels.choose import kernel
from regard.costs.architectures import Built, Heads, Stack
from regard.costs.modules import Products, plain
from regard.costs.papers import Model
from regard.costs.parts import Cost
from regard.errors import ConfigurationError, memory_named
from regard.translation.models.recurrent.model import RecurrentModel
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings

RUNS = 5


class Measured(NamedTuple):
    """The measurements of forward passes in float32.

    Args:
        parameters: of the model that ran.
        multiply_adds: its products, as torch ran them.
        seconds: the shortest of five passes without gradients.
        peak_bytes: the largest sum of all tensors at a time, with those that are kept for gradients:
            weights, activations, and tensors that are not counted on paper.
        matrix_bytes: the same with the reference kernel, which stores the scores.
    """

    parameters: int
    multiply_adds: int
    seconds: float
    peak_bytes: int
    matrix_bytes: int


class StackModel(nn.Module):
    """A stack of blocks between embeddings and an output layer that shares their weights."""

    def __init__(self, sizes: Stack, words: int) -> None:
        super().__init__()
        width = sizes.width
        self.causal = sizes.causal
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(sizes.positions, width)
        self.segments = nn.Embedding(sizes.segments, width) if sizes.segments else None
        self.blocks = nn.ModuleList(
            TransformerBlock(
                *(width, sizes.heads),
                norm="pre" if sizes.causal else "post",
                activation="gelu",
                bias=True,
            )
            for _ in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.pooler = nn.Linear(width, width) if sizes.pooler else None

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.words(tokens) + self.positions.weight[: tokens.shape[-1]]
        if self.segments is not None:
            x = x + self.segments.weight[0]
        x = x if self.causal else self.norm(x)
        for block in self.blocks:
            x = block(x, mask="causal" if self.causal else None)
        if self.causal:
            logits: Tensor = self.norm(x) @ self.words.weight.mT
            return logits
        return x if self.pooler is None else torch.tanh(self.pooler(x[:, :1]))


def built(
    sizes: Built, words: tuple[int, int], queries: int, keys: int, batch: int
) -> tuple[nn.Module, Callable[[], Any]]:
    """The model of these sizes with random weights, and a function that runs it on random tokens.

    Raises:
        ConfigurationError: it cannot be run for so many queries and keys.
    """
    model: nn.Module
    if isinstance(sizes, Heads):
        query, key = torch.randn(batch, queries, sizes.width), torch.randn(batch, keys, sizes.width)
        value = key if sizes.d_value == sizes.width else torch.randn(batch, keys, sizes.d_value)
        if sizes.kind == "single-head":
            return nn.Identity(), lambda: attend(query, key, value)
        model = MultiHeadAttention(sizes.width, sizes.heads, **sizes.options)
        return model, lambda: model(query, key, value)
    target = torch.randint(5, words[1], (batch, queries))
    if isinstance(sizes, Stack):
        if queries != keys:
            raise ConfigurationError(
                "this model is measured on whole texts: give as many queries as keys"
            )
        model = StackModel(sizes, words[1])
        return model, lambda: model(target)
    kind: Any = Transformer if isinstance(sizes, TransformerSettings) else RecurrentModel
    model = kind(sizes, *words)
    source, lengths = torch.randint(5, words[0], (batch, keys)), torch.full((batch,), keys)
    return model, lambda: model(source, lengths, target)


def measured(paper: Cost, of: Model) -> Measured:
    """Build the model of a cost and run its forward pass.

    Raises:
        ConfigurationError: the memory of this machine is too small, or a text is too long.
        TrainingError: memory ran out.
    """
    weights, activations, scores, _ = paper.memory
    memory, available = weights + activations + 2 * scores, _memory()  # the softmax makes as many
    if available is not None and memory > available:
        raise ConfigurationError(
            f"{paper.model} needs {memory / 1e9:,.1f} GB for weights, activations, scores and their"
            f" softmax, this machine has {available / 1e9:,.1f} GB: leave --measure out, or choose shorter lengths"
        )
    assert of.built is not None
    assert paper.queries is not None
    assert paper.keys is not None
    if of.longest is not None and max(paper.queries, paper.keys) > of.longest:
        raise ConfigurationError(
            f"{paper.model} has learned {of.longest:,} positions: leave --measure out, or choose"
            " shorter lengths"
        )
    with memory_named("in a measured pass", "--batch, --queries or --keys"):
        model, run = built(of.built, of.words, paper.queries, paper.keys, paper.batch)
        model.eval()
        with Peak(model) as blocked:
            run()
        with kernel("reference"), Peak(model) as matrix:
            run()
        with plain(), torch.no_grad(), Products(model) as products:
            run()
        with torch.no_grad():
            seconds = min(repeat(run, number=1, repeat=RUNS))
    count = sum(part.multiply_adds for part in products.parts)
    parameters = sum(each.numel() for each in model.parameters())
    return Measured(parameters, count, seconds, blocked.peak, matrix.peak)


class Peak(TorchDispatchMode):
    """The largest sum of bytes of all tensors that live at a time, those of a model included."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known: set[int] = set()
        self._now = self.peak = 0
        for tensor in (*model.parameters(), *model.buffers()):
            self._add(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, result)):
            if isinstance(leaf, Tensor):
                self._add(leaf)
        return result

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._known:
            self._known.add(key)
            self._now += storage.nbytes()
            self.peak = max(self.peak, self._now)
            weakref.finalize(storage, self._remove, key, storage.nbytes())

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._now -= size


def _memory() -> int | None:
    """The bytes of this machine's memory, where the system tells."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
