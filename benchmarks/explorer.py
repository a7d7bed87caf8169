"""How soon the explorer shows a long prompt, once the model has run: a process of its own, its seconds and its memory.

    python benchmarks/explorer.py                      32 layers of 32 heads, 2,048 tokens: half a minute
    python benchmarks/explorer.py --all                two minutes
    python benchmarks/explorer.py --tokens 512 --out FILE

A random model of the class of Llama 3 (heads of width 64, 8 key heads, its vocabulary, narrow layers) reads a prompt
through the application of the server. Seconds count from the end of the forward pass: `reply`, to the answer of
/api/prompt, which opens the page; `one layer`, to the pictures of all heads of the first layer, which the page shows
without scrolling; `all layers`, with `--all`, to those of all heads. `memory` is the peak of the process in MB: with
the model built, at the end of the forward pass, and at the end. It writes benchmarks/results/first_view.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _measure import write

RESULTS = Path(__file__).parent / "results" / "first_view.json"
HOST = "127.0.0.1:8000"
LAYERS, HEADS, KEY_HEADS, WIDTH, HIDDEN, VOCABULARY = 32, 32, 8, 64, 128, 128_256


class Numbers:
    """A tokenizer whose tokens are numbers."""

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"▁{number}" for number in ids]


def random_model(tokens: int) -> Any:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        head_dim=WIDTH,
        vocab_size=VOCABULARY,
        max_position_embeddings=tokens,
        initializer_range=0.3,
    )
    return transformers.LlamaForCausalLM(config).eval()


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


class Stopwatch:
    """Seconds by the wall and of the processor since it was started."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        wall, processor = self._start
        return {
            "wall": round(time.perf_counter() - wall, 3),
            "processor": round(time.process_time() - processor, 3),
        }


def open_page(tokens: int, every_layer: bool) -> dict[str, Any]:
    """The figures of one process."""
    from starlette.testclient import TestClient

    from regard.explorer.prompting import LanguageModel
    from regard.explorer.server import Explorer, Models, application

    torch.set_num_threads(1)
    model, memory = random_model(tokens), {}
    memory["model"] = peak()
    ids = torch.randint(VOCABULARY, (1, tokens))
    ends: list[Stopwatch] = []

    def end(*_: Any) -> None:
        memory["forward pass"] = peak()
        ends.append(Stopwatch())

    model.register_forward_hook(end)
    explorer = Explorer(
        Models({}), languages=[LanguageModel("model", model, Numbers(), ids[0].tolist())]
    )
    with TestClient(application(explorer, [HOST]), base_url=f"http://{HOST}") as client:

        def answer(method: str, route: str, **options: Any) -> bytes:
            response = client.request(method, f"/api/{route}", **options)
            if response.status_code != 200:
                raise SystemExit(response.text)
            return response.content

        bundle = answer("POST", "prompt", json={"model": "model"})
        since = ends[-1]
        seconds = {"reply": since.read()}
        length = int.from_bytes(bundle[8:12], "little")
        header = json.loads(bundle[12 : 12 + length])
        for number, attention in enumerate(header["attentions"]):
            for head in attention["heads"]:
                at = {"run": header["run"], "attention": attention["name"], "head": head}
                answer("GET", "picture", params={**at, "exact": 0})
            if number == 0:
                seconds["one layer"] = since.read()
                if not every_layer:
                    break
        else:
            seconds["all layers"] = since.read()
    memory["end"] = peak()
    return {
        "tokens": tokens,
        "layers": LAYERS,
        "heads": HEADS,
        "vocabulary": VOCABULARY,
        "bytes of the reply": len(bundle),
        "seconds after the forward pass": seconds,
        "memory": {name: round(size) for name, size in memory.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--all", action="store_true", help="the pictures of all heads as well")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--here", action="store_true", help="measure in this process")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(open_page(options.tokens, options.all)))
        return
    command = [sys.executable, __file__, "--here", "--tokens", str(options.tokens)]
    command += ["--all"] * options.all
    child = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    results = json.loads(child.stdout.splitlines()[-1])
    write(options.out, results)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
