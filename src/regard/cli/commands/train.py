"""`regard train`: from a configuration to a model that can be used."""

from __future__ import annotations

import os
import shlex
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import card, launched, shipped
from regard.cli.options import corpora
from regard.cli.options.model import Device, check_device
from regard.cli.output import report
from regard.cli.signals import Signals
from regard.errors import ConfigurationError, DataError, ModelError

if TYPE_CHECKING:
    from regard.cli.output.progress import Reporter
    from regard.translation.settings import Configuration
    from regard.translation.training.loop import Trainer
    from regard.translation.training.processes import Processes


@dataclass(frozen=True)
class _Training:
    """A configuration and the run folder of its training."""

    folder: Path
    configuration: Configuration
    file: Path


def train(
    context: typer.Context,
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", autocompletion=shipped.complete_configuration)
    ],
    run: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    resume: bool = False,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="NAME|DIR", autocompletion=shipped.complete_model),
    ] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    tensorboard: bool = False,
    device: Device = "cpu",
) -> None:
    """Train a translator.

    Ctrl-C finishes the step, saves and ends; --resume continues. The run folder holds the configuration, the
    tokenizers, checkpoints, metrics.jsonl, curves.png, and at the end model.safetensors and card.md.
    Started by torchrun, several processes share the batches of one training.

    Args:
        config: A TOML file, a shipped configuration's name, or with --resume a run folder.
        run: The run folder. [default: runs/NAME]
        data: Where the corpora's paths start. [default: the first that has them of REGARD_DATA, the
            configuration's folder and the working folder]
        resume: Continue from the newest checkpoint of the run.
        start: Start from the published weights and tokenizers of a bundled model or a run.
        changes: Change the configuration, as often as needed.
        tensorboard: Write scalars for TensorBoard into the run folder.

    Examples:
        regard train dates
        regard train tatoeba-es-en --data FOLDER --run runs/mine
        regard train my.toml --set training.max_steps=2000 --set model.width=128
        regard train my.toml --resume
        regard train runs/mine --resume --set training.max_steps=4000
        regard train my.toml --from runs/mine --run runs/tuned
        torchrun --nproc-per-node 2 -m -- regard train my.toml
    """
    if resume and start is not None:
        raise ConfigurationError(
            "--from starts a new run, --resume continues one: give one of them"
        )
    asked = [*(changes or ()), *(["training.tensorboard=true"] if tensorboard else [])]
    with Signals() as signals, ExitStack() as stack:
        check_device(device)
        from regard.translation.training import memory
        from regard.translation.training import processes as joining

        memory.keep_freed()
        processes = stack.enter_context(joining.join(device))
        signals.patient = processes.size > 1
        with launched.first_failure_only(processes):
            plan = _plan(config, run, resume, tuple(asked))
            folder = _data_folder(data, plan, resume)
            trainer, reporter = _prepare(plan, folder, processes, resume, start, stack)
            if processes.any(reporter is not None and resume and _nothing_left(trainer)):
                if reporter is not None:
                    step = trainer.progress.step
                    reporter.note(
                        f"{plan.folder}: already finished at step {step}, nothing left to do"
                    )
                    _say_what_next(plan, card.repeating(plan.folder))
                return
            if processes.first:
                card.remember(plan.folder, launched.command(context.obj))
            with signals.saving():
                outcome = trainer.train(signals.stop)
            if reporter is not None:
                reporter.draw_curves()
                if outcome == "stopped":
                    _say_how_to_continue(plan, trainer, reporter, folder, device)
                else:
                    _finish(trainer, reporter)
                    repeating = _repeating(plan, trainer, folder, device, start)
                    card.keep_repeating(plan.folder, repeating)
                    _say_what_next(plan, repeating)
            processes.wait()  # torchrun ends all processes when one ends
    if outcome == "stopped":
        # With several processes, another one may have received the signal.
        raise typer.Exit(128 + (signals.received or signal.SIGTERM))


def _prepare(
    plan: _Training,
    data: Path,
    processes: Processes,
    resume: bool,
    start: str | None,
    stack: ExitStack,
) -> tuple[Trainer, Reporter | None]:
    """The trainer of this process, and in the first one the reporter."""
    from regard.cli.output import progress
    from regard.translation.runs import Run
    from regard.translation.training import preparation, reporting

    if plan.configuration.training.tensorboard:
        reporting.check_tensorboard()
    lock = None
    if processes.first:
        # Locked before anything is read or written, so that two trainings never write the same run.
        lock = stack.enter_context(Run(plan.folder, plan.configuration).locked())
    reporter = stack.enter_context(progress.reporter(plan.folder)) if processes.first else None
    observer = reporter or reporting.Observer()
    if resume:
        trainer = preparation.prepare_resumed(
            plan.folder,
            configuration=plan.configuration,
            data=data,
            observer=observer,
            processes=processes,
        )
    else:
        trainer = preparation.prepare(
            plan.configuration,
            plan.folder,
            data=data,
            observer=observer,
            processes=processes,
            start=None if start is None else Run.open(shipped.models().get(start, Path(start))),
        )
    trainer.lock = lock
    return trainer, reporter


def _plan(config: str, run: Path | None, resume: bool, changes: tuple[str, ...]) -> _Training:
    from regard.translation import settings
    from regard.translation.runs import Run

    own = Path(config) / "config.toml"
    if resume and os.path.isfile(own):
        if run is not None and run.resolve() != Path(config).resolve():
            raise ConfigurationError(f"--run {run}: {config} is itself the run folder to resume")
        Run.open(Path(config))  # raises where its configuration was changed
        return _Training(Path(config), settings.read(own, changes), own)
    file = shipped.configuration(config)
    folder = run if run is not None else Path("runs") / file.stem
    if resume:
        Run.open(folder)  # raises with its name when there is no such run
    return _Training(folder, settings.read(file, changes), file)


def _data_folder(given: Path | None, plan: _Training, resume: bool) -> Path:
    """The folder of the corpora: the given one, else the first place that has them all."""
    named = [*plan.configuration.data.names]
    pretrained = plan.configuration.pretrained
    if pretrained is not None and not resume:  # a resumed run has read them already
        named += pretrained.names
    return corpora.folder(named, given, plan.file.parent)


def _found_again(plan: _Training, data: Path) -> bool:
    """Whether `--resume` finds the corpora there without --data."""
    resumed = _Training(plan.folder, plan.configuration, plan.folder / "config.toml")
    try:
        return _data_folder(None, resumed, resume=True) == data
    except DataError:
        return False


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
    return all((run.folder / name).exists() for name in names) and card.tells(
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
    reporter.note(
        f"{folder}: {described}: BLEU {quality.bleu:.2f}, chrF {quality.chrf:.2f}, "
        f"exact {quality.exact:.2f}% on {trainer.validation.sentences} validation sentences"
    )


def _say_how_to_continue(
    plan: _Training, trainer: Trainer, reporter: Reporter, data: Path, device: str
) -> None:
    again = ["train", str(plan.folder), "--resume"]
    if plan.configuration.data.generated is None and not _found_again(plan, data):
        again += ["--data", str(data)]
    if device != "cpu":
        again += ["--device", device]
    command = launched.command(again)
    reporter.note(f"stopped and saved at step {trainer.progress.step}; go on with: {command}")


def _repeating(
    plan: _Training, trainer: Trainer, data: Path, device: str, start: str | None
) -> str | None:
    """The command that trains the same model again; None where several commands trained it."""
    if len(card.commands(plan.folder)) > 1:
        return None
    training = plan.configuration.training
    command = ["train", str(plan.folder / "config.toml"), "--run", f"{plan.folder}-again"]
    if plan.configuration.data.generated is None:
        command += ["--data", str(data)]
    if device != "cpu":
        command += ["--device", device]
    if start is not None:
        command += ["--from", start]
    # These were measured, and another measurement may give other values.
    if training.precision == "auto":
        command += ["--set", f"training.precision={trainer.progress.precision}"]
    if not training.threads:
        command += ["--set", f"training.threads={trainer.progress.threads}"]
    return launched.command(command)


def _say_what_next(plan: _Training, repeating: str | None) -> None:
    from regard.translation.text.generated import generate

    model = shlex.quote(str(plan.folder))
    data = plan.configuration.data
    if data.generated is not None:
        (pair,) = generate(data.generated.task, plan.configuration.seed, 1, "test")
        text, test = shlex.quote(pair.source), "--generated"
    else:
        text, test = '"..."', "--source FILE --target FILE"
    again = repeating or f"see {shlex.quote(str(plan.folder / card.COMMANDS))}"
    report.say(
        f"Next:\n  regard translate --model {model} {text} --look\n"
        f"  regard look --model {model} {text} --out look.html\n"
        f"  regard evaluate --model {model} {test}\n"
        f"To repeat this run:\n  {again}",
        now=True,
    )
