"""Memory that runs out: which batch, and what to lower; nothing else is called so."""

from __future__ import annotations

import resource

import pytest
import torch
from tests.translation.tiny import configuration
from tests.translation.training.ranks import forked, together

from regard.errors import TrainingError, memory_named, ran_out_of_memory
from regard.translation.training.preparation import prepare
from regard.translation.training.processes import Processes

OURS = [
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("std::bad_alloc"),
    MemoryError(),
]
OTHERS = [
    RuntimeError("unsupported memory format option Preserve"),
    RuntimeError("view size is not compatible with input tensor's size and stride"),
    OSError("cannot allocate memory"),
]


@pytest.mark.parametrize("fault", OURS, ids=lambda fault: str(fault)[:20])
def test_it_is_told_what_to_lower(fault):
    assert ran_out_of_memory(fault)
    with pytest.raises(TrainingError, match=r"^out of memory doing this: lower that$"):  # noqa: SIM117
        with memory_named("doing this", "that"):
            raise fault


@pytest.mark.parametrize("fault", OTHERS, ids=lambda fault: str(fault)[:20])
def test_other_faults_stay_what_they_are(fault):
    assert not ran_out_of_memory(fault)
    with pytest.raises(type(fault)) as raised, memory_named("doing this", "that"):
        raise fault
    assert raised.value is fault


@forked
def test_a_process_that_really_has_no_more_says_which_batch(tmp_path):
    sets = ["model.width=256", "training.batch_tokens=100000", "tokenizer.sampling=0"]
    wanted = configuration(tmp_path, *sets)
    line = "one two three four five six seven eight " * 3
    (tmp_path / "pairs.tsv").write_text(f"{line}\t{line.upper()}\n" * 600)

    def work(processes: Processes) -> None:
        made = prepare(wanted, tmp_path / "run", processes=processes)
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        # Address space, since that is what allocating fails by: room for little more than the model.
        limit = pages * resource.getpagesize() + 100 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        made.train()

    (said,) = together(1, tmp_path / "ranks", work)
    assert said.startswith("out of memory on a batch of "), said
    assert "(step 1, rows " in said
    assert said.endswith("lower training.batch_tokens or data.longest")
