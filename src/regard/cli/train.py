"""`regard train`: from a configuration to a model that can be used."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options, shipped
from regard.cli.signals import Signals
from regard.translation.errors import ConfigurationError, DataError, ModelError

if TYPE_CHECKING:
    from regard.cli.progress import Reporter
    from regard.translation.configuration import Configuration
    from regard.translation.training.loop import Trainer

EXAMPLES = """\b
Examples:
  regard train dates
  regard train tatoeba-es-en --data FOLDER --run runs/mine
  regard train my.toml --set training.max_steps=2000 --set model.width=128
  regard train my.toml --resume
  regard train runs/mine --resume --set training.max_steps=4000"""


@dataclass(frozen=True)
class _Plan:
    """What to train, and where."""

    folder: Path
    configuration: Configuration
    file: Path


def train(
    context: typer.Context,
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="A TOML file, a shipped configuration's name, or with --resume a run folder.",
            autocompletion=shipped.complete_configuration,
        ),
    ],
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder. [default: runs/NAME]")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the corpora's paths start. [default: REGARD_DATA, else the configuration's "
            "folder, else the working folder]",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint of the run.")
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change the configuration, as often as needed."
        ),
    ] = None,
    device: options.Device = "cpu",
) -> None:
    """Train a translator.

    Ctrl-C finishes the step, saves and ends; --resume goes on. The run folder holds the configuration, the
    tokenizers, checkpoints, metrics.jsonl, curves.png, and at the end model.safetensors and card.md.
    """
    from regard.translation.runs import Run

    with Signals() as signals, ExitStack() as stack:
        plan = _plan(config, run, resume, tuple(changes or ()))
        folder = _data_folder(data, plan)
        options.check_device(device)
        if (plan.folder / "config.toml").exists():
            # Held before anything is read: a second trainer hears who the first one is.
            stack.enter_context(Run.open(plan.folder).locked())

        from regard.cli import card, progress
        from regard.translation.training import preparation

        reporter = stack.enter_context(progress.reporter(plan.folder))
        where = {"data": folder, "device": device, "observer": reporter}
        if resume:
            trainer = preparation.prepare_resumed(
                plan.folder,
                configuration=plan.configuration,
                **where,  # type: ignore[arg-type]
            )
        else:
            trainer = preparation.prepare(plan.configuration, plan.folder, **where)  # type: ignore[arg-type]
            stack.enter_context(trainer.run.locked())
        before = trainer.progress.step
        card.remember(plan.folder, shlex.join(["regard", *context.obj.arguments]))
        with signals.saving():
            outcome = trainer.train(signals.stop)
        reporter.draw_curves()
        if outcome == "stopped":
            command = f"regard train {shlex.quote(str(plan.folder))} --resume"
            reporter.note(
                f"stopped and saved at step {trainer.progress.step}; go on with: {command}"
            )
            raise typer.Exit(128 + signals.received)
        if resume and trainer.progress.step == before and _published(trainer):
            reporter.note(f"{plan.folder}: already finished at step {before}, nothing left to do")
        else:
            _publish(trainer, reporter)
    _say_what_next(plan)


def _plan(config: str, run: Path | None, resume: bool, changes: tuple[str, ...]) -> _Plan:
    from regard.translation import configuration as configurations

    own = Path(config) / "config.toml"
    if resume and os.path.isfile(own):
        if run is not None and run.resolve() != Path(config).resolve():
            raise ConfigurationError(f"--run {run}: {config} is itself the run folder to resume")
        return _Plan(Path(config), configurations.read(own, changes), own)
    file = shipped.configuration(config)
    folder = run if run is not None else Path("runs") / file.stem
    if resume:
        # Raises here, by its name, when there is no such run.
        from regard.translation.runs import Run

        Run.open(folder)
    return _Plan(folder, configurations.read(file, changes), file)


def _data_folder(given: Path | None, plan: _Plan) -> Path:
    """Where the corpora are: as told, else the first of the places in which they all are."""
    named = [
        Path(name)
        for files in (plan.configuration.data.train, plan.configuration.data.valid)
        if files is not None
        for name in (files.tsv, files.source, files.target)
        if name is not None
    ]
    if given is not None:
        places = [given]
    elif os.environ.get("REGARD_DATA"):
        places = [Path(os.environ["REGARD_DATA"])]
    else:
        places = list(dict.fromkeys([plan.file.parent, Path()]))
    for place in places:
        if all(os.path.exists(place / name) for name in named):
            return place
    missing = next(name for name in named if not os.path.exists(places[-1] / name))
    if missing.is_absolute():
        raise DataError(f"{missing}: no such file")
    looked = " or ".join(str(place.absolute()) for place in places)
    raise DataError(
        f"{missing}: no such file in {looked}: say with --data or REGARD_DATA where it is"
    )


def _published(trainer: Trainer) -> bool:
    run = trainer.run
    try:
        run.model(run.tokenizers())
    except ModelError:
        return False
    names = ("model.safetensors", "card.md", "checksums.json")
    return all((run.folder / name).exists() for name in names)


def _publish(trainer: Trainer, reporter: Reporter) -> None:
    from regard.cli import card
    from regard.translation import weights

    folder = trainer.run.folder
    reporter.note("choosing the weights by the validation set")
    tensors, described = trainer.best_weights()
    weights.load_into(trainer.model, tensors, folder)
    quality = trainer.validation.measure(trainer.model)
    trainer.run.publish(tensors, card.write(trainer, quality, described, folder.resolve().name))
    reporter.note(
        f"{folder}: {described}: BLEU {quality.bleu:.2f}, chrF {quality.chrf:.2f}, "
        f"exact {quality.exact:.2f}% on {trainer.validation.sentences} validation sentences"
    )


def _say_what_next(plan: _Plan) -> None:
    from regard.translation.text.generated import generate

    model = shlex.quote(str(plan.folder))
    data = plan.configuration.data
    if data.generated is not None:
        (pair,) = generate(data.generated.task, plan.configuration.seed, 1, "test")
        text, test = shlex.quote(pair.source), "--generated"
    else:
        text, test = '"..."', "--source FILE --target FILE"
    print(
        f"Next:\n  regard translate --model {model} {text} --look\n"
        f"  regard look --model {model} {text} --out look.html\n"
        f"  regard evaluate --model {model} {test}",
        flush=True,
    )
