"""What watching a model costs, and what its looks do at 8,192 tokens.

    python benchmarks/watch.py                         all of it, some minutes
    python benchmarks/watch.py --parts overhead

`context`: a causal Transformer of 12 layers with 12 heads of width 64 and random weights reads 8,192
tokens; then every layer's `received()`, `entropy()` and `map(512, 512)`. Memory is the peak of a fresh
process over what it held when the model was built. `plain` is the same without a watch. `overhead`:
the time a watch adds to a forward pass of 512 tokens and to a step of cached generation, and what
opening and shutting one takes. Each part adds to benchmarks/results/watch.json what it measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _measure import interleaved, machine
from torch import Tensor, nn
from torch.nn import functional as F

import regard

LAYERS, HEADS, WIDTH, VOCABULARY = 12, 12, 768, 1000
PARTS = ("plain", "context", "overhead")
RESULTS = Path(__file__).parent / "results" / "watch.json"


class Layer(nn.Module):
    """Causal fused attention and a feed-forward layer, each after a norm; keys grow with `cache`."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x: Tensor, cache: list[Tensor] | None) -> Tensor:
        normed = self.norms[0](x)
        sides = (part(normed) for part in (self.query, self.key, self.value))
        query, key, value = (p.unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in sides)
        if cache is not None:
            key, value = (torch.cat(pair, -2) for pair in zip(cache, (key, value), strict=True))
            cache[:] = key, value
        reading = F.scaled_dot_product_attention(query, key, value, is_causal=cache is None)
        x = x + self.output(reading.transpose(1, 2).flatten(-2))
        return x + self.narrow(F.relu(self.wide(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens: Tensor, caches: list[list[Tensor]] | None = None) -> Tensor:
        x = self.embedding(tokens)
        for number, layer in enumerate(self.layers):
            x = layer(x, None if caches is None else caches[number])
        return x


def built() -> Model:
    torch.manual_seed(0)
    return Model().eval()


def tokens(length: int) -> Tensor:
    return torch.randint(VOCABULARY, (1, length), generator=torch.Generator().manual_seed(1))


def resident(kind: str) -> int:
    """Bytes that this process holds (VmRSS), or at most held since the peak was forgotten (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))


def peaked(run: Callable[[], Any]) -> tuple[Any, float, int]:
    """What a run returns, its seconds, and the peak of memory within it."""
    Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    result = run()
    return result, time.perf_counter() - start, resident("VmHWM")


@torch.no_grad()
def plain(length: int) -> dict[str, float]:
    """The forward pass alone."""
    model, read = built(), tokens(length)
    model(read[:, :64])
    base = resident("VmRSS")
    _, seconds, peak = peaked(lambda: model(read))
    return {"length": length, "seconds": seconds, "megabytes": (peak - base) / 1e6}


@torch.no_grad()
def context(length: int) -> dict[str, Any]:
    """The forward pass with a watch, and three answers of every head."""
    model, read = built(), tokens(length)
    model(read[:, :64])
    base = resident("VmRSS")
    watch = regard.watch(model)

    def forward() -> regard.Seen:
        with watch as attentions:
            model(read)
        return attentions

    attentions, seconds, peak = peaked(forward)
    figures: dict[str, Any] = {
        "length": length,
        "forward": {"seconds": seconds, "megabytes": (peak - base) / 1e6},
        "kept_megabytes": attentions.nbytes / 1e6,
        "weights_would_be_megabytes": LAYERS * HEADS * length * length * 4 / 1e6,
    }
    questions: dict[str, Callable[[Any], Tensor]] = {
        "received": lambda look: look.received(),
        "entropy": lambda look: look.entropy(),
        "map(512, 512)": lambda look: look.map(512, 512),
    }
    answers = []
    for name, ask in questions.items():
        answer, seconds, peak = peaked(lambda ask=ask: [ask(look) for look in attentions.values()])
        answers.append(answer)
        figures[name] = {"seconds": seconds, "megabytes": (peak - base) / 1e6}
    figures["sums_of_received"] = [round(float(one.sum()) / HEADS, 3) for one in answers[0]]
    return figures


@torch.no_grad()
def overhead(rounds: int) -> dict[str, Any]:
    """Medians, watched and not, taken in turn."""
    model, read = built(), tokens(512)
    sizes: dict[str, int] = {}

    def watched() -> None:
        with regard.watch(model) as attentions:
            model(read)
        sizes["bytes"] = attentions.nbytes

    def open_alone() -> None:
        with regard.watch(model, layers=99):
            pass

    def generated(steps: int = 16) -> None:
        empty = torch.zeros(1, HEADS, 0, WIDTH // HEADS)
        caches = [[empty, empty] for _ in range(LAYERS)]
        for at in range(steps):
            model(read[:, at : at + 1], caches)

    def generated_watched() -> None:
        with regard.watch(model):
            generated()

    runs = {
        "forward": lambda: model(read),
        "forward_watched": watched,
        "open_and_shut": open_alone,
        "sixteen_steps": generated,
        "sixteen_steps_watched": generated_watched,
    }
    seconds = interleaved(runs, rounds)
    modules = sum(1 for _ in model.modules())
    return {**seconds, "kept_megabytes": sizes["bytes"] / 1e6, "modules": modules}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps({"plain": plain, "context": context}[options.alone](options.length)))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.parts.split(","):
        if name == "overhead":
            figures = overhead(options.rounds)
        else:
            command = [sys.executable, __file__, "--alone", name, "--length", str(options.length)]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            figures = json.loads(ran.stdout)
        results[name] = {"machine": machine(), **figures}
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        print(name, json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
