"""The card of a trained model: architecture, scores, data, machine and commands; the commands of a run folder."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard import files

if TYPE_CHECKING:
    from regard.translation.settings.configuration import Configuration
    from regard.translation.settings.data import CorpusSettings
    from regard.translation.training.loop import Trainer
    from regard.translation.training.progress import Progress
    from regard.translation.training.reporting import Quality

CARD, COMMANDS, REPEAT = "card.md", "commands.txt", "repeat.txt"
SCORES = "Scores"


def typed(arguments: Sequence[str]) -> str:
    """A `regard` command as it is typed, with torchrun before it where torchrun started this process.

    >>> typed(["train", "my corpus.toml"])
    "regard train 'my corpus.toml'"
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes == 1:
        return shlex.join(["regard", *arguments])
    local = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    machines = ["--nnodes", str(processes // local)] if processes > local else []
    launcher = ["torchrun", *machines, "--nproc-per-node", str(local)]
    # After --, torchrun does not take options such as --run for its own.
    return shlex.join([*launcher, "-m", "--", "regard", *arguments])


def remember(folder: Path, command: str) -> None:
    """Append a command that wrote to a run folder, for its card."""
    files.append(folder / COMMANDS, (command + "\n").encode("utf-8", "backslashreplace"))


def commands(folder: Path) -> list[str]:
    """The commands that wrote to a run folder, oldest first."""
    return [line for line in _text(folder / COMMANDS).split("\n") if line]


def keep_repeating(folder: Path, command: str | None) -> None:
    """Store the command that trains the same weights again; with None, delete a stored one."""
    if command is None:
        (folder / REPEAT).unlink(missing_ok=True)
    else:
        files.write(folder / REPEAT, (command + "\n").encode("utf-8", "backslashreplace"))


def repeating(folder: Path) -> str | None:
    """The command that `keep_repeating` stored."""
    return _text(folder / REPEAT).strip() or None


def write(trainer: Trainer, quality: Quality, weights: str, name: str) -> str:
    """The card as Markdown. `regard models` shows its first paragraph and its scores."""
    import torch

    configuration, progress = trainer.configuration, trainer.progress
    data, size = configuration.data, trainer.processes.size
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    beside = f", {size} processes" if size > 1 else ""
    typed_commands = "\n".join(
        f"      {each}" for each in commands(trainer.run.folder) or ["unknown"]
    )
    return f"""# {name}

{", ".join(data.source_languages)} to {", ".join(data.target_languages)}: \
{_architecture(configuration)}, {parameters / 1e6:.2f} million parameters.

{SCORES}: BLEU {quality.bleu:.2f}, chrF {quality.chrf:.2f}, exact match {quality.exact:.2f}% (validation set, \
{len(trainer.validation.pairs)} sentences, greedy search; `regard evaluate` prints signatures)

- Data: {_data(configuration)}
- Licence and attribution of the data: {data.attribution or "none given"}
- Weights: {weights}
{_trained(progress)}, {progress.epoch + 1} passes, {progress.target_tokens:,} target tokens, \
{progress.seconds / 3600:.2f} hours of steps
- Machine: {_machine(str(trainer.device))}{beside}, {progress.precision} arithmetic, torch {torch.__version__}
- Seed: {configuration.seed}
- Command:

{typed_commands}
"""


def is_current(folder: Path, progress: Progress) -> bool:
    """Whether the card in a folder was written after the same number of steps."""
    return f"{_trained(progress)}," in _text(folder / CARD)


def summary(folder: Path) -> list[str]:
    """The first paragraph of a model's card and its scores; nothing where there is no card."""
    lines = [line.strip() for line in _text(folder / CARD).split("\n")]
    plain = [line for line in lines if line and not line.startswith(("#", SCORES))]
    return plain[:1] + [line for line in lines if line.startswith(SCORES)]


def _text(path: Path) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


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
        generated = data.generated
        return (
            f"generated from the seed: {generated.train} {generated.task} to learn from, "
            f"{generated.valid} to choose by"
        )
    corpora = ", ".join(map(_corpus, data.training))
    if data.distillation is not None:
        corpora += f" and translations by {' and '.join(data.distillation.teacher)} of the sources that people wrote"
    return f"{corpora} to learn from, {', '.join(map(str, data.validation))} to choose by"


def _corpus(files: CorpusSettings) -> str:
    notes = [] if files.tag is None else [f"tagged {files.tag}"]
    notes += (
        [] if files.back_translator is None else [f"translated back by {files.back_translator}"]
    )
    notes += [] if files.weight == 1 else [f"{files.weight:g} times a pass"]
    return f"{files} ({', '.join(notes)})" if notes else str(files)


def _machine(device: str) -> str:
    import torch

    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    models = [
        line for line in _text(Path("/proc/cpuinfo")).split("\n") if line.startswith("model name")
    ]
    name = models[0].partition(":")[2].strip() if models else platform.processor()
    return f"{name or platform.machine()}, {torch.get_num_threads()} of {os.cpu_count()} cores"
