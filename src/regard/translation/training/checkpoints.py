"""Checkpoints: whole or absent, with the sha256 of every file, named by their step."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import files
from regard.translation import weights
from regard.translation.errors import CheckpointError, TrainingError
from regard.translation.runs import CHECKPOINTS, MODEL, Run, read_sums, write_sums

VERSION = 1
OPTIMISER = "optimiser.safetensors"
PROGRESS = "progress.json"


@dataclass
class Progress:
    """Where a training stands."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    precision: str = ""
    best_score: float | None = None
    best: list[tuple[float, int]] = field(default_factory=list)
    without_progress: int = 0
    plateaus: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    finished: str = ""
    version: int = VERSION


def save(run: Run, progress: Progress, model: nn.Module, optimiser: torch.optim.Optimizer) -> Path:
    """Write a checkpoint of this step: into a folder of another name, renamed once it is on the disk.

    Raises `TrainingError` for weights that are no numbers, `CheckpointError` for a disk that takes no more.
    """
    state = weights.unique(model)
    for name, tensor in state.items():
        if not bool(torch.isfinite(tensor).all()):
            raise TrainingError(
                f"step {progress.step}: tensor {name} holds numbers that are not finite: training cannot go on; "
                "earlier checkpoints are untouched"
            )
    folder = run.folder / CHECKPOINTS
    final = folder / f"step-{progress.step}"
    unfinished = folder / f".step-{progress.step}.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished.mkdir()
        weights.save(state, unfinished / MODEL)
        weights.save(_optimiser_state(model, optimiser), unfinished / OPTIMISER)
        files.write(unfinished / PROGRESS, json.dumps(asdict(progress)).encode())
        write_sums(unfinished, [MODEL, OPTIMISER, PROGRESS])
        if final.exists():
            shutil.rmtree(final)
        unfinished.rename(final)
        files.sync_folder(folder)
    except OSError as fault:
        raise CheckpointError(
            f"{final}: cannot be saved: {fault.strerror}; earlier checkpoints are untouched"
        ) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return final


def load(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer | None = None
) -> Progress:
    """Give model and optimiser (and the random numbers) the state of a checkpoint.

    Raises `CheckpointError` naming the file that is corrupted, or both versions when the format is another.
    """
    sums = read_sums(folder)
    for name in (MODEL, OPTIMISER, PROGRESS):
        path = folder / name
        try:
            found = weights.sha256(path)
        except OSError as fault:
            raise CheckpointError(f"{path}: cannot be read: {fault.strerror}") from None
        if sums.get(name) != found:
            raise CheckpointError(
                f"{path}: corrupted or truncated: its sha256 is not the one saved with it"
            )
    progress = _progress(folder / PROGRESS)
    weights.load_into(model, weights.load(folder / MODEL), folder / MODEL)
    if optimiser is not None:
        _restore_optimiser(weights.load(folder / OPTIMISER), model, optimiser, folder / OPTIMISER)
    return progress


def clean(run: Run) -> None:
    """Remove what a killed process never finished."""
    for unfinished in (run.folder / CHECKPOINTS).glob(".*.tmp"):
        shutil.rmtree(unfinished, ignore_errors=True)
    for unfinished in run.folder.glob(".*.tmp"):
        unfinished.unlink(missing_ok=True)


def prune(run: Run, keep: set[int]) -> None:
    """Remove the checkpoints of other steps."""
    for folder in (run.folder / CHECKPOINTS).glob("step-*"):
        number = folder.name.removeprefix("step-")
        if number.isdigit() and int(number) not in keep:
            shutil.rmtree(folder, ignore_errors=True)


def mean(folders: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints (arXiv 1706.03762, section 6.1)."""
    loaded = [weights.load(folder / MODEL) for folder in folders]
    return {
        name: (sum(tensors[name].double() for tensors in loaded) / len(loaded)).to(first.dtype)  # type: ignore[union-attr]
        for name, first in loaded[0].items()
    }


def _optimiser_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["random.cuda"] = torch.cuda.get_rng_state()
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            # safetensors refuses memory shared between names; each entry is a copy of its own.
            state[f"{key}.{name}"] = torch.as_tensor(value).detach().clone()
    return state


def _restore_optimiser(
    state: dict[str, Tensor], model: nn.Module, optimiser: torch.optim.Optimizer, path: Path
) -> None:
    random = state.pop("random.cpu", None)
    if random is None:
        raise CheckpointError(f"{path}: tensor random.cpu is missing")
    torch.set_rng_state(random)
    cuda = state.pop("random.cuda", None)
    if cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(cuda)
    for name, parameter in model.named_parameters():
        entries: dict[str, Any] = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            value = state.get(f"{key}.{name}")
            if value is not None:
                entries[key] = value.to(parameter.device)
        if entries:
            optimiser.state[parameter] = entries


def _progress(path: Path) -> Progress:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if table.get("version") != VERSION:
            raise CheckpointError(
                f"{path}: written in format {table.get('version')}, this program reads format {VERSION}"
            )
        progress = Progress(**table)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as fault:
        raise CheckpointError(f"{path}: corrupted or truncated: {fault}") from None
    progress.best = [(float(score), int(step)) for score, step in progress.best]
    return progress
