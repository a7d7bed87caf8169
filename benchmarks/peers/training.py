"""Steps of training beside other projects': the same batches, shape of model and thread, in turns.

REGARD_DATA=data python benchmarks/peers/training.py [--joeynmt FOLDER] [--steps 8] [--out FILE] [--plot]
REGARD_DATA=data python benchmarks/peers/training.py --recurrent [--joeynmt FOLDER] [--steps 8] [--out FILE]

Multi30k English to German, a vocabulary of 8,000, 3 + 3 layers of width 256 (feed-forward 1,024, 4 heads,
dropout 0.1, one embedding for all), batches of 2,048 positions with sentences of like length together, as
`regard train` makes them. Everybody takes each batch in turn, with Adam, clipping and a smoothed loss; the rate
is the median over the batches of real target tokens by seconds. All in plain float32, in one process. With
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_TOP_PAD_=67108864 in the environment, the allocator of
the GNU C library keeps freed memory for the next step, for everybody.

--recurrent is of GRUs with additive attention, all widths 256: ours, which reads the source before each step as
Bahdanau et al. do, a plain PyTorch loop of the same, and JoeyNMT's, which reads after each step and feeds that to
the next (7% fewer numbers to learn); "regard, reading after" has JoeyNMT's order. --more goes on with the batches
behind those that the file holds, so that a machine that is free for a minute at a time is enough; models begin anew.

--joeynmt takes the site-packages folder of an environment made by
    python3 -m venv joey && joey/bin/pip install torch numpy 'sentencepiece<0.2.1' 'setuptools<81' sacrebleu \\
        pyyaml datasets matplotlib pillow tensorboard subword-nmt packaging portalocker importlib_metadata
    joey/bin/pip install --no-deps joeynmt==2.3.0
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _recurrent
from _measure import write
from _steps import Step, joeynmt, marian, ours, parameters, plain

from regard.translation.settings import toml
from regard.translation.settings.configuration import Configuration
from regard.translation.training.data import learn_tokenizers, read_data
from regard.translation.training.epochs import Epochs
from regard.translation.training.processes import Processes
from regard.translation.training.reporting import Observer

CHANGES = (
    *("tokenizer.vocabulary_size=8000", "tokenizer.sampling=0.0", "training.batch_tokens=2048"),
    *("model.width=256", "model.feed_forward=1024", "model.encoder_layers=3"),
    *("model.decoder_layers=3", "model.dropout=0.1"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--joeynmt", type=Path)
    parser.add_argument("--recurrent", action="store_true")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--more", action="store_true", help="beside the steps that --out holds")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", action="store_true", help="draw what is in --out and beside it")
    options = parser.parse_args()
    kind = "recurrent" if options.recurrent else "training"
    options.out = options.out or Path(f"benchmarks/results/peers_{kind}.json")
    if options.plot:
        plot(options.out, options.out.with_name("peers_commands.json"))
        return
    torch.set_num_threads(options.threads)
    configuration = toml.read(Path("src/regard/configs/multi30k-en-de.toml"), CHANGES)
    data = read_data(configuration.data, Path(os.environ["REGARD_DATA"]), 1)
    tokenizers = learn_tokenizers(configuration, data.train, Processes(), Observer())
    epochs = Epochs(data.train, tokenizers, configuration)
    size = len(tokenizers.target)
    torch.manual_seed(0)
    steps = (recurrent if options.recurrent else transformers)(configuration, size, options.joeynmt)
    stored = json.loads(options.out.read_text())["training steps"] if options.more else {}
    rates: dict[str, list[float]] = {name: stored[name]["each"] if stored else [] for name in steps}
    losses: dict[str, float] = {}
    done = len(rates["regard"])
    for number in range(options.steps + 1):
        batch = epochs.part(0, done + number).batch
        for name, step in steps.items():
            start = time.perf_counter()
            losses[name] = step(batch)
            rate = batch.target_tokens / (time.perf_counter() - start)
            if number:  # the first warms up
                rates[name].append(rate)
    results = {
        name: {
            "target tokens a second": statistics.median(taken),
            "times as fast as": statistics.median(
                a / b for a, b in zip(rates["regard"], taken, strict=True)
            ),
            "parameters": parameters(steps[name]),
            "last loss": losses[name],
            "each": [round(rate, 1) for rate in taken],
        }
        for name, taken in rates.items()
    }
    for name, figures in results.items():
        print(name, {k: v for k, v in figures.items() if k != "each"}, flush=True)
    write(options.out, {"memory kept": "MALLOC_TOP_PAD_" in os.environ, "training steps": results})


def transformers(configuration: Configuration, size: int, packages: Path | None) -> dict[str, Step]:
    steps = {
        "regard": ours(configuration, size),
        "nn.Transformer": plain(size),
        "Hugging Face Marian": marian(size),
    }
    return {**steps, "JoeyNMT": joeynmt(size, packages)} if packages else steps


def recurrent(_: Configuration, size: int, packages: Path | None) -> dict[str, Step]:
    path = Path("benchmarks/quality/recurrent.toml")
    steps = {
        "regard": ours(toml.read(path, _recurrent.OURS), size),
        "regard, reading after": ours(toml.read(path, _recurrent.AFTER), size),
        "plain PyTorch": _recurrent.plain(size),
    }
    if packages:
        steps["JoeyNMT"] = joeynmt(size, packages, _recurrent.JOEYNMT)
    return steps


def plot(steps: Path, commands: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    beside = steps.with_name("peers_recurrent.json")
    tables = {
        "a step, the same batches": json.loads(steps.read_text())["training steps"],
        "the command, its own batches": json.loads(commands.read_text())["training commands"],
        "a step of GRUs with attention": json.loads(beside.read_text())["training steps"],
    }
    figure, panels = plt.subplots(1, 3, figsize=(14, 3), layout="constrained")
    for panel, (title, rows) in zip(panels, tables.items(), strict=True):
        names = list(rows)[::-1]
        rates = [rows[name]["target tokens a second"] for name in names]
        colours = ["#0b6e8a" if name.startswith("regard") else "#b9c4c9" for name in names]
        panel.bar_label(panel.barh(names, rates, color=colours), fmt="{:,.0f}", padding=3)
        panel.margins(x=0.2)
        panel.set_title(title)
        panel.set_xlabel("target tokens a second, one thread, float32")
    figure.savefig(steps.with_suffix(".png"), dpi=120)


if __name__ == "__main__":
    main()
