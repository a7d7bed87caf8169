"""A folder with every file that the documents name, so that their commands run in it."""

import json
import random
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tests.journeys.commands import run
from tests.journeys.conftest import WORDS

from regard.translation.settings.toml import dump, parse

# What the pages train is made small: their options count, and a few steps are taken.
STEPS = {
    "training.max_steps": 4,
    "training.warmup": 1,
    "training.validate_every": 2,
    "training.validate_sentences": 4,
    "training.save_every": 2,
    "training.precision": "float32",
    "training.threads": 1,
}
GENERATED = {"data.generated.train": 400, "data.generated.valid": 20, "data.generated.test": 20}
TRANSFORMER = {
    "tokenizer.vocabulary_size": 330,
    "model.width": 16,
    "model.heads": 2,
    "model.feed_forward": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "search.length_ratio": 1.0,  # what has learnt nothing ends no sentence by itself
    "search.length_margin": 2,
}
SIZES = {"corpus": 400, "train": 200, "valid": 20, "test": 20, "one": 400, "two": 200}
COPIES = "my own en-fr fr-en en-es".split()
MODEL = """\
import torch


def example():
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(16, nhead=2, batch_first=True).eval()
    return layer, torch.randn(1, 5, 16)
"""


def shortened(command: list[str]) -> list[str]:
    """The same command, but a training that begins is a short one, and a test set is small."""
    if command[:2] == ["data", "split"]:
        option_names = [name for name in ("--valid", "--test") if name in command]
        values = {command.index(name) + 1 for name in option_names}
        words = ["20" if at in values else word for at, word in enumerate(command)]
        return [
            *words,
            *(f"{name}=20" for name in ("--valid", "--test") if name not in option_names),
        ]
    if command[0] != "train" or "--resume" in command:
        return command
    changes = STEPS | (GENERATED if command[1] == "dates" else {})
    option_names = [each.partition("=")[0] for each in command]
    options = [f"--set={key}={value}" for key, value in changes.items() if key not in option_names]
    replaced = [
        f"{key}={changes[key]}" if key in changes else each
        for key, each in zip(option_names, command, strict=True)
    ]
    return [*replaced, *options]


def build(folder: Path, configuration: str) -> None:
    """Write corpora, models and what else the pages name; `configuration` is the my.toml of the guide."""
    for seed, (name, count) in enumerate(SIZES.items()):
        source, target = _sentences(count, seed)
        for language, lines in (("es", source), ("en", target), ("fr", target)):
            _write(folder / f"{name}.{language}", lines)
        pairs = [f"{one}\t{other}" for one, other in zip(source, target, strict=True)]
        _write(folder / f"{name}.tsv", pairs)
        if name in ("train", "valid", "test"):
            _write(folder / "parts" / f"{name}.tsv", pairs)
            _write(folder / "FOLDER" / "parts" / f"{name}.tsv", pairs)
    for name in ("text.es", "text.ro", "book.es", "mono.fr", "news.fr", "es.txt"):
        _write(folder / name, ["El gato negro duerme.", "Hace frío."])
    for name in ("text.en", "en.txt"):
        _write(folder / name, ["The black cat sleeps.", "It is cold."])
    for name in ("old.tsv", "glossary.tsv"):
        _write(folder / name, ["The cat sleeps.\tEl gato duerme.", "It is cold.\tHace frío."])
    _write(folder / "film.es.srt", ["1", "00:00:01,000 --> 00:00:02,000", "Hace frío."])
    _write(folder / "messages.po", ['msgid "Hace frío."', 'msgstr ""'])
    shutil.copy(folder / "test.en", folder / "translations.txt")
    own_text = dump(parse(configuration, "my.toml", _changes(STEPS | TRANSFORMER)))
    for name in ("my.toml", "both.toml"):
        (folder / name).write_text(own_text, encoding="utf-8")
    (folder / "my_model.py").write_text(MODEL, encoding="utf-8")
    torch.manual_seed(1)
    save_file(
        {name: torch.randn(2, 6, 8) for name in ("query", "key")}, folder / "saved.safetensors"
    )
    pair = {"src": "El gato come .".split(), "tgt": "The cat eats .".split()}
    links = {"sure": [[0, 0], [1, 1], [2, 2], [3, 3]], "possible": []}
    _write(folder / "gold.jsonl", [json.dumps(pair | links)] * 6)
    for command in (
        "train my.toml --run runs/mine",
        "train my.toml --run runs/post --set model.norm=post",
        "train dates",
        "export --model runs/post --to huggingface opus-mt-es-en",
    ):
        result = run(*shortened(command.split()))
        assert result.code == 0, result
    for name in COPIES:
        shutil.copytree(folder / "runs" / "mine", folder / "runs" / name)
    shutil.copy(folder / "runs" / "mine" / "tokenizer.model", folder)


def _changes(values: dict[str, object]) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in values.items())


def _sentences(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Sentences of two languages, each with a number of its own: no two pairs share a sentence."""
    dice = random.Random(seed)
    words = list(WORDS)
    source, target = [], []
    for number in dice.sample(range(10_000, 99_999), count):
        name, verb, object_word = (
            dice.choice(words[:6]),
            dice.choice(words[6:10]),
            dice.choice(words[:6]),
        )
        source.append(f"El {name} {verb} {number} {object_word}.")
        target.append(f"The {WORDS[name]} {WORDS[verb]} {number} {WORDS[object_word]}.")
    return source, target


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
