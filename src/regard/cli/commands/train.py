"""`regard train`: from a configuration to a model that can be used."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import card, shipped
from regard.cli.options import corpora
from regard.cli.options.model import Device, check_device
from regard.cli.output import report
from regard.cli.signals import Interrupted, Signals, first_failure_only
from regard.cli.writing import writing
from regard.errors import ConfigurationError, DataError, ModelError

if TYPE_CHECKING:
    from regard.cli.output.progress import Reporter
    from regard.translation.settings.configuration import Configuration
    from regard.translation.text.corpora import Pair
    from regard.translation.training.loop import Trainer
    from regard.translation.training.preparation import Synthesise
    from regard.translation.training.processes import Processes


@dataclass(frozen=True)
class TrainOptions:
    """The configuration, the corpora and the run folder of a training.

    Attributes:
        config: A TOML file, a shipped configuration's name, or with --resume a run folder.
        run: The run folder. [default: runs/NAME]
        data: Where the corpora's paths start. [default: the first that has them of REGARD_DATA, the
            configuration's folder and the working folder]
        resume: Continue from the newest checkpoint of the run.
        start: Start from the published weights and tokenizers of a bundled model or a run.
        changes: Change the configuration, as often as needed.
        tensorboard: Write scalars for TensorBoard into the run folder.
    """

    config: Annotated[
        str, typer.Argument(metavar="CONFIG", autocompletion=shipped.complete_configuration)
    ]
    run: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    data: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    resume: bool = False
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="NAME|DIR", autocompletion=shipped.complete_model),
    ] = None
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None
    tensorboard: bool = False
    device: Device = "cpu"


@dataclass(frozen=True)
class _Plan:
    """A training: its run folder, its configuration and the folder of its corpora."""

    options: TrainOptions
    folder: Path
    configuration: Configuration
    data: Path


def train(context: typer.Context, options: TrainOptions) -> None:
    """Train a translator.

    Ctrl-C finishes the step, saves and ends; --resume continues. The run folder holds the configuration, the
    tokenizers, checkpoints, metrics.jsonl, curves.png, and at the end model.safetensors and card.md.
    Started by torchrun, several processes share the batches of one training.

    Examples:
        regard train dates
        regard train tatoeba-es-en --data FOLDER --run runs/mine
        regard train my.toml --set training.max_steps=2000 --set model.width=128
        regard train my.toml --resume
        regard train runs/mine --resume --set training.max_steps=4000
        regard train my.toml --from runs/mine --run runs/tuned
        torchrun --nproc-per-node 2 -m -- regard train my.toml
    """
    if options.resume and options.start is not None:
        raise ConfigurationError(
            "--from starts a new run, --resume continues one: give one of them"
        )
    # Nearly every batch has a new shape: cached programs of oneDNN are of little use, and 1,024 fill gigabytes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
    with Signals() as signals, ExitStack() as stack:
        check_device(options.device)
        from regard.translation.training import memory
        from regard.translation.training import processes as joining

        memory.keep()
        processes = stack.enter_context(joining.join(options.device))
        signals.patient = processes.size > 1
        with first_failure_only(processes):
            plan = _plan(options)
            trainer, reporter = _prepare(plan, processes, stack)
            if processes.any(reporter is not None and options.resume and _nothing_left(trainer)):
                if reporter is not None:
                    done = f"already finished at step {trainer.progress.step}, nothing left to do"
                    reporter.note(f"{plan.folder}: {done}")
                    _say_what_next(plan, card.repeating(plan.folder))
                return
            if processes.is_first:
                for key, old, new in trainer.run.keep_configuration():
                    trainer.observer.note(f"changed: {key}: {old!r} before, {new!r} now")
                card.remember(plan.folder, card.typed(context.obj))
            with signals.saving():
                outcome = trainer.train(signals.stop)
            if reporter is not None:
                reporter.draw_curves()
                if outcome == "stopped":
                    command = card.typed(_continuing(plan))
                    step = trainer.progress.step
                    reporter.note(f"stopped and saved at step {step}; go on with: {command}")
                else:
                    _finish(trainer, reporter)
                    repeating = _repeating(plan, trainer)
                    card.keep_repeating(plan.folder, repeating)
                    _say_what_next(plan, repeating)
            processes.wait()  # torchrun ends all processes when one ends
    if outcome == "stopped":
        # With several processes, another one may have received the signal.
        raise typer.Exit(128 + (signals.received or signal.SIGTERM))


def _plan(options: TrainOptions) -> _Plan:
    from regard.translation.runs import Run
    from regard.translation.settings import toml

    config, run = options.config, options.run
    if options.resume:
        _check_begun(Path(config))
    file = Path(config) / "config.toml"
    if options.resume and os.path.isfile(file):
        folder = Path(config)
        if run is not None and run.resolve() != folder.resolve():
            raise ConfigurationError(f"--run {run}: {config} is itself the run folder to resume")
    else:
        file = shipped.configuration(config)
        folder = run if run is not None else Path("runs") / file.stem
    if options.resume:
        _check_begun(folder)
        Run.open(folder)  # raises where there is no such run, or its configuration was changed
    board = ["training.tensorboard=true"] if options.tensorboard else []
    configuration = toml.read(file, (*(options.changes or ()), *board))
    names = _corpora(configuration, options.resume)
    data = corpora.folder(names, options.data, file.parent)
    return _Plan(options, folder, configuration, data)


def _check_begun(folder: Path) -> None:
    """Raise `ConfigurationError` where models have made pairs for a training that has not begun yet."""
    from regard.translation.runs.layout import BACK_TRANSLATED, CONFIGURATION, DISTILLED

    patterns = (DISTILLED, BACK_TRANSLATED.format("*"))
    if not os.path.isfile(folder / CONFIGURATION) and any(
        found for name in patterns for found in folder.glob(f"{name}*")
    ):
        raise ConfigurationError(
            f"{folder}: its training has not begun yet: give the command without --resume"
        )


def _corpora(configuration: Configuration, resume: bool) -> list[str]:
    """The files that a training reads; a resumed one has translated text already."""
    return list(configuration.data.paired_names if resume else configuration.data.names)


def _prepare(
    plan: _Plan, processes: Processes, stack: ExitStack
) -> tuple[Trainer, Reporter | None]:
    """The trainer of this process, and in the first one the reporter."""
    from regard.cli.output import progress
    from regard.translation.runs import Run
    from regard.translation.training import preparation, reporting

    if plan.configuration.training.tensorboard:
        reporting.check_tensorboard()
    lock = reporter = None
    if processes.is_first:
        # Locked before anything is read or written, so that two trainings never write the same run.
        lock = stack.enter_context(writing(Run(plan.folder, plan.configuration))).lock
        reporter = stack.enter_context(progress.reporter(plan.folder))
    arguments: dict[str, Any] = {
        "data": plan.data,
        "observer": reporter or reporting.Observer(),
        "processes": processes,
        "lock": lock,
    }
    if plan.options.resume:
        trainer = preparation.prepare_resumed(
            plan.folder, configuration=plan.configuration, **arguments
        )
    else:
        if processes.is_first:
            Run.check_free(plan.folder)  # before models are opened for synthetic pairs
        name = plan.options.start
        start = None if name is None else Run.open(shipped.models().get(name, Path(name)))
        trainer = preparation.prepare(
            plan.configuration,
            plan.folder,
            start=start,
            synthesise=None if reporter is None else _synthesiser(plan, reporter),
            **arguments,
        )
    return trainer, reporter


def _synthesiser(plan: _Plan, reporter: Reporter) -> Synthesise:
    """Opens the models that make synthetic pairs; the result makes the pairs, and reports the progress."""
    import torch

    from regard.translation.synthesis.jobs import jobs

    pending = jobs(plan.configuration.data, plan.data, plan.folder, plan.options.device)

    def synthesise(pairs: Sequence[Pair]) -> None:
        threads = plan.configuration.training.threads
        if threads:
            torch.set_num_threads(threads)
        for job in pending:
            exists = job.out.exists()
            if not exists:
                reporter.note(job.task)
            try:
                with report.counted("sentences", job.sentences(pairs)) as show:
                    left_out = job.run(pairs, show)
            except Interrupted:
                reporter.note("stopped before the training; give the same command to resume")
                raise
            if exists:
                reporter.note(f"{job.out}: made before")
            if left_out:
                reporter.note(f"left out: {left_out}")
        pending.clear()  # the memory of the models

    return synthesise


def _nothing_left(trainer: Trainer) -> bool:
    """Whether a resumed training has used up its budget and its results are complete in the run folder."""
    run = trainer.run
    if trainer.progress.unvalidated or not trainer.over:
        return False
    try:
        run.model(run.tokenizers())
    except ModelError:
        return False
    names = ("model.safetensors", "card.md", "checksums.json")
    # A card of fewer steps belongs to an earlier, shorter training.
    return all((run.folder / name).exists() for name in names) and card.is_current(
        run.folder, trainer.progress
    )


def _finish(trainer: Trainer, reporter: Reporter) -> None:
    from regard.translation import weights

    folder = trainer.run.folder
    reporter.note("choosing the weights by the validation set")
    tensors, described = trainer.best_weights()
    weights.load_into(trainer.model, tensors, folder)
    quality = trainer.measure()
    trainer.run.publish(tensors, card.write(trainer, quality, described, folder.resolve().name))
    _calibrate(trainer, reporter)
    reporter.note(
        f"{folder}: {described}: BLEU {quality.bleu:.2f}, chrF {quality.chrf:.2f}, "
        f"exact {quality.exact:.2f}% on {len(trainer.validation.pairs)} validation sentences"
    )


def _calibrate(trainer: Trainer, reporter: Reporter) -> None:
    """Measure the confidence of the published model; runs of generated data and of earlier versions have no doubts."""
    from regard.translation.calibration import calibrate
    from regard.translation.doubts import Doubts
    from regard.translation.translator import Translator

    doubts = Doubts.open(trainer.run)
    if doubts is not None:
        reporter.note("learning from the validation set which confidence is low")
        data = trainer.run.configuration.data
        translator = Translator.open(trainer.run.folder, to=data.target_languages[0])
        calibrate(translator, doubts, trainer.validation.pairs).keep(trainer.run)


def _continuing(plan: _Plan) -> list[str]:
    """The command that continues a training. It names the corpora if they would not be found without --data."""
    try:
        names = _corpora(plan.configuration, resume=True)
        near_run = corpora.folder(names, None, plan.folder) == plan.data
    except DataError:
        near_run = False
    return ["train", str(plan.folder), "--resume", *_places(plan, named=not near_run)]


def _repeating(plan: _Plan, trainer: Trainer) -> str | None:
    """The command that trains the same model again; None where several commands trained it."""
    if len(card.commands(plan.folder)) > 1:
        return None
    training = plan.configuration.training
    command = ["train", str(plan.folder / "config.toml"), "--run", f"{plan.folder}-again"]
    command += _places(plan, named=True)
    command += [] if plan.options.start is None else ["--from", plan.options.start]
    # These were measured, and another measurement may give other values.
    if training.precision == "auto":
        command += ["--set", f"training.precision={trainer.progress.precision}"]
    if not training.threads:
        command += ["--set", f"training.threads={trainer.progress.threads}"]
    return card.typed(command)


def _places(plan: _Plan, *, named: bool) -> list[str]:
    named = named and plan.configuration.data.generated is None
    data = ["--data", str(plan.data)] if named else []
    return data + (["--device", plan.options.device] if plan.options.device != "cpu" else [])


def _say_what_next(plan: _Plan, repeating: str | None) -> None:
    from regard.translation.text.generated import generate

    model = shlex.quote(str(plan.folder))
    generated = plan.configuration.data.generated
    text, test = '"..."', "--source FILE --target FILE"
    if generated is not None:
        (pair,) = generate(generated.task, plan.configuration.seed, 1, "test")
        text, test = shlex.quote(pair.source), "--generated"
    command = repeating or f"see {shlex.quote(str(plan.folder / card.COMMANDS))}"
    report.say(
        f"Next:\n  regard translate --model {model} {text} --look\n"
        f"  regard look --model {model} {text} --out look.html\n"
        f"  regard evaluate --model {model} {test}\n"
        f"To repeat this run:\n  {command}",
        flush=True,
    )
