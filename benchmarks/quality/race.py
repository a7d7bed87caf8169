"""BLEU over minutes: `regard train tatoeba-es-en` as shipped, beside a plain loop around Hugging Face's Marian.

REGARD_DATA=data python benchmarks/quality/race.py FOLDER [--steps N] [--minutes 45] [--threads 2]
    [--seeds 1 2 3] [--only regard marian] [--out benchmarks/results/race.json]

Both begin with the same raw text, and learn a tokenizer of 6,000 pieces from it first. The clock of Regard runs from
the start of the command to its end; that of Marian begins after its imports. Regard trains for --steps, or else for as
many as its configuration says; Marian has --minutes, at whose end its learning rate is 0. Its model has the shape of
es-en (7.3 million parameters), its loop AdamW, bfloat16 autocast, label smoothing and Regard's own batches, without
noise and with one division of each word into pieces.

The curve is BLEU of greedy translations of 500 validation sentences, whose time the clock counts. At the end, all 2,000
validation sentences are translated with beam 5, by no clock. Test files are not read. What --out holds is not run
again; remove FOLDER/regard-SEED of a race that was interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))

from _measure import write
from _steps import SMOOTHING, marian_logits, marian_model
from _training import progress, settings

from regard.cli import shipped
from regard.translation.evaluation.scores import measure
from regard.translation.runs import Tokenizers
from regard.translation.settings import toml
from regard.translation.settings.data import NoiseSettings
from regard.translation.text.corpora import Pair
from regard.translation.text.tokenizer import EOS, PAD
from regard.translation.training import memory
from regard.translation.training.data import learn_tokenizers, read_data
from regard.translation.training.epochs import Epochs
from regard.translation.training.processes import Processes
from regard.translation.training.reporting import Observer
from regard.translation.training.validation import Validation
from regard.translation.translator import Translator

CONFIGURATION = "tatoeba-es-en"
RATE, WARMUP = 1.5e-3, 400
EVERY = 5  # minutes between two validations of Marian
LONGEST = 100  # pieces of a translation


def bleu(texts: Sequence[str], pairs: Sequence[Pair]) -> float:
    return measure(texts, [pair.target for pair in pairs], measures=["bleu"]).bleu or 0.0


def regard(folder: Path, seed: int, threads: int, steps: int | None) -> dict[str, Any]:
    """The command as a user gives it. Its curve is read from the run folder while it trains."""
    curve: list[list[float]] = []
    run, start = folder / f"regard-{seed}", time.monotonic()
    changes = settings(seed=seed, training__threads=threads)
    if steps:  # with three validations, as the configuration has them
        changes += settings(training__max_steps=steps, training__validate_every=-(-steps // 3))
    command = [sys.executable, "-m", "regard", "train", CONFIGURATION, "--run", str(run), *changes]
    process = subprocess.Popen(command)
    while process.poll() is None:
        time.sleep(1)
        metrics = run / "metrics.jsonl"
        lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []
        scores = [each["bleu"] for each in map(json.loads, lines) if each["kind"] == "validation"]
        minutes = (time.monotonic() - start) / 60
        curve += [[minutes, each] for each in scores[len(curve) :]]
    minutes = (time.monotonic() - start) / 60
    if process.returncode:
        raise SystemExit(f"regard train ended with {process.returncode}")
    translator = Translator.open(run)
    translator.search = translator.search.as_written()
    pairs = read_data(
        translator.run.configuration.data, Path(os.environ["REGARD_DATA"]), seed
    ).valid
    scores = translator.translate([pair.source for pair in pairs])
    took = progress(run)
    return {
        "minutes": minutes,
        "steps": took["step"],
        "target_tokens": took["target_tokens"],
        "precision": took["precision"],
        "curve": curve,
        "validation": bleu([each.text for each in scores], pairs),
    }


def marian(seed: int, threads: int, limit: float) -> dict[str, Any]:
    start = time.monotonic()
    torch.set_num_threads(threads)
    plain = settings(
        seed=seed,
        tokenizer__sampling=0.0,
        **{f"data__noise__{each}": 0 for each in NoiseSettings.model_fields},
    )
    configuration = toml.read(shipped.configuration(CONFIGURATION), tuple(plain[1::2]))
    data = read_data(configuration.data, Path(os.environ["REGARD_DATA"]), seed)
    tokenizers = learn_tokenizers(configuration, data.train, Processes(), Observer())
    epochs = Epochs(data.train, tokenizers, configuration)
    sample = Validation(data.valid, tokenizers, configuration.training, seed).pairs
    torch.manual_seed(seed)
    model = marian_model(len(tokenizers.target))
    optimiser = torch.optim.AdamW(model.parameters(), RATE, (0.9, 0.98), weight_decay=0.0)
    entropy = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=SMOOTHING)
    epoch = number = steps = tokens = 0
    curve: list[list[float]] = []
    while (minutes := (time.monotonic() - start) / 60) < limit:
        if number == epochs.batches(epoch):
            epoch, number = epoch + 1, 0
        batch = epochs.part(epoch, number).batch
        number, steps, tokens = number + 1, steps + 1, tokens + batch.target_tokens
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, steps / WARMUP) * (1 - minutes / limit)
        with torch.autocast("cpu", torch.bfloat16):
            logits = marian_logits(model, batch)
        loss = entropy(logits.float().flatten(0, 1), batch.target_out.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        if steps % 50 == 0:
            print(
                f"marian: step {steps}, {minutes:.1f} minutes, loss {float(loss.detach()):.3f}",
                flush=True,
            )
        if minutes > EVERY * (len(curve) + 1):
            score = bleu(generated(model, tokenizers, sample, 1), sample)
            curve.append([(time.monotonic() - start) / 60, score])
            print(f"marian: BLEU {score:.2f}", flush=True)
    minutes = (time.monotonic() - start) / 60
    texts = generated(model, tokenizers, data.valid, 5)
    return {
        "minutes": minutes,
        "steps": steps,
        "target_tokens": tokens,
        "precision": "bfloat16",
        "curve": curve,
        "validation": bleu(texts, data.valid),
    }


@torch.no_grad()
def generated(model: Any, tokenizers: Tokenizers, pairs: Sequence[Pair], beam: int) -> list[str]:
    """Translations by Hugging Face's `generate`, sentences of like length together."""
    sources = [torch.tensor([*tokenizers.source.encode(pair.source), EOS]) for pair in pairs]
    order = sorted(range(len(pairs)), key=lambda row: len(sources[row]))
    texts = [""] * len(pairs)
    model.eval()
    for start in range(0, len(order), 50):
        rows = order[start : start + 50]
        read = nn.utils.rnn.pad_sequence([sources[row] for row in rows], True, PAD)
        mask = (read != PAD).long()
        outputs = model.generate(
            read, attention_mask=mask, num_beams=beam, max_new_tokens=LONGEST, use_cache=True
        )
        for row, ids in zip(rows, outputs.tolist(), strict=True):
            texts[row] = tokenizers.target.decode([each for each in ids if each > EOS])
    model.train()
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--only", nargs="+", choices=["regard", "marian"], default=["regard", "marian"]
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    memory.keep()  # for both, as regard train does it
    is_stored = options.out is not None and options.out.exists()
    table = json.loads(options.out.read_text())["table"] if is_stored else {}
    for seed in options.seeds:
        for name in options.only:
            if f"{name} {seed}" in table:
                continue
            common = seed, options.threads
            run = (
                regard(options.folder, *common, options.steps)
                if name == "regard"
                else marian(*common, options.minutes)
            )
            table[f"{name} {seed}"] = run
            print(name, seed, run, flush=True)
            if options.out:
                write(
                    options.out,
                    {"configuration": CONFIGURATION, "threads": options.threads, "table": table},
                )


if __name__ == "__main__":
    main()
