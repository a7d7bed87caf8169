"""The card of a trained model: architecture, scores, data, machine and commands."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from regard import files

if TYPE_CHECKING:
    from regard.translation.settings import Configuration, CorpusSettings
    from regard.translation.training.loop import Trainer
    from regard.translation.training.progress import Progress
    from regard.translation.training.validation import Quality

COMMANDS = "commands.txt"
REPEAT = "repeat.txt"
SCORES = "Scores"


def remember(folder: Path, command: str) -> None:
    """Append a command that wrote to a run folder, for its card."""
    files.append(folder / COMMANDS, (command + "\n").encode("utf-8", "backslashreplace"))


def keep_repeating(folder: Path, command: str | None) -> None:
    """Store the command that trains the same weights again; with None, delete a stored one."""
    if command is None:
        (folder / REPEAT).unlink(missing_ok=True)
    else:
        files.write(folder / REPEAT, (command + "\n").encode("utf-8", "backslashreplace"))


def repeating(folder: Path) -> str | None:
    """The command that `keep_repeating` stored."""
    try:
        return (folder / REPEAT).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def write(trainer: Trainer, quality: Quality, weights: str, name: str) -> str:
    """The card as Markdown. `regard models` shows its first paragraph and its scores."""
    import torch

    configuration, progress = trainer.configuration, trainer.progress
    data = configuration.data
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    commands_given = commands(trainer.run.folder) or ["unknown"]
    return "\n".join(
        [
            f"# {name}",
            "",
            f"{', '.join(data.source_languages)} to {', '.join(data.target_languages)}: "
            f"{_architecture(configuration)}, "
            f"{parameters / 1e6:.2f} million parameters.",
            "",
            f"{SCORES}: BLEU {quality.bleu:.2f}, chrF {quality.chrf:.2f}, exact match "
            f"{quality.exact:.2f}% (validation set, {trainer.validation.sentences} sentences, "
            f"greedy search; `regard evaluate` prints signatures)",
            "",
            f"- Data: {_data(configuration)}",
            f"- Licence and attribution of the data: {data.attribution or 'none given'}",
            f"- Weights: {weights}",
            f"{_trained(progress)}, {progress.epoch + 1} passes, "
            f"{progress.target_tokens:,} target tokens, {progress.seconds / 3600:.2f} hours of steps",
            f"- Machine: {_machine(str(trainer.device))}{_beside(trainer)}, {progress.precision} arithmetic, "
            f"torch {torch.__version__}",
            f"- Seed: {configuration.seed}",
            "- Command:",
            "",
            *[f"      {command}" for command in commands_given],
            "",
        ]
    )


def tells(folder: Path, progress: Progress) -> bool:
    """Whether the card in a folder was written after the same number of steps."""
    try:
        text = (folder / "card.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return f"{_trained(progress)}," in text


def summary(folder: Path) -> list[str]:
    """The first paragraph of a model's card and its scores; nothing where there is no card."""
    try:
        text = (folder / "card.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    lines = [line.strip() for line in text.split("\n")]
    plain = [line for line in lines if line and not line.startswith(("#", SCORES))]
    return plain[:1] + [line for line in lines if line.startswith(SCORES)]


def _trained(progress: Progress) -> str:
    return f"- Trained for {progress.step} steps"


def _architecture(configuration: Configuration) -> str:
    model = configuration.model
    layers = f"{model.encoder_layers}+{model.decoder_layers} layers"
    if model.kind == "transformer":
        return f"a Transformer, {layers} of width {model.width}, {model.heads} heads"
    attention = {
        "bahdanau": "with Bahdanau attention",
        "luong": "with Luong attention",
        "none": "without attention",
    }[model.attention]
    return f"a recurrent encoder-decoder ({model.cell.upper()}) {attention}, {layers} of width {model.decoder_width}"


def _data(configuration: Configuration) -> str:
    data = configuration.data
    if data.generated is not None:
        made = data.generated
        return f"generated from the seed: {made.train} {made.task} to learn from, {made.valid} to choose by"
    learnt = ", ".join(map(_corpus, data.training))
    return f"{learnt} to learn from, {', '.join(map(str, data.validation))} to choose by"


def _corpus(files: CorpusSettings) -> str:
    said = [] if files.tag is None else [f"tagged {files.tag}"]
    said += [] if files.weight == 1 else [f"{files.weight:g} times a pass"]
    return f"{files} ({', '.join(said)})" if said else str(files)


def commands(folder: Path) -> list[str]:
    """The commands that wrote to a run folder, oldest first."""
    try:
        text = (folder / COMMANDS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.split("\n") if line]


def _machine(device: str) -> str:
    import torch

    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    return f"{_processor()}, {torch.get_num_threads()} of {os.cpu_count()} cores"


def _beside(trainer: Trainer) -> str:
    size = trainer.processes.size
    return f", {size} processes" if size > 1 else ""


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n"):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
