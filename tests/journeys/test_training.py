"""From a corpus to a model that translates, and back to the same bits."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.journeys.commands import Result, check_refused, leftovers, run, run_apart, virtual

from regard import files as disk
from regard.cli.output.progress import Reporter
from regard.translation import weights as files
from regard.translation.runs import Run
from regard.translation.training import reporting, validation
from regard.translation.training import step as losses
from regard.translation.training.checkpoints import PROGRESS


def train(config: Path, folder: Path, *more: str) -> bytes:
    """Train a few steps; the weights of the newest checkpoint."""
    result = run("train", config, "--run", folder, "--set", "training.max_steps=4", *more)
    assert result.code == 0, result
    return weights(folder, 4)


def weights(folder: Path, step: int) -> bytes:
    return (folder / "checkpoints" / f"step-{step}" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def short(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four steps give."""
    folder = tmp_path_factory.mktemp("short") / "run"
    train(corpus / "tiny.toml", folder)
    return folder


def test_a_run_folder_holds_what_using_the_model_takes(trained):
    names = {path.name for path in trained.iterdir()}
    assert {"config.toml", "tokenizer.model", "model.safetensors", "checksums.json"} <= names
    assert {"card.md", "metrics.jsonl", "curves.png", "checkpoints"} <= names
    assert (trained / "curves.png").read_bytes().startswith(b"\x89PNG")
    steps = {path.name for path in (trained / "checkpoints").iterdir()}
    assert steps == {"step-6", "step-12"}


def test_the_card_says_from_what_and_how(trained, corpus):
    card = (trained / "card.md").read_text(encoding="utf-8")
    assert card.startswith("# tiny\n\nes to en: a Transformer, 1+1 layers of width 16, 2 heads")
    assert "made up for a test" in card
    assert "Seed: 3" in card
    assert f"regard train {corpus / 'tiny.toml'} --run {trained}" in card
    assert "Scores: BLEU" in card
    assert "(validation set, 10 sentences" in card
    assert "12 steps" in card


def test_a_training_says_where_it_is_and_what_comes_next(trained):
    text = (trained / "said").read_text(encoding="utf-8")
    assert "200 training pairs, 20 for validation, skipped 0" in text
    assert "step 4/12" in text
    assert "tokens/s  left 0:0" in text
    assert text.count("validation: loss") == 2
    assert f"regard translate --model {trained}" in text


def test_every_line_of_metrics_is_json(trained):
    lines = (trained / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    kinds = [(entry["step"], entry["kind"]) for entry in map(json.loads, lines)]
    assert kinds == [(4, "step"), (6, "validation"), (8, "step"), (12, "step"), (12, "validation")]


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(short, corpus, tmp_path):
    expected = weights(short, 4)
    assert train(corpus / "tiny.toml", tmp_path / "again") == expected
    assert train(corpus / "tiny.toml", tmp_path / "other", "--set", "seed=4") != expected


def test_the_command_that_repeats_a_run_gives_the_same_bits(trained, monkeypatch):
    lines = (trained / "said").read_text(encoding="utf-8").split("\n")
    command = (trained / "repeat.txt").read_text(encoding="utf-8").strip()
    assert lines[lines.index("To repeat this run:") + 1] == f"  {command}"
    program, *arguments = shlex.split(command)
    assert program == "regard"
    place = arguments.index("--run") + 1
    assert arguments[place] == f"{trained}-again"
    arguments[place] = "again"  # beside the test's own files
    assert run(*arguments).code == 0
    sums = [json.loads((run_ / "checksums.json").read_text()) for run_ in (trained, Path("again"))]
    assert sums[0] == sums[1]
    assert "model.safetensors" in sums[0]


@pytest.fixture
def hang_up() -> Iterator[None]:
    """A hang-up is not ignored, as it is where nohup started the tests."""
    old_handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, old_handler)


@pytest.mark.usefixtures("hang_up")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_resuming_loses_nothing(number, trained, corpus, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    advanced = Reporter.advanced

    def send(self: Reporter, step: int, total: int) -> None:
        advanced(self, step, total)
        if step == 7:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Reporter, "advanced", send)
    stopped = run("train", corpus / "tiny.toml", "--run", folder)
    assert stopped.code == 128 + number
    assert "stopped and saved at step 7" in stopped.out
    assert f"go on with: regard train {folder} --resume --data {corpus}\n" in stopped.out
    assert (folder / "checkpoints" / "step-7").is_dir()
    assert not (folder / "model.safetensors").exists()
    assert run("translate", "--model", folder, "El gato").code == 0

    monkeypatch.setattr(Reporter, "advanced", advanced)
    resumed = run("train", folder, "--resume", "--data", corpus)
    assert resumed.code == 0, resumed
    assert "resumed at step 7" in resumed.out
    assert (folder / "model.safetensors").read_bytes() == (
        trained / "model.safetensors"
    ).read_bytes()
    assert leftovers(folder) == []


def test_a_signal_during_a_validation_stops_it_and_resuming_makes_it(
    trained, corpus, tmp_path, monkeypatch
):
    folder, search, calls = tmp_path / "run", validation.translate_batch, []

    def send(*given: object, **more: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return search(*given, **more)

    monkeypatch.setattr(validation, "_BATCH_TOKENS", 32)  # several batches
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(validation, "translate_batch", send)
        stopped = run("train", corpus / "tiny.toml", "--run", folder)
    assert stopped.code == 143
    assert "stopped and saved at step 6" in stopped.out
    assert "validation" not in stopped.out.partition("step 4/12")[2]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir())[-1] == (
        "step-6-unvalidated"
    )
    assert run("translate", "--model", folder, "El gato").code == 0

    resumed = run("train", folder, "--resume", "--data", corpus)
    assert resumed.code == 0, resumed
    assert "step 6  validation" in resumed.out
    for name in ("model.safetensors", "checksums.json"):
        assert (folder / name).read_bytes() == (trained / name).read_bytes()
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert names == ["step-12", "step-6"]


def test_a_signal_before_the_first_step_ends_at_once(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(Reporter, "note", lambda self, text: os.kill(os.getpid(), signal.SIGTERM))
    result = run("train", corpus / "tiny.toml", "--run", tmp_path / "run")
    assert result.code == 143
    assert not (tmp_path / "run").exists()


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Every file of a run folder, and when it was written."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_finished_run_says_so_and_nothing_in_it_changes(curves, model, corpus, monkeypatch):
    def writer(run: Run, step: int) -> None:
        (run.folder / "events").write_text("new", encoding="utf-8")

    monkeypatch.setattr(reporting, "check_tensorboard", lambda: None)
    monkeypatch.setattr(reporting, "scalar_writer", writer)
    (model / "curves.png").write_bytes(b"drawn by another matplotlib")
    contents_before = contents(model)
    assert {"commands.txt", "repeat.txt", "metrics.jsonl"} <= {
        path.name for path in contents_before
    }
    result = run("train", model, "--resume", "--data", corpus, "--tensorboard")
    assert result.code == 0, result
    assert "already finished at step 12" in result.out
    assert f"To repeat this run:\n  {(model / 'repeat.txt').read_text('utf-8')}" in result.out
    assert contents(model) == contents_before


def test_a_run_that_patience_ended_is_finished_too(model, corpus):
    longer = ("--resume", "--data", corpus, "--set", "training.max_steps=500")
    patient = ("--set", "training.patience=1", "--set", "training.validate_every=1")
    assert run("train", model, *longer, *patient).code == 0
    contents_before = contents(model)
    result = run("train", model, *longer, *patient)
    assert "already finished" in result.out
    assert contents(model) == contents_before


@pytest.mark.parametrize("missing_file", ["model.safetensors", "card.md"])
def test_what_a_finished_run_had_no_time_to_publish_is_published(
    missing_file, model, trained, corpus
):
    (model / missing_file).unlink()
    assert run("train", model, "--resume", "--data", corpus).code == 0
    for name in ("model.safetensors", "checksums.json"):
        assert (model / name).read_bytes() == (trained / name).read_bytes()
    assert (model / "card.md").exists()


def test_a_budget_may_grow_when_resuming(model, corpus):
    result = run("train", model, "--resume", "--data", corpus, "--set", "training.max_steps=14")
    assert result.code == 0
    assert (model / "checkpoints" / "step-14").is_dir()
    card = (model / "card.md").read_text(encoding="utf-8")
    assert card.count("regard train ") == 2  # the first command, and this one
    assert "changed: training.max_steps: 12 before, 14 now" in result.out
    kept_result = run("train", model, "--resume", "--data", corpus)
    assert "already finished at step 14" in kept_result.out, kept_result
    assert "max_steps = 14" in (model / "config.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("by_file", [False, True])
def test_a_budget_that_grew_lasts_over_an_interruption(by_file, model, corpus, monkeypatch):
    advanced = Reporter.advanced

    def send(self: Reporter, step: int, total: int) -> None:
        advanced(self, step, total)
        if step == 13:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Reporter, "advanced", send)
    more = ["--resume", "--data", corpus]
    stopped = run("train", model, *more, "--set", "training.max_steps=16")
    assert "stopped and saved at step 13" in stopped.out
    monkeypatch.setattr(Reporter, "advanced", advanced)
    if by_file:  # the file has 12 steps: its value is taken, and it is said
        resumed = run("train", corpus / "tiny.toml", "--run", model, *more)
        assert "changed: training.max_steps: 16 before, 12 now" in resumed.out
    else:
        resumed = run("train", model, *more)
        assert (model / "checkpoints" / "step-16").is_dir()
    assert resumed.code == 0, resumed


def test_what_was_published_before_the_budget_grew_is_published_anew(model, corpus):
    names = ("config.toml", "model.safetensors", "card.md", "checksums.json")
    contents_before = {name: (model / name).read_bytes() for name in names}
    more = ["--resume", "--data", corpus, "--set", "training.max_steps=14"]
    assert run("train", model, *more).code == 0
    grown = (model / "model.safetensors").read_bytes()
    for (
        name,
        content,
    ) in contents_before.items():  # as a kill before the second time would have left it
        (model / name).write_bytes(content)
    result = run("train", model, *more)
    assert result.code == 0, result
    assert "already finished" not in result.out
    assert (model / "model.safetensors").read_bytes() == grown
    assert "Trained for 14 steps" in (model / "card.md").read_text(encoding="utf-8")
    assert "already finished" in run("train", model, *more).out


def test_a_configuration_that_changed_is_not_resumed(model, corpus_copy):
    weights_before = weights(model, 12)
    text = (
        (corpus_copy / "tiny.toml").read_text(encoding="utf-8").replace("width = 16", "width = 32")
    )
    (corpus_copy / "tiny.toml").write_text(
        text.replace("size = 320", "size = 330"), encoding="utf-8"
    )
    result = run("train", corpus_copy / "tiny.toml", "--run", model, "--resume")
    check_refused(
        result,
        "model.width: 16 in the run folder, 32 asked for",
        "tokenizer.vocabulary_size: 320 in the run folder, 330 asked for",
        code=2,
    )
    assert weights(model, 12) == weights_before


def test_the_precision_of_a_training_may_change_and_it_is_said(model, corpus):
    more = ["--resume", "--data", corpus, "--set", "training.max_steps=14"]
    other_result = run("train", model, *more, "--set", "training.precision=bfloat16")
    assert other_result.code == 0, other_result
    assert (
        "from step 13 on bfloat16 with 1 thread, before float32 with 1 thread: "
        "the weights will have other bits than without this change"
    ) in other_result.lines
    assert "bfloat16 arithmetic" in (model / "card.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["train.es", "train.en", "valid.en"])
def test_a_corpus_that_changed_is_not_resumed_from(name, corpus_copy, tmp_path):
    folder = tmp_path / "run"
    train(corpus_copy / "tiny.toml", folder)
    text = (corpus_copy / name).read_text(encoding="utf-8")
    (corpus_copy / name).write_text(
        text.replace("El", "Un", 1).replace("The", "A", 1), encoding="utf-8"
    )
    contents_before = contents(folder)
    more = ("--resume", "--set", "training.max_steps=6")
    refused = run("train", corpus_copy / "tiny.toml", "--run", folder, *more)
    check_refused(refused, corpus_copy / name, "has changed", folder / "corpora.json")
    assert contents(folder) == contents_before
    (corpus_copy / name).rename(corpus_copy / "changed")
    (corpus_copy / name).write_text(text, encoding="utf-8")  # the old one, at another time
    assert run("train", corpus_copy / "tiny.toml", "--run", folder, *more).code == 0
    (corpus_copy / "changed").replace(corpus_copy / name)
    (folder / "corpora.json").unlink()  # deliberately
    more = ("--resume", "--set", "training.max_steps=8")
    assert run("train", corpus_copy / "tiny.toml", "--run", folder, *more).code == 0


def test_checksums_of_corpora_that_cannot_be_read_are_named(model, corpus):
    for spoilt in (b"[", b"\xff", b"7"):
        (model / "corpora.json").write_bytes(spoilt)
        refused = run("train", model, "--resume", "--data", corpus)
        check_refused(refused, model / "corpora.json", "corrupted")


def test_a_training_of_passes_ends_with_the_last_of_them(corpus, tmp_path):
    folder = tmp_path / "run"
    sets = ("--set", "training.max_epochs=2", "--set", "training.max_steps=0")
    result = run("train", corpus / "tiny.toml", "--run", folder, *sets)
    assert result.code == 0, result
    assert "pass 2/2  loss" in result.out
    assert ", 2 passes," in (folder / "card.md").read_text(encoding="utf-8")
    second_result = run("train", folder, "--resume", "--data", corpus)
    assert "already finished" in second_result.out


def test_each_validation_shows_and_keeps_the_same_sentences(trained, corpus):
    text = (trained / "said").read_text(encoding="utf-8")
    kept_text = (trained / "samples.txt").read_text(encoding="utf-8")
    blocks = kept_text.split("step ")[1:]
    assert [block.split("\n")[0] for block in blocks] == ["6", "12"]
    for block in blocks:
        assert block.partition("\n")[2].strip("\n") in text
    lines = [
        [line for line in block.split("\n") if line.startswith(("  source", "  reference"))]
        for block in blocks
    ]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 6
    pairs = zip(
        (corpus / "valid.es").read_text(encoding="utf-8").splitlines(),
        (corpus / "valid.en").read_text(encoding="utf-8").splitlines(),
        strict=True,
    )
    assert f"{lines[0][0]}|{lines[0][1]}" in {
        f"  source     {source}|  reference  {target}" for source, target in pairs
    }


def test_a_run_folder_is_not_trained_into_twice(model, corpus):
    result = run("train", corpus / "tiny.toml", "--run", model)
    check_refused(result, model, "--resume")


def test_a_missing_run_is_not_resumed(corpus, tmp_path):
    result = run("train", corpus / "tiny.toml", "--run", tmp_path / "none", "--resume")
    check_refused(result, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_run_folder_without_resume_is_explained(model):
    check_refused(run("train", model), model, "--resume", code=2)


def test_corpora_are_found_beside_the_configuration_or_where_told(
    corpus_copy, tmp_path, monkeypatch
):
    elsewhere = tmp_path / "texts"
    elsewhere.mkdir()
    for path in corpus_copy.glob("*.e?"):
        path.rename(elsewhere / path.name)
    check_refused(run("train", corpus_copy / "tiny.toml"), "train.es", corpus_copy, "--data")
    assert not (tmp_path / "runs").exists()
    monkeypatch.setenv("REGARD_DATA", str(elsewhere))
    train(corpus_copy / "tiny.toml", tmp_path / "run")


def test_corpora_beside_the_configuration_are_found_whatever_folder_is_named_for_others(
    corpus_copy, tmp_path, monkeypatch
):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    train(corpus_copy / "tiny.toml", tmp_path / "run")


def test_the_default_run_folder_has_the_name_of_the_configuration(corpus, tmp_path):
    assert run("train", corpus / "tiny.toml", "--set", "training.max_steps=1").code == 0
    assert (tmp_path / "runs" / "tiny" / "model.safetensors").exists()


def test_curves_are_drawn_and_a_picture_that_fails_stops_nothing(curves, corpus, tmp_path):
    folder = tmp_path / "run"
    (folder / "curves.png").mkdir(parents=True)
    result = run("train", corpus / "tiny.toml", "--run", folder, "--set", "training.max_steps=2")
    assert result.code == 0
    assert "curves.png: not drawn" in result.out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_metrics_on_a_full_disk_stop_the_training_by_name(corpus, tmp_path, monkeypatch):
    folder, open_at_once = tmp_path / "run", disk._at_once

    def full(path, flags):
        """The system's own file without room in place of the metrics, which may be no link."""
        return (
            os.open("/dev/full", flags)
            if str(path).endswith("metrics.jsonl")
            else open_at_once(path, flags)
        )

    monkeypatch.setattr(disk, "_at_once", full)
    result = run("train", corpus / "tiny.toml", "--run", folder)
    check_refused(result, folder / "metrics.jsonl", "No space left on device")
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-3"]
    assert run("translate", "--model", folder, "El gato").code == 0


def test_too_little_memory_names_the_batch_and_what_to_lower(corpus, tmp_path):
    """A batch of all sentences through a wide layer, with memory for none of it; and no such limit before."""
    folder = tmp_path / "run"
    # Each activation is larger than what malloc ever keeps for later, whatever ran before this test.
    wide = ["model.feed_forward=16384", "training.batch_tokens=100000", "training.max_steps=1"]
    sets = [part for each in wide for part in ("--set", each)]
    whole_result = run("train", corpus / "tiny.toml", "--run", folder, *sets)
    assert whole_result.code == 0, whole_result
    assert whole_result.growth > 150 * 2**20
    contents_before = {path: path.read_bytes() for path in folder.rglob("*.safetensors")}
    more = ["--resume", "--data", corpus, "--set", "training.max_steps=3"]
    limits = {resource.RLIMIT_AS: virtual() + 100 * 2**20}
    result = run("train", folder, *more, limits=limits)
    check_refused(result, "out of memory on a batch of 200 sentences", "training.batch_tokens")
    assert {path: path.read_bytes() for path in folder.rglob("*.safetensors")} == contents_before
    assert run("translate", "--model", folder, "--beam", "1", "El gato").code == 0
    assert leftovers(folder) == []


def test_not_a_number_stops_the_training_and_harms_no_checkpoint(corpus, tmp_path, monkeypatch):
    folder, loss, calls = tmp_path / "run", losses.Objective.forward, []

    def spoilt(self, batch):
        calls.append(1)
        return loss(self, batch) * (float("nan") if len(calls) > 5 else 1.0)

    monkeypatch.setattr(losses.Objective, "forward", spoilt)
    result = run("train", corpus / "tiny.toml", "--run", folder)
    check_refused(result, "step 6", "loss nan", "gradient norm nan", "sentence pairs (rows ")
    (checkpoint,) = (folder / "checkpoints").iterdir()
    assert checkpoint.name == "step-3"
    for path in checkpoint.glob("*.safetensors"):
        assert all(torch.isfinite(tensor).all() for tensor in files.load(path).values())
    assert run("translate", "--model", folder, "El gato").code == 0


def test_a_weight_that_is_not_a_number_is_not_resumed_from(model, corpus):
    from regard.translation import checksums

    checkpoint = model / "checkpoints" / "step-12"
    tensors = files.load(checkpoint / "model.safetensors")
    name = sorted(tensors)[0]
    tensors[name].view(-1)[0] = torch.nan
    files.save(tensors, checkpoint / "model.safetensors")
    checksums.sign(checkpoint, ["model.safetensors", "optimiser.safetensors", PROGRESS])
    result = run("train", model, "--resume", "--data", corpus, "--set", "training.max_steps=20")
    check_refused(result, checkpoint, name, "not finite")


def test_a_second_trainer_hears_who_the_first_one_is(model, corpus):
    for command in (
        ["train", str(model), "--resume"],
        ["train", str(corpus / "tiny.toml"), "--run", str(model)],
    ):
        with Run.open(model).locked():
            check_refused(run(*command, "--data", corpus), model, f"process {os.getpid()}")


def test_commands_that_write_into_a_run_folder_are_refused_while_another_does(
    model, corpus, tmp_path
):
    gold = tmp_path / "gold.jsonl"
    gold.write_text(2 * '{"src": ["El"], "tgt": ["The"], "sure": [[0, 0]]}\n', encoding="utf-8")
    contents_before = {path: path.read_bytes() for path in model.glob("*") if path.is_file()}
    with Run.open(model).locked():
        for command in (
            ["doubts", "--model", model, "--data", corpus],
            ["align", "--model", model, "--choose", gold],
        ):
            check_refused(run_apart(*command), model, f"process {os.getpid()} is writing to it")
        assert run("align", "--model", model, "--choose", gold, "--no-store").code == 0
    contents_after = {path: path.read_bytes() for path in model.glob("*") if path.is_file()}
    assert contents_after == contents_before


def test_two_trainings_that_start_together_never_write_into_each_other(
    corpus, tmp_path, monkeypatch
):
    """The second one starts while the first is about to make its folder, with another vocabulary."""
    folder, message_file, create = tmp_path / "run", tmp_path / "told.json", Run.create
    command = ["train", corpus / "tiny.toml", "--run", folder]

    def late(*arguments: Any) -> Run:
        monkeypatch.setattr(Run, "create", create)
        second = run(*command, "--set", "seed=7", "--set", "training.max_steps=5")
        message_file.write_text(json.dumps([os.getpid(), *second]), encoding="utf-8")
        return create(*arguments)

    monkeypatch.setattr(Run, "create", late)
    first_result = run(*command)
    number, *second = json.loads(message_file.read_text(encoding="utf-8"))
    check_refused(Result(*second), folder, f"process {number} is writing to it")
    assert first_result.code == 0, first_result
    assert not (folder / ".lock").exists()
    assert run("translate", "--model", folder, "El gato").code == 0


def test_a_training_that_is_refused_leaves_no_folder(corpus, tmp_path):
    (tmp_path / "empty").mkdir()
    command = ["train", corpus / "tiny.toml", "--data", tmp_path / "empty"]
    check_refused(run(*command, "--run", tmp_path / "deep" / "run"), tmp_path / "empty")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def _empty(folder: Path) -> None:
    """As `rm -r run/*` does, which leaves the lock."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()


def _replace(folder: Path) -> None:
    """As `rm -r run` and another training do."""
    content = (folder / "config.toml").read_bytes()
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "config.toml").write_bytes(content)
    (folder / ".lock").touch()


@pytest.mark.parametrize(
    ("change", "step_limit"),
    [(shutil.rmtree, None), (_empty, None), (_replace, {"config.toml", ".lock"})],
)
@pytest.mark.parametrize("log_every", [1, 1000])
def test_a_run_folder_that_vanishes_is_a_clean_failure(
    corpus, tmp_path, monkeypatch, change, step_limit, log_every
):
    folder = tmp_path / "run"
    advanced = Reporter.advanced

    def remove(self: Reporter, step: int, total: int) -> None:
        advanced(self, step, total)
        if step == 4:
            change(folder)

    monkeypatch.setattr(Reporter, "advanced", remove)
    settings = ["--set", f"training.log_every={log_every}", "--set", "training.save_every=5"]
    result = run("train", corpus / "tiny.toml", "--run", folder, *settings)
    check_refused(result, folder, "removed or replaced during the training")
    assert ({path.name for path in folder.iterdir()} if folder.exists() else None) == step_limit


def test_the_root_of_the_file_system_is_no_run_folder(corpus, monkeypatch):
    def nothing(self: Path, *rest: Any, **named: Any) -> None:
        raise AssertionError(f"{self} was made")

    monkeypatch.setattr(Path, "mkdir", nothing)
    result = run("train", corpus / "tiny.toml", "--run", "/")
    check_refused(result, "/: is the root of the file system")


def test_a_file_in_the_place_of_the_run_folder_is_refused(corpus, tmp_path):
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    for place in (tmp_path / "taken", tmp_path / "taken" / "run"):
        check_refused(run("train", corpus / "tiny.toml", "--run", place), place)
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(model, corpus, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    command = ["train", corpus / "tiny.toml", "--run", closed / "run"]
    refused = run(*command, as_anybody=True)
    check_refused(refused, closed, "permission denied")
    assert refused.out == ""  # before anything was read
    model.chmod(0o555)
    more = ["--resume", "--data", corpus, "--set", "training.max_steps=14"]
    check_refused(run("train", model, *more, as_anybody=True), model)
    assert not (model / "checkpoints" / "step-14").exists()
    out = closed / "look.png"
    look = ["look", "El gato", "--model", model, "--out", out]
    check_refused(run(*look, as_anybody=True), out, "permission denied")


def test_a_device_that_is_not_there_is_refused(corpus, tmp_path):
    result = run("train", corpus / "tiny.toml", "--run", tmp_path / "run", "--device", "abacus")
    check_refused(result, "--device abacus", code=2)
    assert not (tmp_path / "run").exists()
