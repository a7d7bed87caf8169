"""The recurrent translator with all steps as one operator, or step by step; and a decoder's attention.

python benchmarks/recurrent.py [--threads 1] [--rounds 5] [--out benchmarks/results/recurrent.json]

Training: the sizes of the configuration tatoeba-es-en-recurrent, and batches of 1,024 random target
words. The decoder's attention: 64 sentences, 30 keys, width 256, forward and backward, one step and
30 steps of the same keys, beside the equations in eager torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import interleaved, write
from torch import Tensor

from regard.attention.kernels.additive.cpu.reading import Reading
from regard.translation.configuration import read
from regard.translation.models.building import build
from regard.translation.models.recurrent.unrolled import layers
from regard.translation.text.batches import Batch
from regard.translation.training.loss import Objective

VOCABULARY, TOKENS = 6000, 1024
CONFIGURATION = Path("src/regard/configs/tatoeba-es-en-recurrent.toml")
BATCH, KEYS, WIDTH, STEPS = 64, 30, 256, 30
as_served = layers.serves


def batch(length: int) -> Batch:
    """Sentences of about this many words on both sides, 1,024 target words in all."""
    draw = np.random.default_rng(0)
    torch.manual_seed(0)
    rows = TOKENS // length
    lengths = [torch.as_tensor(draw.integers(length - 3, length + 1, rows)) for _ in range(2)]
    for each in lengths:
        each[0] = length
    source, before, after = (torch.randint(5, VOCABULARY, (rows, length)) for _ in range(3))
    return Batch(source, lengths[0], before, after, lengths[1], np.arange(rows))


def training(rounds: int) -> list[dict[str, Any]]:
    """A whole step: loss, gradients, optimiser."""
    torch.manual_seed(0)
    model = build(read(CONFIGURATION), VOCABULARY, VOCABULARY)
    model.train()
    objective = Objective(model, 0.1)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    results = []
    for length in (8, 16, 32):
        given = batch(length)

        def step(serves: Callable[[Tensor], bool], given: Batch = given) -> None:
            layers.serves = serves
            optimiser.zero_grad()
            (objective(given) / given.target_tokens).backward()
            optimiser.step()

        runs = {
            "one operator": lambda: step(as_served),
            "step by step": lambda: step(lambda _: False),
        }
        taken = interleaved(runs, rounds)
        layers.serves = as_served
        speeds = {name: given.target_tokens / seconds for name, seconds in taken.items()}
        results.append(
            {
                "words a sentence": length,
                "target words": given.target_tokens,
                "seconds a step": taken,
                "target words a second": speeds,
                "times as fast as": {"step by step": taken["step by step"] / taken["one operator"]},
            }
        )
        print(results[-1], flush=True)
    return results


class Attention:
    """Queries a of some steps, keys c and values v, the same for all steps; and gradients."""

    def __init__(self, steps: int) -> None:
        torch.manual_seed(0)
        self.a = torch.randn(steps, BATCH, WIDTH, requires_grad=True)
        self.c, self.v = (torch.randn(BATCH, KEYS, WIDTH, requires_grad=True) for _ in range(2))
        self.w = (torch.randn(WIDTH) / WIDTH**0.5).requires_grad_()
        self.upstream = torch.randn(steps, BATCH, WIDTH)
        self.readable = torch.ones(BATCH, KEYS, dtype=torch.uint8)

    def eager(self) -> tuple[Tensor, ...]:
        """Step after step, as a decoder must; the gradient of each adds to those of keys and values."""
        contexts = []
        for a in self.a.unbind(0):
            scores = torch.tanh(a[:, None] + self.c) @ self.w
            contexts.append((torch.softmax(scores, -1)[:, None] @ self.v)[:, 0])
        return self._gradients(torch.stack(contexts))

    def unrolled(self) -> tuple[Tensor, ...]:
        """The steps within one operator, as the unrolled decoder runs them."""
        steps = len(self.a)
        queries, upstream = self.a.detach().flatten(0, 1), self.upstream.flatten(0, 1)
        weights, contexts = queries.new_empty(len(queries), KEYS), torch.empty_like(queries)
        c, v, w = self.c.detach(), self.v.detach(), self.w.detach()
        reading = Reading(c, v, self.readable, w, queries, weights, contexts)
        for step in range(steps):
            reading.forward(step)
        slopes = torch.empty_like(queries)
        reading.start_back(slopes, upstream)
        for step in reversed(range(steps)):
            reading.backward(step)
        return slopes.view_as(self.a), *reading.gradients()

    def _gradients(self, contexts: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(contexts, (self.a, self.c, self.v, self.w), self.upstream)


def attention(rounds: int) -> list[dict[str, Any]]:
    results = []
    for steps in (1, STEPS):
        given = Attention(steps)
        for ours, theirs in zip(given.unrolled(), given.eager(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        runs = {
            "within one operator": given.unrolled,
            "eager": given.eager,
        }
        taken = interleaved(runs, 4 * rounds if steps == 1 else rounds)
        over = {name: taken["eager"] / seconds for name, seconds in taken.items()}
        results.append({"steps": steps, "seconds": taken, "eager's time over": over})
        print(results[-1], flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = {
        "decoder's attention, forward and backward": attention(options.rounds),
        "recurrent training": training(options.rounds),
    }
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
