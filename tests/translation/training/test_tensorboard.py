"""TensorBoard's files: they hold what metrics.jsonl holds, and say so where the package is missing."""

from __future__ import annotations

import builtins
import json
import sys

import pytest
from tests.translation.tiny import resumed, stop_at, trainer

from regard.errors import ConfigurationError
from regard.translation.training.events import Observer, Observers
from regard.translation.training.tensorboard import FOLDER, TensorBoard, check_installed


def test_the_event_files_hold_the_metrics_once(tmp_path):
    accumulated = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    made = trainer(tmp_path, "training.save_every=100")
    made.observer = TensorBoard(made.run.folder)
    stop_at(made, 5)
    reports = made._begin()
    for _ in range(2):  # steps 6 and 7 are made and reported, and then there is a kill
        reports.stepped(made.progress, made._step())
    made.observer.close()
    again = resumed(tmp_path, "training.save_every=100")
    assert again.progress.step == 5
    again.observer = TensorBoard(again.run.folder, again.progress.step)
    again.train()
    again.observer.close()
    events = accumulated.EventAccumulator(str(made.run.folder / FOLDER))
    events.Reload()
    lines = map(json.loads, (made.run.folder / "metrics.jsonl").read_text().splitlines())
    expected: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        kind = {"step": "training", "validation": "validation"}[line["kind"]]
        for name, value in line.items():
            if name not in ("kind", "step", "epoch", "score", "best"):
                expected.setdefault(f"{kind}/{name}", []).append((line["step"], value))
    assert set(events.Tags()["scalars"]) == set(expected)
    for tag, points in expected.items():
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        assert found == [(step, pytest.approx(value)) for step, value in points]


def test_what_to_install_is_told(monkeypatch):
    importing = builtins.__import__

    def missing(name: str, *rest: object):
        if name.startswith(("torch.utils.tensorboard", "tensorboard")):
            raise ImportError(name)
        return importing(name, *rest)

    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigurationError, match=r"pip install 'regard\[tensorboard\]'"):
        check_installed()


def test_several_observers_hear_everything(tmp_path):
    heard: list[list[str]] = [[], []]

    class Keeping(Observer):
        def __init__(self, into: list[str]) -> None:
            self.into = into

        def note(self, text: str) -> None:
            self.into.append("note")

        def advanced(self, step: int, total: int) -> None:
            self.into.append("advanced")

        def stepped(self, event: object, total: int) -> None:
            self.into.append("stepped")

        def validated(self, event: object) -> None:
            self.into.append("validated")

    made = trainer(tmp_path, "training.max_steps=1", "training.precision=auto")
    made.observer = Observers([Keeping(into) for into in heard])
    made.train()
    assert heard[0] == heard[1] == ["note", "note", "advanced", "stepped", "validated"]
