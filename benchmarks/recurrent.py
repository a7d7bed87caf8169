"""Training the recurrent translator with Bahdanau attention: kernels as chosen, and eager attention.

python benchmarks/recurrent.py [--threads 2] [--rounds 5] [--out benchmarks/results/recurrent.json]

The sizes of the configuration tatoeba-es-en-recurrent, and batches of 1,024 random target words.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import interleaved, write
from torch import Tensor

import regard.translation.models.recurrent.attention as recurrent
from regard.attention.scores.prepare import PreparedAdditive
from regard.translation.configuration import read
from regard.translation.models.building import build
from regard.translation.text.batches import Batch
from regard.translation.training.loss import Objective

VOCABULARY, TOKENS = 6000, 1024
CONFIGURATION = Path("src/regard/configs/tatoeba-es-en-recurrent.toml")
as_chosen = recurrent.attend


def eager(
    query: Tensor, key: Tensor, value: Tensor, *, score: PreparedAdditive, mask: Tensor | None
) -> Tensor:
    """c = sum_j a_j h_j, a = softmax(v . tanh(W_q s + W_k h)), as one writes it in torch."""
    parts = score.score
    hidden = torch.tanh(parts.query_features(query).unsqueeze(-2) + key.unsqueeze(-3))
    scores = hidden @ parts.weight
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, -1) @ value


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = build(read(CONFIGURATION), VOCABULARY, VOCABULARY)
    model.train()
    objective, optimiser = Objective(model, 0.1), torch.optim.AdamW(model.parameters(), 1e-5)
    results: list[dict[str, Any]] = []
    for length in (8, 16, 32):
        given = batch(length)

        def step(attend: Any, given: Batch = given) -> None:
            recurrent.attend = attend
            optimiser.zero_grad()
            (objective(given) / given.target_tokens).backward()
            optimiser.step()

        taken = interleaved(
            {"as chosen": lambda: step(as_chosen), "eager": lambda: step(eager)}, options.rounds
        )
        speeds = {name: given.target_tokens / seconds for name, seconds in taken.items()}
        results.append(
            {
                "words a sentence": length,
                "target words": given.target_tokens,
                "seconds a step": taken,
                "target words a second": speeds,
                "times as fast": taken["eager"] / taken["as chosen"],
            }
        )
        print(results[-1], flush=True)
    if options.out:
        write(options.out, {"recurrent training": results})


if __name__ == "__main__":
    main()
