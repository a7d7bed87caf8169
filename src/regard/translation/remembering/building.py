"""Makes a datastore: a model reads the translations of a corpus, and its states are kept."""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import torch

from regard.errors import DataError
from regard.translation.datastore import Datastore, Space
from regard.translation.remembering.pairs import as_read, batches, states_of
from regard.translation.text.corpora import Pair
from regard.translation.text.letters import WORD
from regard.translation.translator import Translator

_BATCHES = 16  # passes between two commits
_SAMPLE = 60_000  # states of which the space is learnt
_IN_A_LIST = 512  # states, as the lists are planned
_LISTS = 2048  # at most
_NOTHING = "no usable sentence pairs: nothing to remember"

Progress = Callable[[int], None]


def remember(
    translator: Translator,
    pairs: Sequence[Pair],
    folder: str | Path,
    *,
    progress: Progress = lambda done: None,
) -> int:
    """Add sentence pairs to the datastore of a folder, which is made where it is not there.

    Pairs that it has are left out, so the same call goes on after an interruption, which loses the last passes alone.
    How states become codes is learnt from the first corpus; later ones are added without computing anything anew.

    Args:
        progress: called with the number of pairs that have their states.

    Returns: how many pairs are new.

    Raises:
        DataError: there is no pair.
        ModelError: the folder is of another model, damaged, or being written to.
    """
    readable = as_read(translator, pairs)
    path = Path(folder)
    if not readable and not (path.is_dir() and any(path.iterdir())):
        raise DataError(_NOTHING)  # before the folder is made
    with translator.datastore(path, write=True) as datastore:
        new = datastore.add(readable)
        total = datastore.sentences
        if not total:
            raise DataError(_NOTHING)
        done = datastore.pairs_with_states()
        if done < total:  # the words before the states: an interruption leaves none of them out
            datastore.set_words(*_words(datastore))
        if datastore.space is None:
            datastore.fit(_fitted(translator, datastore, total))
        passes = batches(translator, datastore.pairs(done))
        while batch := list(islice(passes, _BATCHES)):
            states, tokens = zip(*(states_of(translator, each) for each in batch), strict=True)
            datastore.append(torch.cat(states), torch.cat(tokens))
            done += sum(map(len, batch))
            progress(done)
    return new


def _words(datastore: Datastore) -> tuple[str, str]:
    """The words of the sources, with small letters where they begin one, and those of the targets in small letters."""
    sources, targets = dict[str, None](), dict[str, None]()
    for source, target in datastore.pairs():
        initial, *later = WORD.findall(source) or [""]
        sources |= dict.fromkeys([initial.lower(), *later])
        targets |= dict.fromkeys(map(str.lower, WORD.findall(target)))
    return " ".join(sources), " ".join(targets)


def _fitted(translator: Translator, datastore: Datastore, total: int) -> Space:
    """The space of the states of some pairs, drawn by a fixed seed."""
    order = torch.randperm(total, generator=torch.Generator().manual_seed(1)).tolist()
    sample, size = list[int](), 0
    target = translator.tokenizers.target
    for number in order:
        if size >= _SAMPLE:
            break
        sample.append(number)
        size += len(target.encode(datastore.pair(number).target)) + 1
    passes = batches(translator, map(datastore.pair, sorted(sample)))
    states = torch.cat([states_of(translator, batch)[0] for batch in passes])
    planned = int(size / len(sample) * total / _IN_A_LIST)
    return Space.fit(states, max(1, min(_LISTS, planned, len(states) // 32)))
