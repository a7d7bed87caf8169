"""Masks that are kept are those of now, whoever wrote to their numbers, in every thread and mode."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import regard
from regard.attention import masks
from regard.attention.kernels import mask_cache as module
from regard.attention.kernels.mask_cache import cached
from regard.attention.shapes import Frame

CPU = torch.device("cpu")


def draw() -> Tensor:
    return torch.randn(2, 3, 6, 4, generator=torch.Generator().manual_seed(0))


def test_it_is_made_once_for_all_that_ask() -> None:
    mask, frame, made = masks.causal(align="end"), Frame((2,), 3, 5, CPU), []
    for _ in range(3):
        cached(mask, frame, "form", lambda: made.append(1) or torch.ones(3, 5))
    cached(mask, frame, "another", lambda: made.append(1) or torch.ones(3, 5))
    assert len(made) == 2


@pytest.mark.parametrize("name", ["numpy", "data", "in place", "inference"])
def test_lengths_that_were_written_to_are_read_anew(name: str) -> None:
    array = np.array([6, 6])
    lengths = torch.from_numpy(array)
    if name == "inference":
        with torch.inference_mode():
            lengths = torch.tensor([6, 6])
    mask, tensor = masks.padding(lengths), draw()
    before = regard.attend(tensor, tensor, tensor, mask=mask)
    if name == "numpy":
        array[:] = [1, 2]
    elif name == "data":
        lengths.data.copy_(torch.tensor([1, 2]))
    else:
        with torch.inference_mode():
            lengths.copy_(torch.tensor([1, 2]))
    after = regard.attend(tensor, tensor, tensor, mask=mask)
    assert not torch.allclose(before, after)
    assert torch.equal(after, regard.attend(tensor, tensor, tensor, mask=masks.padding([1, 2])))


def test_nothing_is_kept_where_another_queue_may_read_it_before_it_is_filled() -> None:
    mask, frame, made = masks.band(1, 1), Frame((2,), 3, 5, torch.device("meta")), []
    for _ in range(2):
        cached(mask, frame, "form", lambda: made.append(1) or torch.ones(3, 5))
    assert len(made) == 2


@pytest.mark.parametrize(("queries", "entries", "times"), [(1 << 13, 4, 1), (1, 1 << 13, 2)])
def test_a_form_is_small_by_the_numbers_it_has(queries: int, entries: int, times: int) -> None:
    mask, frame, made = masks.padding([5] * entries), Frame((entries,), queries, 1024, CPU), []
    for _ in range(2):
        cached(mask, frame, "form", lambda: made.append(1) or torch.ones(1))
    assert len(made) == times


@pytest.fixture
def restless() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_threads_that_clear_each_others_forms_get_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FORMS", 1)
    mask = masks.band(2, 2)

    def ask(keys: int) -> bool:
        frames = [Frame((), 1, keys + at % 2, CPU) for at in range(500)]
        return all(
            cached(mask, frame, "keys", lambda f=frame: f.keys) == frame.keys for frame in frames
        )

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(ask, range(1, 9)))


def test_shapes_may_be_worked_out_without_numbers() -> None:
    mask = masks.band(2, 1)
    with FakeTensorMode():
        tensor = torch.empty(2, 3, 6, 4)
        reading = regard.attend(tensor, tensor, tensor, mask=mask)
    assert isinstance(reading, FakeTensor)
    assert reading.shape == (2, 3, 6, 4)
    assert type(regard.attend(draw(), draw(), draw(), mask=mask)) is Tensor
