"""The calls that people make most, before a change and after it, each beside a peer.

    python benchmarks/everyday.py --before CHECKOUT [--rounds 9] [--turns 3] [--rows mask,small] [--missing]
        [--out FILE]

CHECKOUT is a second checkout of this project, at an earlier commit. Both run in child processes, in turn; within a
process ours and the peer run in turn, on one thread. A figure is the time of ours over the time of the peer, in
seconds of the processor, unless the unit says otherwise; the smaller the better. Figures are medians.

FILE is written after each row, and keeps the rows that are not measured now. So the table can be measured in parts:
--rows limits it to some rows, and --missing to those that the file does not hold yet.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

Call = Callable[[], Any]
FILE = Path(__file__).resolve()
DEFAULT_OUT = FILE.parent / "results" / "everyday.json"


class Row(NamedTuple):
    """One line of the table: ours, the peer, and the largest figure that is good enough."""

    name: str
    peer: str
    goal: float | None
    unit: str = "times"


ROWS = {
    "mask window": Row("window of 128 at 8,192", "sdpa in blocks by hand", 1.3),
    "mask window memory": Row("window of 128 at 8,192, peak memory", "", None, "MB"),
    "mask causal padding": Row("causal & padding at 8,192", "causal alone", 1.3),
    "mask documents": Row("documents(8) at 4,096", "packed(8)", 1.2),
    "mask padding": Row("60% padding, 4,096, one sentence", "keys cut to the length", 1.2),
    "small none": Row("1 x 8 x 8, no mask", "sdpa", 1.5),
    "small causal": Row("1 x 8 x 8, causal", "sdpa", 2.0),
    "small padding": Row("1 x 8 x 8, padding", "sdpa with a ready mask", 3.0),
    "small heads none": Row("1 x 4 heads x 8 x 8, no mask", "sdpa", 1.5),
    "small heads causal": Row("1 x 4 heads x 8 x 8, causal", "sdpa", 2.0),
    "small heads padding": Row("1 x 4 heads x 8 x 8, padding", "sdpa with a ready mask", 3.0),
    "token none": Row("one token, 8 heads, cache of 4,096", "sdpa", 1.1),
    "token causal": Row("one token, cache of 4,096, causal at the end", "sdpa", 1.1),
    "token padding": Row("one token, cache of 4,096, padding", "sdpa with a ready mask", 1.1),
    "token heads": Row("cached step of MultiHeadAttention", "torch by hand", 1.0),
    "module heads": Row("MultiHeadAttention, 1 x 8", "torch's", 1.2),
    "module block": Row("TransformerBlock, 1 x 8", "torch's", 1.2),
    "module heads gradients": Row("MultiHeadAttention, 1 x 8, both passes", "torch's", 1.2),
    "module block gradients": Row("TransformerBlock, 1 x 8, both passes", "torch's", 1.2),
    "step dot": Row("dot, one query, 30 keys of width 64", "eager torch", 1.3),
    "step cosine": Row("cosine, one query, 30 keys of width 64", "eager torch", 1.3),
    "step general": Row("general, one query, 30 keys of width 64", "eager torch", 1.3),
    "step prepared": Row("general, the same, its keys prepared", "eager torch", 1.3),
    "step batch": Row("general, the same, batch of 64, width 256", "eager torch", 1.3),
    "additive look received": Row("received of additive scores, 1,024 x 1,024", "attend", 2.0),
    "additive look entropy": Row("entropy of additive scores", "attend", 2.0),
    "additive look log-normaliser": Row("log-normaliser of additive scores", "attend", 2.0),
    "additive look top": Row("top of additive scores", "attend", 2.0),
    "additive look map": Row("map of additive scores", "attend", 3.0),
    "additive query": Row(
        "additive, one query, batch of 64, 30 keys, width 256", "eager torch", 1 / 1.8
    ),
    "additive query padding": Row("the same with padding", "eager torch", 1 / 1.8),
    "additive square": Row("additive, batch of 64, 20 x 20, forward", "torch.compile", 1 / 5),
    "additive memory": Row("additive, 8,192 x 8,192, both passes, peak memory", "", None, "MB"),
    "first line": Row("first translation, no machine code yet", "", 5.0, "s"),
    "first lines": Row("first 64 lines, no machine code yet", "", 8.0, "s"),
    "first additive": Row("first additive call, both passes, no machine code yet", "", 5.0, "s"),
    "search greedy": Row("search as written, greedy, batches of 32", "CTranslate2, int8", None),
    "search beam": Row("search as written, beam of 5, batches of 32", "CTranslate2, int8", None),
    "translate greedy": Row("mended and doubted as well, greedy", "CTranslate2's search", None),
    "translate beam": Row("mended and doubted as well, beam of 5", "CTranslate2's search", None),
}


# The rows. Each returns (ours, peer), or a number.


def masks_row(kind: str) -> tuple[Call, Call]:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    import regard
    from regard import masks

    length = 8192 if kind in ("window", "causal padding") else 4096
    query, key, value = (torch.randn(1, 1, length, 64) for _ in range(3))
    ours = partial(regard.attend, query, key, value)
    cut = 2 * length // 5
    causal = masks.causal(align="start")
    if kind == "window":

        def in_blocks() -> torch.Tensor:
            readings = []
            for start in range(0, length, 128):
                low = max(0, start - 128)
                window = torch.ones(128, start + 128 - low, dtype=torch.bool)
                window = window.tril(start - low).triu(start - low - 128)
                columns = slice(low, start + 128)
                rows = query[..., start : start + 128, :]
                readings.append(
                    sdpa(rows, key[..., columns, :], value[..., columns, :], attn_mask=window)
                )
            return torch.cat(readings, -2)

        return partial(ours, mask=masks.band(128, 0)), in_blocks
    if kind == "causal padding":
        whole_causal = partial(ours, mask=causal)
        return partial(ours, mask=causal & masks.padding([length - 192])), whole_causal
    if kind == "documents":
        ids = torch.arange(length) * 8 // length
        packed = masks.packed([length // 8] * 8)
        return partial(ours, mask=masks.documents(ids)), partial(ours, mask=packed)
    short = partial(sdpa, query, key[..., :cut, :], value[..., :cut, :])
    return partial(ours, mask=masks.padding([cut])), short


def small_row(kind: str) -> tuple[Call, Call]:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    import regard
    from regard import masks

    front, width = ((1, 4), 16) if kind.startswith("heads ") else ((1,), 64)
    kind = kind.removeprefix("heads ")
    sides = [torch.randn(*front, 8, width) for _ in range(3)]
    if kind == "none":
        return partial(regard.attend, *sides), partial(sdpa, *sides)
    if kind == "causal":
        causal = masks.causal(align="start")
        return partial(regard.attend, *sides, mask=causal), partial(sdpa, *sides, is_causal=True)
    dense = (torch.arange(8) < 6).expand(*(1 for _ in front), 8, 8)
    padding = masks.padding([6])
    return partial(regard.attend, *sides, mask=padding), partial(sdpa, *sides, attn_mask=dense)


def token_row(kind: str) -> tuple[Call, Call]:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    import regard
    from regard import masks

    if kind == "heads":
        return cached_step()
    query = torch.randn(1, 8, 1, 64)
    key, value = (torch.randn(1, 8, 4096, 64) for _ in range(2))
    ours, fused = partial(regard.attend, query, key, value), partial(sdpa, query, key, value)
    if kind == "none":
        return ours, fused
    if kind == "causal":
        return partial(ours, mask=masks.causal(align="end")), fused
    dense = (torch.arange(4096) < 4000).expand(1, 1, 1, 4096)
    return partial(ours, mask=masks.padding([4000])), partial(fused, attn_mask=dense)


def cached_step() -> tuple[Call, Call]:
    """Sixteen steps of a decoder of width 512, after 512 others."""
    import torch
    from torch.nn.functional import linear
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    import regard

    heads = regard.MultiHeadAttention(512, 8).eval()
    prompt, steps = torch.randn(1, 512, 512), torch.randn(1, 16, 512).split(1, 1)
    weights = [
        getattr(heads, name).weight.detach()
        for name in ("query_projection", "key_projection", "value_projection", "output_projection")
    ]

    def split(side: torch.Tensor) -> torch.Tensor:
        return side.unflatten(-1, (8, 64)).transpose(-3, -2)

    def by_hand() -> None:
        key, value = (split(linear(prompt, weights[i])) for i in (1, 2))
        for step in steps:
            key = torch.cat([key, split(linear(step, weights[1]))], -2)
            value = torch.cat([value, split(linear(step, weights[2]))], -2)
            reading = sdpa(split(linear(step, weights[0])), key, value)
            linear(reading.transpose(-3, -2).flatten(-2), weights[3])

    def ours() -> None:
        memory = heads.remember(prompt)
        for step in steps:
            heads.remember(step, memory=memory)
            heads(step, memory=memory, mask=regard.masks.causal(align="end"))

    return ours, by_hand


def step_row(kind: str) -> tuple[Call, Call]:
    """A step of a decoder: one query, by a score that is a dot product."""
    import torch
    from torch.nn.functional import normalize

    import regard

    batch, width = (64, 256) if kind == "batch" else (1, 64)
    query, key = torch.randn(batch, 1, width), torch.randn(batch, 30, width)
    general = regard.scores.General(width, width)
    weight = general.weight.detach()
    score: Any = {"dot": regard.scores.Dot(), "cosine": regard.scores.Cosine()}.get(kind, general)
    kept, value = key, key
    if kind == "prepared":
        score, kept = regard.scores.prepare(general, key)

    def by_hand() -> torch.Tensor:
        sides = query, kept
        if kind == "cosine":
            sides = normalize(query, dim=-1), normalize(key, dim=-1)
        elif kind in ("general", "batch"):
            sides = query @ weight, key
        return torch.softmax(sides[0] @ sides[1].mT, -1) @ value

    return partial(regard.attend, query, kept, value, score=score), by_hand


def module_row(kind: str) -> tuple[Call, Call]:
    import torch

    import regard

    states = torch.randn(1, 8, 64)
    if kind.endswith("gradients"):
        return tuple(trained(call) for call in module_row(kind.removesuffix(" gradients")))  # type: ignore[return-value]
    if kind == "heads":
        theirs = torch.nn.MultiheadAttention(64, 4, bias=False, batch_first=True).eval()
        return partial(regard.MultiHeadAttention(64, 4).eval(), states), partial(
            theirs, states, states, states, need_weights=False
        )
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, 0.0, batch_first=True).eval()
    return partial(regard.TransformerBlock(64, 4).eval(), states), partial(layer, states)


def trained(call: Call) -> Call:
    """The call with gradients, and its backward pass."""
    import torch

    def both_passes() -> None:
        with torch.enable_grad():
            output = call()
            (output[0] if isinstance(output, tuple) else output).sum().backward()

    return both_passes


def additive_row(kind: str) -> tuple[Call, Call]:
    import torch

    import regard
    from regard import masks
    from regard.attention.kernels.additive import kernels

    for loops in getattr(
        kernels, "LOOPS", {}
    ).values():  # earlier versions compile when they are called
        loops.wait()

    if kind.startswith("look"):
        score = regard.scores.Additive(64, 64, 128)
        query, key, value = (torch.randn(1, 1024, 64) for _ in range(3))
        answers: dict[str, Callable[[Any], Any]] = {
            "received": lambda look: look.received(),
            "entropy": lambda look: look.entropy(),
            "log-normaliser": lambda look: look.log_normaliser(),
            "top": lambda look: look.top(8),
            "map": lambda look: look.map(128, 128),
        }
        answer = answers[kind.removeprefix("look ")]
        return (
            lambda: answer(regard.look(query, key, score=score)),
            partial(regard.attend, query, key, value, score=score),
        )
    if kind == "square":
        score, query, key = regard.scores.Additive(256, 256, 256), *sides(20, 20)
        eager = torch.compile(partial(eager_additive, score), fullgraph=True, dynamic=False)
        return partial(regard.attend, query, key, key, score=score), partial(eager, query, key)
    score, query, key = regard.scores.Additive(256, 256, 256), *sides(1, 30)

    prepared, projected = regard.scores.prepare(score, key)
    eager_keys = key @ score.key_weight.T
    mask, dense = None, None
    if kind.endswith("padding"):
        lengths = torch.randint(5, 31, (64,), generator=torch.Generator().manual_seed(0))
        mask = masks.padding(lengths)
        dense = torch.where(torch.arange(30) < lengths[:, None], 0.0, -torch.inf)[:, None]

    def eager_step() -> torch.Tensor:
        features = (query @ score.query_weight.T)[:, :, None] + eager_keys[:, None]
        scores = torch.tanh(features) @ score.weight.detach()
        return torch.softmax(scores if dense is None else scores + dense, -1) @ key

    def ours() -> torch.Tensor:
        return regard.attend(query, projected, key, score=prepared, mask=mask)

    return ours, eager_step


def sides(queries: int, keys: int) -> list[Any]:
    import torch

    return [torch.randn(64, queries, 256), torch.randn(64, keys, 256)]


def eager_additive(score: Any, query: Any, key: Any) -> Any:
    import torch

    features = (query @ score.query_weight.T)[:, :, None] + (key @ score.key_weight.T)[:, None]
    return torch.softmax(torch.tanh(features) @ score.weight, -1) @ key


def peak_memory(kind: str) -> float:
    """Megabytes over those held before the call, in this process."""
    import torch

    import regard
    from regard.attention.kernels.additive import kernels

    for loops in getattr(kernels, "LOOPS", {}).values():
        loops.wait()
    length, width = 8192, 64
    query, key, value = (torch.randn(1, length, width) for _ in range(3))

    def run(rows: int) -> None:
        if kind == "mask window memory":
            sides = (side[:, :rows] for side in (query, key, value))
            regard.attend(*sides, mask=regard.masks.band(128, 0))
            return
        with torch.enable_grad():
            score = regard.scores.Additive(width, width, 128)
            sides = [side[:, :rows].clone().requires_grad_() for side in (query, key, value)]
            regard.attend(*sides, score=score).sum().backward()

    run(256)
    Path("/proc/self/clear_refs").write_text("5")
    base = _status("VmRSS")
    run(length)
    return (_status("VmHWM") - base) / 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def first_minute(kind: str) -> float:
    """Processor seconds of a command in a new process, with an empty cache of machine code."""
    lines = 1 if kind == "first line" else 64
    if kind == "first additive":
        command = [sys.executable, "-c", FIRST_ADDITIVE]
    else:
        command = [sys.executable, "-m", "regard", "translate"]
    text = "".join(f"Tom tiene {n} perros en la casa de su amigo.\n" for n in range(lines))
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "XDG_CACHE_HOME": cache}
        usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            command, input=text, text=True, env=environment, capture_output=True, check=True
        )
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime - usage_before.ru_utime - usage_before.ru_stime


FIRST_ADDITIVE = """
import torch, regard
query, key = (torch.randn(4, 64, 64, requires_grad=True) for _ in range(2))
regard.attend(query, key, key, score=regard.scores.Additive(64, 64, 64)).sum().backward()
"""


def search_row(kind: str, as_written: bool = True) -> tuple[Call, Call]:
    """Validation sentences by the bundled es-en, and by the int8 search of CTranslate2 on the same weights."""
    import random

    from regard.errors import library
    from regard.interop import ctranslate2
    from regard.translation.text.corpora import Tsv, read_aligned
    from regard.translation.translator import Translator

    file = Path(os.environ["REGARD_DATA"]) / "tatoeba-spa-eng" / "valid.tsv"
    pairs = random.Random(1).sample(read_aligned(Tsv(file, 1, 0)), 128)
    texts = sorted((pair.source for pair in pairs), key=len)
    batches = [texts[start : start + 32] for start in range(0, len(texts), 32)]
    beam = 1 if kind == "greedy" else 5
    translator = Translator.open("es-en")
    settings = translator.search.as_written() if as_written else translator.search
    search = settings.changed(beam=beam)
    source, target = translator.tokenizers.source, translator.tokenizers.target
    pieces, words = (side.pieces(range(len(side))) for side in (source, target))
    ids = {word: i for i, word in enumerate(words)}
    with tempfile.TemporaryDirectory() as folder:
        ctranslate2.export(translator, Path(folder) / "model", "int8")
        peer_library = library("ctranslate2", "ctranslate2")
        theirs = peer_library.Translator(str(Path(folder) / "model"), intra_threads=1)

    def peer() -> None:
        for batch in batches:
            rows = [[pieces[i] for i in source.encode(text)] for text in batch]
            for answer in theirs.translate_batch(rows, beam_size=beam):
                target.decode([ids[word] for word in answer.hypotheses[0]])

    def ours() -> None:
        for batch in batches:
            translator.translate(batch, search=search)

    return ours, peer


# Measuring.


def measure(name: str, rounds: int) -> float:
    """The figure of one row, in this process."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    group, _, kind = name.partition(" ")
    if name.endswith("memory"):
        with torch.no_grad():
            return peak_memory(name)
    if group == "first":
        return first_minute(name)
    rows = {
        "mask": masks_row,
        "small": small_row,
        "token": token_row,
        "module": module_row,
        "step": step_row,
        "additive": additive_row,
        "search": search_row,
        "translate": partial(search_row, as_written=False),
    }
    with torch.no_grad():
        ours, peer = rows[group](kind)
        repeats = max(1, int(0.02 / max(1e-6, min(_seconds(ours, 3), _seconds(peer, 3)))))
        ratios = []
        for _ in range(rounds):
            numerator, denominator = _seconds(ours, repeats), _seconds(peer, repeats)
            ratios.append(numerator / denominator)
    return statistics.median(ratios)


def _seconds(call: Call, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats


def in_child(checkout: Path, name: str, rounds: int) -> float | None:
    """The figure of a row with the package of a checkout; None where the row fails there."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(FILE), "--row", name, "--rounds", str(rounds)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    if done.returncode:
        print(f"{name}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return float(done.stdout.split()[-1])


def table(results: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':58} {'before':>9} {'now':>9} {'goal':>7}  beside"]
    for name, figures in results.items():
        row = ROWS[name]
        cells = ["" if figure is None else f"{figure:.2f}" for figure in figures.values()]
        unit = row.peer or row.unit
        lines.append(f"{row.name:58} {cells[0]:>9} {cells[1]:>9} {cells[2]:>7}  {unit}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rows", default="", help="starts of the names of rows, with commas")
    parser.add_argument("--missing", action="store_true", help="only rows that FILE does not hold")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(measure(options.row, options.rounds))
        return
    starts = tuple(options.rows.split(","))
    results: dict[str, dict[str, Any]] = {}
    if options.out and options.out.exists():
        results = json.loads(options.out.read_text())["rows"]
    names = [name for name in ROWS if name.startswith(starts)]
    for name in (name for name in names if not (options.missing and name in results)):
        begin = time.monotonic()
        figures: dict[str, list[float]] = {"before": [], "now": []}
        for _ in range(options.turns):
            for column, checkout in (("before", options.before), ("now", FILE.parents[1])):
                figure = in_child(checkout, name, options.rounds) if checkout else None
                if figure is not None:
                    figures[column].append(figure)
        medians = {
            column: statistics.median(column_figures) if column_figures else None
            for column, column_figures in figures.items()
        }
        results[name] = {**medians, "goal": ROWS[name].goal}
        line, seconds = table({name: results[name]}).splitlines()[1], time.monotonic() - begin
        print(f"{line}   ({seconds:.0f} s)", flush=True)
        if options.out:
            from _measure import write

            in_order = {name: results[name] for name in ROWS if name in results}
            write(options.out, {"rows": in_order}, keeps=options.out)


if __name__ == "__main__":
    main()
