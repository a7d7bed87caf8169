"""The weights to publish: those of the best checkpoint, or the mean of the best ones if that is better."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from regard.translation import weights
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Run
from regard.translation.training import checkpoints
from regard.translation.training.progress import Progress


def best_weights(
    run: Run, progress: Progress, model: TranslationModel, score: Callable[[], float]
) -> tuple[dict[str, Tensor], str]:
    """The weights to publish, chosen on the validation set, and their description.

    Args:
        run: the run with the checkpoints.
        progress: holds the scores of the best checkpoints.
        model: is given the mean to score it, and its own weights back.
        score: returns the score of the weights that the model has now; larger is better.
    """
    kept = dict(run.checkpoints())
    best = [(of, step) for of, step in progress.best if step in kept]
    steps = [step for _, step in best]
    if not steps:
        own = {name: tensor.clone() for name, tensor in weights.unique(model).items()}
        return own, f"the weights of step {progress.step}"
    single = checkpoints.mean([kept[steps[0]]], model)
    if not run.configuration.training.average or len(steps) < 2:
        return single, f"the weights of step {steps[0]}"
    averaged = checkpoints.mean([kept[step] for step in steps], model)
    own = {name: tensor.clone() for name, tensor in weights.unique(model).items()}
    try:
        weights.load_into(model, averaged, run.folder)
        better = score() >= best[0][0]
    finally:
        weights.load_into(model, own, run.folder)
    if better:
        listed = ", ".join(str(step) for step in sorted(steps))
        return averaged, f"the mean of the weights of steps {listed}"
    return single, f"the weights of step {steps[0]}"
