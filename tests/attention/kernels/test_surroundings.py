"""Kernels among what programs do: forked data loaders, threads, exported graphs."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import regard
from regard.attention import masks, scores

torch.manual_seed(0)
SCORE = scores.Additive(4, 4, 8)


def read(seed: int, kernel: str) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(2, n, 4, generator=generator) for n in (5, 7))
    with regard.kernel(kernel):
        return regard.attend(query, key, key, score=SCORE if kernel == "cpu" else None).detach()


class Readings(Dataset[Tensor]):
    """Readings computed by whoever loads them."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel

    def __len__(self) -> int:
        return 6

    def __getitem__(self, at: int) -> Tensor:
        return read(at, self.kernel)


@pytest.mark.skipif(sys.platform != "linux", reason="fork is not how data loaders start here")
@pytest.mark.parametrize("kernel", ["cpu", "sdpa", "blocked"])
def test_data_loaders_may_fork_after_a_kernel_has_run(kernel: str) -> None:
    expected = torch.stack([read(at, kernel) for at in range(6)])
    loader = DataLoader(
        Readings(kernel), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=120
    )
    assert torch.allclose(torch.cat(list(loader)), expected)
    assert torch.allclose(read(0, kernel), expected[0])


@pytest.mark.parametrize("kernel", ["cpu", "sdpa", "matmul", "blocked"])
def test_threads_may_call_at_once(kernel: str) -> None:
    expected = [read(at, kernel) for at in range(8)]
    with ThreadPoolExecutor(4) as callers:
        together = list(callers.map(lambda at: read(at % 8, kernel), range(32)))
    assert all(torch.equal(got, expected[at % 8]) for at, got in enumerate(together))


class Reader(nn.Module):
    def __init__(self, kernel: str) -> None:
        super().__init__()
        self.kernel, self.score = kernel, SCORE if kernel == "cpu" else None

    def forward(self, query: Tensor, key: Tensor, lengths: Tensor) -> Tensor:
        with regard.kernel(self.kernel):
            return regard.attend(query, key, key, score=self.score, mask=masks.padding(lengths))


@pytest.mark.parametrize("kernel", ["cpu", "sdpa", "matmul", "reference"])
def test_an_exported_program_reads_the_same(kernel: str) -> None:
    query, key = torch.randn(2, 5, 4), torch.randn(2, 7, 4)
    reader, lengths = Reader(kernel), torch.tensor([7, 3])
    program = torch.export.export(reader, (query, key, lengths))
    for sizes in (lengths, torch.tensor([1, 0])):
        actual = program.module()(query, key, sizes)
        assert torch.allclose(actual, reader(query, key, sizes), atol=1e-6)
    if kernel == "cpu":
        assert "regard.additive" in str(program.graph)
