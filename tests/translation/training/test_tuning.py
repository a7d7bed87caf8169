"""The choice of arithmetic and threads: made from given times, never from this machine's."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from tests.translation.tiny import resumed, stop_at, trainer

from regard.translation.training import tuning
from regard.translation.training.epochs import Part
from regard.translation.training.loop import Trainer
from regard.translation.training.reporting import Observer
from regard.translation.training.step import Learner
from regard.translation.training.tuning import Setting, SlowWatch, candidates, fastest

ONE, TWO = Setting("float32", 1), Setting("float32", 2)
HALF = Setting("bfloat16", 1)


class Notes(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def script(seconds: dict[Setting, list[float]]) -> Callable[[Setting], float]:
    """Trials that take given times; the very first, which compiles, takes long and does not count."""
    inputs = {each: itertools.cycle(times) for each, times in seconds.items()}
    simplest = next(iter(seconds))
    inputs[simplest] = itertools.chain([99.0], inputs[simplest])
    return lambda setting: next(inputs[setting])


def test_the_simplest_comes_first_and_what_is_fixed_is_no_choice():
    assert candidates("float32", 3, most_threads=8) == [Setting("float32", 3)]
    assert candidates("bfloat16", 0, most_threads=1) == [HALF]
    assert candidates("auto", 0, most_threads=2) == [
        Setting(name, threads) for name in ("float32", "medium", "bfloat16") for threads in (1, 2)
    ]
    assert [each.threads for each in candidates("medium", 0, most_threads=64)] == [1, 4, 16, 64]


@pytest.mark.parametrize(
    ("ours", "theirs", "better"),
    [
        ([0.5], [1.0], True),
        ([0.9], [1.0], False),  # quicker, but not clearly
        ([2.0], [1.0], False),
        ([0.5, 0.5, 3.0, 0.5, 0.5], [1.0], True),  # one slow turn
        ([0.5, 3.0, 3.0, 0.5, 0.5], [1.0], False),  # two slow turns
        ([0.5], [0.5, 9.0, 9.0, 9.0, 9.0], False),  # another program slowed the simple one down
        ([1.0], [9.0, 1.1, 9.0, 9.0, 9.0], False),
    ],
)
def test_another_is_chosen_only_if_it_is_clearly_quicker(ours, theirs, better):
    quickest, _ = fastest([ONE, HALF], script({ONE: theirs, HALF: ours}))
    assert quickest == (HALF if better else ONE)


def test_noise_that_is_the_same_for_all_chooses_the_simplest():
    """A machine on which every second trial is four times slower, whatever is tried."""
    noise = itertools.cycle([1.0, 4.0, 1.0, 1.0, 4.0, 4.0, 1.0])
    choices = candidates("auto", 0, most_threads=2)
    assert fastest(choices, lambda setting: next(noise))[0] == ONE


def test_trials_take_turns_and_hopeless_ones_end():
    order: list[Setting] = []
    seconds = {ONE: 1.0, TWO: 9.0, HALF: 1.5}

    def trial(setting: Setting) -> float:
        order.append(setting)
        return seconds[setting]

    _, trials = fastest([ONE, TWO, HALF], trial)
    assert order == [ONE] + [ONE, TWO, HALF] + [ONE, HALF] * 4
    assert trials == {ONE: [1.0] * 5, TWO: [9.0], HALF: [1.5] * 5}


def test_threads_that_are_hopeless_in_one_arithmetic_are_not_tried_in_another():
    order: list[Setting] = []

    def trial(setting: Setting) -> float:
        order.append(setting)
        return 9.0 if setting.threads == 2 else 1.0

    quickest, trials = fastest(candidates("auto", 0, most_threads=2), trial)
    assert [each for each in order if each.threads == 2] == [TWO]
    assert quickest == ONE
    assert Setting("medium", 2) not in trials


def test_an_arithmetic_that_is_hopeless_with_one_thread_is_tried_with_several():
    fast = Setting("bfloat16", 2)
    seconds = {ONE: 1.0, TWO: 0.9, HALF: 9.0, fast: 0.2}
    assert fastest([ONE, TWO, HALF, fast], lambda setting: seconds[setting])[0] == fast


def test_the_simplest_is_measured_to_the_end_even_if_it_looks_hopeless():
    quickest, _ = fastest([ONE, TWO], script({ONE: [9.0, 1.0, 1.0, 1.0, 1.0], TWO: [1.0]}))
    assert quickest == ONE


def test_a_step_is_timed_by_the_clock_with_its_threads_and_arithmetic(tmp_path, monkeypatch):
    new_trainer = trainer(tmp_path)
    trials = []
    ticks = iter([10.0, 12.5])
    words = new_trainer.model.logits

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        trials.append((torch.get_num_threads(), words(hidden).dtype))
        return words(hidden)

    monkeypatch.setattr(new_trainer.model, "logits", logits)
    monkeypatch.setattr(tuning.time, "perf_counter", ticks.__next__)
    threads_before = torch.get_num_threads()
    try:
        largest = new_trainer.epochs.largest()
        assert tuning.trial(new_trainer._learner, largest, Setting("bfloat16", 2)) == 2.5
    finally:
        torch.set_num_threads(threads_before)
    assert trials == [(2, torch.bfloat16)]
    assert all(parameter.grad is None for parameter in new_trainer.model.parameters())


def test_a_training_that_stays_slow_is_told_once():
    watch = SlowWatch(Setting("bfloat16", 2), 900.0)
    speeds = [800, 200, 200, 400, 200, 200, 200, 200, 200, 200]
    message = [watch.advice(10 * step, speed) for step, speed in enumerate(speeds, start=1)]
    assert [text is not None for text in message] == [False] * 6 + [True] + [False] * 3
    assert message[6] == (
        "step 70: 200 tokens/s, but 900 were measured with bfloat16 with 2 threads: other programs may be using the "
        "processors; to change to float32 with 1 thread, stop with Ctrl-C and add to --resume: "
        "--set training.precision=float32 --set training.threads=1"
    )
    simplest = SlowWatch(ONE, 900.0)
    assert "Ctrl-C" not in str([simplest.advice(70, 200.0) for _ in range(3)][-1])
    unmeasured = SlowWatch(ONE, 0.0)
    assert not any(unmeasured.advice(70, 0.001) for _ in range(9))


AUTO = ("training.precision=auto",)


def quickest_is(quickest: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine measure one setting as four times as quick as all others."""

    def trial(learner: Learner, batch: Part, setting: Setting) -> float:
        return 0.25 if setting == quickest else 1.0

    monkeypatch.setattr(tuning, "trial", trial)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)


def noted(trainer: Trainer) -> list[str]:
    assert isinstance(trainer.observer, Notes)
    return trainer.observer.said


def test_what_is_measured_and_chosen_is_said_kept_and_resumed(tmp_path, monkeypatch):
    quickest_is(Setting("bfloat16", 2), monkeypatch)
    new_trainer = trainer(tmp_path, *AUTO)
    new_trainer.observer = Notes()
    stop_at(new_trainer, 1)
    measured, chose = noted(new_trainer)
    assert measured.startswith(
        "measured on a batch, in target tokens a second: float32 with 1 thread "
    )
    assert chose.startswith("chose bfloat16 with 2 threads")
    quickest_is(ONE, monkeypatch)  # the machine has become another
    second_trainer = resumed(tmp_path, *AUTO)
    second_trainer.observer = Notes()
    stop_at(second_trainer, 2)
    assert noted(second_trainer) == []
    assert (second_trainer.progress.precision, second_trainer.progress.threads) == ("bfloat16", 2)
    assert second_trainer.progress.measured == new_trainer.progress.measured > 0


def test_precision_and_threads_may_change_on_resume_and_it_is_said(tmp_path, monkeypatch):
    quickest_is(Setting("bfloat16", 2), monkeypatch)
    stop_at(trainer(tmp_path, *AUTO), 1)
    second_trainer = resumed(tmp_path, "training.precision=float32", "training.threads=1")
    second_trainer.observer = Notes()
    stop_at(second_trainer, 2)
    assert noted(second_trainer) == [
        "from step 2 on float32 with 1 thread, before bfloat16 with 2 threads: "
        "the weights will have other bits than without this change"
    ]
    progress = stop_at(resumed(tmp_path, *AUTO), 3).progress
    assert (progress.precision, progress.threads, progress.measured) == ("float32", 1, 0.0)


def test_fewer_threads_than_before_are_used_where_there_are_fewer(tmp_path, monkeypatch):
    quickest_is(TWO, monkeypatch)
    stop_at(trainer(tmp_path), 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    second_trainer = resumed(tmp_path)
    second_trainer.observer = Notes()
    stop_at(second_trainer, 2)
    assert second_trainer.progress.threads == 1
    assert noted(second_trainer)[0].startswith(
        "from step 2 on float32 with 1 thread, before float32 with 2 threads"
    )


def test_nothing_is_measured_where_nothing_is_open(tmp_path, monkeypatch):
    quickest_is(TWO, monkeypatch)
    monkeypatch.setattr(tuning, "trial", lambda *_: pytest.fail("measured"))
    new_trainer = trainer(tmp_path, "training.threads=2")
    new_trainer.observer = Notes()
    stop_at(new_trainer, 1)
    assert (new_trainer.progress.precision, new_trainer.progress.threads, noted(new_trainer)) == (
        "float32",
        2,
        [],
    )


def test_measuring_changes_no_weight(tmp_path, monkeypatch):
    """The same setting, measured and given, makes the same weights: trials draw no random number of the training."""
    real = tuning.trial

    def trial(learner: Learner, batch: Part, setting: Setting) -> float:
        return real(learner, batch, setting) * 0 + (1.0 if setting == ONE else 2.0)

    monkeypatch.setattr(tuning, "trial", trial)
    measured = stop_at(trainer(tmp_path, *AUTO, run="measured"), 2)
    actual_trainer = stop_at(trainer(tmp_path, run="given"), 2)
    assert measured.progress.precision == actual_trainer.progress.precision == "float32"
    pairs = zip(measured.model.parameters(), actual_trainer.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_slow_training_advises(tmp_path, monkeypatch):
    quickest_is(Setting("bfloat16", 2), monkeypatch)
    new_trainer = trainer(tmp_path, *AUTO)
    new_trainer.observer = Notes()
    stop_at(new_trainer, 1)
    new_trainer.progress.measured = 1e12  # tokens a second
    stop_at(new_trainer, 5)
    (advice,) = [
        said for said in noted(new_trainer) if "but 1,000,000,000,000 were measured" in said
    ]
    assert advice.startswith("step 4: ")
