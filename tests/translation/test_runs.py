"""Run folders: free or taken, one trainer at a time, nothing believed unchecked."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.translation.tiny import stop_at, trainer
from torch import nn

from regard import files
from regard.errors import CheckpointError, ModelError, RegardError, TrainingError
from regard.translation import checksums, opening, weights
from regard.translation.checksums import SUMS
from regard.translation.runs import Run
from regard.translation.runs.layout import MODEL, UNSEEN, folder_sums
from regard.translation.settings import toml
from regard.translation.text.tokenizer import Tokenizer


@pytest.fixture
def run(tmp_path) -> Run:
    """A published run."""
    new_trainer = stop_at(trainer(tmp_path), 2)
    tensors, _ = new_trainer.best_weights()
    new_trainer.run.publish(tensors, "# A card\n")
    return new_trainer.run


def test_a_published_model_opens_as_it_was_saved(run):
    opened_run = Run.open(run.folder)
    assert opened_run.configuration == run.configuration
    tokenizers = opened_run.tokenizers()
    assert tokenizers.joint
    state_before = torch.get_rng_state()
    model = opened_run.model(tokenizers)
    assert torch.equal(torch.get_rng_state(), state_before)
    assert not model.training
    saved = weights.load(run.folder / MODEL)
    assert all(torch.equal(saved[name], tensor) for name, tensor in weights.unique(model).items())
    assert (run.folder / "card.md").read_text() == "# A card\n"


def test_before_it_is_published_the_newest_checkpoint_serves(tmp_path):
    new_trainer = trainer(tmp_path, "training.keep_best=1")
    with pytest.raises(ModelError, match="nothing trained yet"):
        new_trainer.run.model(new_trainer.run.tokenizers())
    stop_at(new_trainer, 2)
    folder = new_trainer.run.folder / "checkpoints"
    (folder / "step-10").mkdir()
    (folder / "step-9").mkdir()
    (folder / "step-x").mkdir()
    assert new_trainer.run.newest_checkpoint() == folder / "step-10"  # by its number
    for empty in ("step-10", "step-9"):
        (folder / empty).rmdir()
    assert not new_trainer.run.model(new_trainer.run.tokenizers()).training


def test_a_published_model_that_is_gone_is_not_replaced_by_a_checkpoint(run):
    (run.folder / MODEL).unlink()
    assert run.newest_checkpoint() is not None
    with pytest.raises(CheckpointError, match=r"model\.safetensors: is missing, but"):
        run.model(run.tokenizers())


def test_separate_tokenizers_have_a_file_each(tmp_path):
    new_trainer = trainer(tmp_path, "tokenizer.joint=false", "model.tied=target")
    assert (new_trainer.run.folder / "source.model").exists()
    tokenizers = new_trainer.run.tokenizers()
    assert not tokenizers.joint
    stop_at(new_trainer, 2)
    new_trainer.run.publish(weights.unique(new_trainer.model), "card")
    source, target = (
        new_trainer.run.folder / "source.model",
        new_trainer.run.folder / "target.model",
    )
    swapped = source.read_bytes(), target.read_bytes()
    source.write_bytes(swapped[1])
    target.write_bytes(swapped[0])
    with pytest.raises(CheckpointError, match=r"source\.model: corrupted or truncated: its sha256"):
        new_trainer.run.tokenizers()


def test_a_tokenizer_that_does_not_fit_the_weights(run):
    other_tokenizer = Tokenizer.train(["other words entirely here"] * 9, vocabulary_size=285)
    (run.folder / "tokenizer.model").write_bytes(other_tokenizer.model)
    (run.folder / SUMS).unlink()
    with pytest.raises(
        CheckpointError,
        match=r"tensor target_embedding.weight has shape \(\d+, 16\), the configuration asks",
    ):
        run.model(run.tokenizers())


@pytest.mark.parametrize("name", [MODEL, "tokenizer.model", "config.toml"])
def test_a_changed_byte_is_noticed(run, name):
    path = run.folder / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name}: corrupted or truncated"):
        Run.open(run.folder).model(run.tokenizers())
    path.unlink()
    with pytest.raises(ModelError, match=r"cannot be read|nothing trained"):
        Run(run.folder / "elsewhere", run.configuration).model(run.tokenizers())


def test_publishing_again_can_be_killed_at_any_moment(run, monkeypatch):
    """New weights under the checksums of old ones could never be opened."""
    write = files.write
    better = {name: tensor + 1 for name, tensor in weights.load(run.folder / MODEL).items()}
    for survivor in range(3):
        paths: list[Path] = []

        def killed(
            path: Path, content: bytes, limit: int = survivor, paths: list[Path] = paths
        ) -> None:
            if len(paths) == limit:
                raise KeyboardInterrupt
            paths.append(path)
            write(path, content)

        monkeypatch.setattr(files, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            run.publish(better, "new")
        run.model(run.tokenizers())


def test_an_export_is_half_and_opens(run, tmp_path):
    run.export(tmp_path / "out" / "small")
    exported = Run.open(tmp_path / "out" / "small")
    assert weights.load(exported.folder / MODEL)["encoder_norm.weight"].dtype == torch.float16
    weights_read = weights.unique(exported.model(exported.tokenizers()))
    expected_tensors = weights.load(run.folder / MODEL)
    assert all(
        torch.equal(weights_read[name], tensor.half().float())
        for name, tensor in expected_tensors.items()
    )
    assert sorted(json.loads((exported.folder / SUMS).read_text())) == [
        "config.toml",
        "doubts.json",
        MODEL,
        "tokenizer.model",
        UNSEEN,
        "words.json",
    ]
    assert exported.tokenizers().unseen == run.tokenizers().unseen != frozenset()
    assert (exported.folder / MODEL).stat().st_size < 0.6 * (run.folder / MODEL).stat().st_size
    with pytest.raises(ModelError, match="small: is there already"):
        run.export(exported.folder)
    run.export(tmp_path / "whole", "float32")
    assert checksums.of(tmp_path / "whole" / MODEL) == checksums.of(run.folder / MODEL)


def test_an_export_in_whole_numbers_is_within_half_a_step(run, tmp_path):
    run.export(tmp_path / "small", "int8")
    exported = Run.open(tmp_path / "small")
    weights_read = weights.unique(exported.model(exported.tokenizers()))
    for name, tensor in weights.load(run.folder / MODEL).items():
        if tensor.dim() == 2:
            step = tensor.abs().amax(1, keepdim=True) / 127
            assert bool(((weights_read[name] - tensor).abs() <= step / 2 * (1 + 1e-4)).all())
        else:
            assert torch.equal(weights_read[name], tensor.half().float())
    assert (exported.folder / MODEL).stat().st_size < 0.45 * (run.folder / MODEL).stat().st_size


def test_an_export_is_whole_or_not_there(run, tmp_path, monkeypatch):
    def killed(*_: object) -> None:
        assert not (tmp_path / "out").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(weights, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            run.export(tmp_path / "out")
    assert not list(tmp_path.glob(".*.tmp"))
    (run.folder / "card.md").unlink()
    with pytest.raises(ModelError, match=r"card\.md: cannot be read: No such file"):
        run.export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_carries_no_damage_on(run, tmp_path):
    whole_content = (run.folder / MODEL).read_bytes()
    (run.folder / MODEL).write_bytes(whole_content[:-1] + bytes([whole_content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="corrupted or truncated"):
        run.export(tmp_path / "out")
    run.publish({"a": torch.tensor([1e6])}, "card")
    with pytest.raises(ModelError, match="tensor a holds numbers beyond half precision"):
        run.export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"model.safetensors": 1}', b"\xff"])
def test_broken_checksums_are_told(run, content):
    (run.folder / SUMS).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"checksums\.json: corrupted or truncated"):
        run.tokenizers()


def test_a_configuration_that_lost_its_last_lines_is_noticed(run):
    path = run.folder / "config.toml"
    # Still TOML, and every key that is missing has a default.
    path.write_text(path.read_text().partition("[search]")[0])
    assert toml.read(path) != run.configuration
    with pytest.raises(CheckpointError, match=r"config\.toml: corrupted or truncated"):
        Run.open(run.folder)


def test_a_configuration_that_was_edited_opens_as_the_error_says(run):
    path = run.folder / "config.toml"
    path.write_text(path.read_text().replace("beam = 2", "beam = 3"))
    with pytest.raises(CheckpointError, match=r"if you have edited it, remove its line from (.*)"):
        Run.open(run.folder)
    lines = (run.folder / SUMS).read_text().splitlines(keepends=True)
    (run.folder / SUMS).write_text("".join(line for line in lines if "config.toml" not in line))
    opened_run = Run.open(run.folder)
    assert opened_run.configuration.search.beam == 3
    opened_run.model(opened_run.tokenizers())  # its other files are compared as before
    opened_run.publish(weights.load(run.folder / MODEL), "again")
    assert json.loads((run.folder / SUMS).read_text())["config.toml"] == checksums.of(path)


@pytest.mark.parametrize(
    "listed_names", [None, [], ["tokenizer.model"], [MODEL, "tokenizer.model"]]
)
def test_folders_of_earlier_versions_list_fewer_files_and_open(run, listed_names):
    if listed_names is None:
        (run.folder / SUMS).unlink()
    else:
        checksums.sign(run.folder, listed_names)
    opened_run = Run.open(run.folder)
    opened_run.model(opened_run.tokenizers())
    opened_run.keep("alignment.toml", b"[choice]")
    assert (run.folder / SUMS).exists() == (listed_names is not None)


def test_a_run_without_a_record_of_unseen_pieces_opens_and_is_exported(run, tmp_path):
    sums = json.loads((run.folder / SUMS).read_text())
    (run.folder / UNSEEN).unlink()
    with pytest.raises(CheckpointError, match=r"unseen\.json: cannot be read"):
        run.tokenizers()  # it is listed
    checksums.sign(run.folder, sums.keys() - {UNSEEN})
    assert run.tokenizers().unseen == frozenset()
    run.export(tmp_path / "out")
    assert Run.open(tmp_path / "out").tokenizers().unseen == frozenset()
    assert not (tmp_path / "out" / UNSEEN).exists()


@pytest.mark.parametrize("content", [b"[", b"{}", b"[1]", b"\xff", b"[" * 100_000])
def test_a_broken_record_of_unseen_pieces_is_refused(run, content):
    (run.folder / UNSEEN).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"unseen\.json: corrupted or truncated: its sha256"):
        run.tokenizers()
    (run.folder / SUMS).unlink()
    with pytest.raises(CheckpointError, match=r"unseen\.json: .* expected a list of pieces"):
        run.tokenizers()


def test_a_flip_in_the_name_of_a_file_leaves_none_uncompared(run):
    whole_text = (run.folder / SUMS).read_text()
    for name in json.loads(whole_text):
        (run.folder / SUMS).write_text(whole_text.replace(name, "X" + name[1:]))
        with pytest.raises(CheckpointError, match=f"checksums.json: .* names 'X{name[1:]}'"):
            Run.open(run.folder)


def test_what_is_kept_beside_a_model_gets_its_checksum_and_may_be_killed(run, monkeypatch):
    run.keep("alignment.toml", b"one")
    assert run.content("alignment.toml") == b"one"
    write = files.write
    for survivor in range(3):
        survivors = [survivor]

        def killed(path: Path, content: bytes, survivors: list[int] = survivors) -> None:
            survivors[0] -= 1
            if survivors[0] < 0:
                raise KeyboardInterrupt
            write(path, content)

        monkeypatch.setattr(files, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            run.keep("alignment.toml", b"two")
        monkeypatch.setattr(files, "write", write)
        assert run.content("alignment.toml") in (b"one", b"two")
    run.keep("alignment.toml", b"two")
    (run.folder / "alignment.toml").write_bytes(b"twp")
    with pytest.raises(CheckpointError, match=r"alignment\.toml: corrupted or truncated"):
        run.content("alignment.toml")


@pytest.mark.parametrize("name", [SUMS, MODEL, "tokenizer.model"])
def test_a_pipe_in_the_place_of_a_file_is_refused(run, name):
    (run.folder / name).unlink()
    os.mkfifo(run.folder / name)
    with pytest.raises(ModelError, match=f"{name}: cannot be read: not an ordinary file"):
        Run.open(run.folder).model(run.tokenizers())


@pytest.mark.parametrize("folder", opening.bundled().values(), ids=lambda folder: folder.name)
def test_a_bundled_model_is_as_its_checksums_say(folder):
    sums = json.loads((folder / SUMS).read_text())
    assert sums == {name: checksums.of(folder / name) for name in sums}
    assert {path.name for path in folder.iterdir()} - sums.keys() == {SUMS, "card.md"}


def test_weights_of_another_model_are_refused_from_their_header(run, monkeypatch):
    """A sparse file of two gigabytes, of which no more than the header is read."""
    path = run.folder / MODEL
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**29], "data_offsets": [0, 2**31]}})
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header.encode())
        file.truncate(file.tell() + 2**31)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=r"tensor a has no place|is missing"):
        run.model(run.tokenizers())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 300 * 2**10


def test_no_run_folder(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ModelError, match=r"no run folder or model: it has no config\.toml"):
            Run.open(folder)


def test_a_folder_that_is_taken_a_file_or_not_to_be_written(run, tmp_path, monkeypatch):
    with pytest.raises(TrainingError, match="already holds a run"):
        Run.check_free(run.folder)
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match="is a file"):
        Run.check_free(tmp_path / "file")
    with pytest.raises(TrainingError, match="file is a file, not a folder"):
        Run.check_free(tmp_path / "file" / "run")
    Run.check_free(tmp_path / "new" / "deeper")
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(TrainingError, match="permission denied"):
        Run.check_free(tmp_path / "new")


def elsewhere(work: Callable[[], str]) -> tuple[int, int]:
    """Do some work in a process apart; gives its id and a pipe from which its answer can be read."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.write(writing, work().encode())
        except BaseException as fault:
            os.write(writing, repr(fault).encode())
        finally:
            os._exit(0)
    os.close(writing)
    return process, reading


def message_of(check: Callable[[Path], object], folder: Path) -> str:
    try:
        check(folder)
    except RegardError as fault:
        return str(fault)
    return "nothing"


def test_another_user_is_told_what_may_not_be_written(tmp_path):
    """Root may write everywhere, so where the tests run as root another user asks."""
    closed, secret = tmp_path / "closed", tmp_path / "secret"
    closed.mkdir(mode=0o555)
    secret.mkdir(mode=0o000)

    def work() -> str:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        folders = closed / "run", secret / "run"
        return "\n".join(
            message_of(check, f) for check in (Run.check_free, Run.open) for f in folders
        )

    process, reading = elsewhere(work)
    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(process, 0)
    secret.chmod(0o700)
    # Folders above may be closed to another user as well; what matters is that each fault is told.
    assert len(lines) == 4
    assert all("cannot be written: permission denied" in line for line in lines[:2]), lines
    assert all("no run folder or model" in line for line in lines[2:]), lines


def test_a_second_trainer_hears_who_the_first_is(tmp_path):
    run = trainer(tmp_path).run
    lock = run.folder / ".lock"

    def work() -> str:
        with run.locked():
            time.sleep(600)
        return ""

    process, reading = elsewhere(work)
    try:
        while not lock.exists() or not lock.read_text():
            time.sleep(0.01)
        with (
            pytest.raises(TrainingError, match=f"process {process} is writing to it"),
            run.locked(),
        ):
            pass
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(reading)
    with run.locked():  # a lock dies with its process
        assert lock.read_text().strip() == str(os.getpid())
    assert not lock.exists()


def test_a_second_writer_is_refused_and_no_checksum_is_lost(tmp_path, monkeypatch):
    run, write, refused = trainer(tmp_path).run, files.write, []

    def late(path, content):
        """Another writer comes between the table of checksums that the first one read, and its last."""
        if Path(path).name == "alignment.toml":
            with pytest.raises(TrainingError, match="this process is writing") as fault:
                Run.open(run.folder).keep("doubts.json", b"{}")
            refused.append(fault)
        return write(path, content)

    monkeypatch.setattr(files, "write", late)
    run.keep("alignment.toml", b"one")
    assert len(refused) == 1
    run.keep("doubts.json", b"two")
    sums = folder_sums(run.folder)
    assert {"alignment.toml", "doubts.json"} <= sums.keys()
    for name, expected in sums.items():
        assert checksums.of(run.folder / name) == expected
    assert not (run.folder / ".lock").exists()


def test_all_writes_under_one_lock_are_made(tmp_path):
    with trainer(tmp_path).run.locked() as run:
        run.keep("alignment.toml", b"one")
        run.publish({"a": torch.ones(1)}, "card")
        assert run.lock.held()
        with run.locked() as second_lock:
            assert second_lock is run
        assert run.lock.held()
    assert {"alignment.toml", MODEL} <= folder_sums(run.folder).keys()


def test_a_lock_that_leads_elsewhere_or_cannot_be_had_is_no_other_trainer(tmp_path, monkeypatch):
    run, mine = trainer(tmp_path).run, tmp_path / "mine"
    mine.write_text("mine")
    (run.folder / ".lock").symlink_to(mine)
    with pytest.raises(TrainingError, match="cannot be locked"), run.locked():
        pass
    assert mine.read_text() == "mine"
    (run.folder / ".lock").unlink()

    def without_locks(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with run.locked() as unlocked:  # goes on without one
        assert not (run.folder / ".lock").exists()
        unlocked.keep("alignment.toml", b"one")
        unlocked.check_there(1)
    assert run.content("alignment.toml") == b"one"


def test_nothing_is_written_under_a_lock_that_has_ended(tmp_path):
    with trainer(tmp_path).run.locked() as run:
        run.keep("alignment.toml", b"one")
    with pytest.raises(TrainingError, match="its lock has ended"):
        run.keep("alignment.toml", b"two")
    assert run.content("alignment.toml") == b"one"


def test_enormous_sizes_are_refused_before_memory_is_taken(run, monkeypatch):
    devices = set()
    monkeypatch.setattr(
        nn.Linear, "reset_parameters", lambda layer: devices.add(layer.weight.device.type)
    )
    changes = ("model.feed_forward=65536", "model.encoder_layers=200")
    enormous = Run(run.folder, toml.read(run.folder / "config.toml", changes))
    with pytest.raises(CheckpointError, match=r"has shape .*65536"):
        enormous.model(run.tokenizers())
    assert devices == {"meta"}
