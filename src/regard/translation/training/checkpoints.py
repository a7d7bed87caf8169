"""Checkpoints: folders named by their step, complete or absent, with the sha256 of every file."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from regard import files
from regard.errors import CheckpointError, CorruptedError, TrainingError, raised_as
from regard.translation import checksums, weights
from regard.translation.runs import Run
from regard.translation.runs.layout import (
    CHECKPOINT_FILES,
    CHECKPOINTS,
    MODEL,
    OPTIMISER,
    PROGRESS,
    TRAINED,
    checkpoint_name,
    checkpoint_sums,
)
from regard.translation.settings import toml
from regard.translation.training.progress import Progress, read_progress

RANDOM, RANDOM_CUDA = "random.cpu", "random.cuda"
_RANDOM_STATES = {RANDOM: torch.set_rng_state, RANDOM_CUDA: torch.cuda.set_rng_state}
# Numbers that an optimiser keeps of a weight: Adam, and Muon.
_KEPT = (("step", "exp_avg", "exp_avg_sq"), ("momentum_buffer",))


def save(run: Run, progress: Progress, model: nn.Module, optimiser: torch.optim.Optimizer) -> Path:
    """Write a checkpoint of this step, into a folder that is renamed once it is complete on the disk.

    Raises:
        TrainingError: a weight is not finite.
        CheckpointError: the files cannot be written.
    """
    state = weights.unique(model)
    for name, tensor in state.items():
        if not bool(torch.isfinite(tensor).all()):
            raise TrainingError(
                f"step {progress.step}: tensor {name} holds numbers that are not finite: training cannot go on; "
                "earlier checkpoints are untouched"
            )
    folder = run.folder / CHECKPOINTS
    final = folder / checkpoint_name(progress.step, progress.unvalidated)
    try:
        with files.new_folder(files.subfolder(folder) / final.name) as unfinished:
            weights.save(state, unfinished / MODEL)
            weights.save(_optimiser_state(model, optimiser), unfinished / OPTIMISER)
            files.write(unfinished / PROGRESS, json.dumps(asdict(progress)).encode())
            files.write(unfinished / TRAINED, toml.dump(run.configuration).encode())
            checksums.sign(unfinished, (*CHECKPOINT_FILES, TRAINED))
            if final.exists():
                shutil.rmtree(final)
    except OSError as fault:
        raise CheckpointError(
            f"{final}: cannot be saved: {fault.strerror}; earlier checkpoints are untouched"
        ) from None
    return final


def load(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer | None = None
) -> Progress:
    """Restore model, optimiser and random state from a checkpoint.

    Raises:
        CheckpointError: a file is corrupted, or in another format.
    """
    sums = checkpoint_sums(folder)
    progress = read_progress(folder / PROGRESS, sums[PROGRESS])
    path = folder / OPTIMISER
    state = weights.load(
        path, sums[OPTIMISER], lambda shapes: _check_optimiser_shapes(shapes, model, path)
    )
    for name in sorted(state.keys() - _RANDOM_STATES):
        weights.check_finite(name, state[name], torch.float32, path)
    weights.load_into(model, _weights(folder, model), folder / MODEL)
    if optimiser is not None:
        _restore_optimiser(state, model, optimiser, path)
    return progress


def load_newest(run: Run, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progress | None:
    """`load` the newest checkpoint of a run; None where there is none. The error for a broken one names a remedy."""
    newest = run.newest_checkpoint()
    if newest is None:
        return None
    try:
        run.check_resumable(newest)
        return load(newest, model, optimiser)
    except CorruptedError as fault:
        earlier = [step for step, folder in run.checkpoints() if folder != newest]
        way = f"to go on from step {earlier[-1]}" if earlier else "to begin anew"
        raise CorruptedError(f"{fault}: remove {newest} {way}") from None


def clean(run: Run) -> None:
    """Remove unfinished files of a killed process. Raises `CheckpointError` if `checkpoints` links elsewhere."""
    with raised_as(CheckpointError, str(run.folder / CHECKPOINTS)):
        files.subfolder(run.folder / CHECKPOINTS)
    for unfinished in (run.folder / CHECKPOINTS).glob(".*.tmp"):
        shutil.rmtree(unfinished, ignore_errors=True)
    for unfinished in (*run.folder.glob(".*.tmp"), *(run.folder / CHECKPOINTS).glob(".*.lock")):
        unfinished.unlink(missing_ok=True)


def prune(run: Run, keep: set[int]) -> None:
    """Remove the checkpoints of all other steps, and unvalidated ones that have a validated successor."""
    newest = dict(run.checkpoints())
    for step, folder in run.checkpoints():
        if step not in keep or folder != newest[step]:
            shutil.rmtree(folder, ignore_errors=True)


def mean(folders: list[Path], model: nn.Module) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints of a model (arXiv 1706.03762, section 6.1).

    Raises:
        CheckpointError: a file is corrupted.
    """
    loaded = []
    for folder in folders:
        try:
            loaded.append(_weights(folder, model))
        except CorruptedError as fault:
            raise CorruptedError(
                f"{fault}: remove {folder}, and --resume chooses without it"
            ) from None
    return {
        name: (sum(tensors[name].double() for tensors in loaded) / len(loaded)).to(first.dtype)  # type: ignore[union-attr]
        for name, first in loaded[0].items()
    }


def _weights(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    path = folder / MODEL
    return weights.load(
        path,
        checkpoint_sums(folder)[MODEL],
        lambda shapes: weights.check_shapes(model, shapes, path),
    )


def _optimiser_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {RANDOM: torch.get_rng_state()}
    if torch.cuda.is_available():
        state[RANDOM_CUDA] = torch.cuda.get_rng_state()
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            # safetensors refuses tensors that share memory.
            state[f"{key}.{name}"] = torch.as_tensor(value).detach().clone()
    return state


def _check_optimiser_shapes(shapes: weights.Shapes, model: nn.Module, path: Path) -> None:
    expected = {RANDOM: (), **{name: shapes[name] for name in _RANDOM_STATES if name in shapes}}
    for name, parameter in model.named_parameters():
        for keys in _KEPT:
            parameter_shapes = {
                f"{key}.{name}": () if key == "step" else tuple(parameter.shape) for key in keys
            }
            # A parameter that was never used has no state.
            if parameter_shapes.keys() & shapes.keys():
                expected |= parameter_shapes
    weights.compare_shapes(expected, shapes, path)


def _restore_optimiser(
    state: dict[str, Tensor], model: nn.Module, optimiser: torch.optim.Optimizer, path: Path
) -> None:
    for name, restore in _RANDOM_STATES.items():
        # A training that began on a GPU may continue without one.
        if name in state and (name == RANDOM or torch.cuda.is_available()):
            try:
                restore(state[name])
            except (RuntimeError, TypeError) as fault:
                raise CheckpointError(
                    f"{path}: tensor {name} is not a random state: {fault}"
                ) from None
    for name, parameter in model.named_parameters():
        for keys in _KEPT:
            if f"{keys[0]}.{name}" in state:
                optimiser.state[parameter] = {
                    key: state[f"{key}.{name}"].to(parameter.device) for key in keys
                }
