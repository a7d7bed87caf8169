"""TensorBoard's files: they hold what metrics.jsonl holds, and say so where the package is missing."""

from __future__ import annotations

import builtins
import json
import sys

import pytest
from tests.translation.tiny import resumed, stop_at, trainer

from regard.errors import ConfigurationError
from regard.translation.training.reporting import TENSORBOARD, Reports, check_tensorboard


def test_the_event_files_hold_the_metrics_once(tmp_path):
    accumulated = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    changes = ("training.save_every=100", "training.tensorboard=true")
    new_trainer = stop_at(trainer(tmp_path, *changes), 5)
    reports = Reports(new_trainer.run, True, new_trainer.observer, new_trainer.progress.step)
    for _ in range(2):  # steps 6 and 7 are made and reported, and then there is a kill
        update = new_trainer._step()
        reports.stepped(new_trainer.progress, update.rate, update.norm, new_trainer.schedule.steps)
    reports.close()
    second_trainer = resumed(tmp_path, *changes)
    assert second_trainer.progress.step == 5
    second_trainer.train()
    events = accumulated.EventAccumulator(str(new_trainer.run.folder / TENSORBOARD))
    events.Reload()
    lines = map(json.loads, (new_trainer.run.folder / "metrics.jsonl").read_text().splitlines())
    expected: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        kind = {"step": "training", "validation": "validation"}[line["kind"]]
        for name, value in line.items():
            if name not in ("kind", "step", "epoch", "epochs", "score", "best"):
                expected.setdefault(f"{kind}/{name}", []).append((line["step"], value))
    assert set(events.Tags()["scalars"]) == set(expected)
    for tag, points in expected.items():
        actual = [(event.step, event.value) for event in events.Scalars(tag)]
        assert actual == [(step, pytest.approx(value)) for step, value in points]


def test_what_to_install_is_told(monkeypatch):
    importing = builtins.__import__

    def missing(name: str, *rest: object):
        if name.startswith(("torch.utils.tensorboard", "tensorboard")):
            raise ImportError(name)
        return importing(name, *rest)

    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigurationError, match=r"pip install 'regard\[tensorboard\]'"):
        check_tensorboard()
