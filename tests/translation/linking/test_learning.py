"""Links learnt from a text: the same on any number of threads, for any sentences, and kept for later text."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.errors import DataError
from regard.translation.aligning.adapted import adapt
from regard.translation.linking import learning
from regard.translation.linking.learning import all_rounds, chain_names, learn
from regard.translation.linking.priors import FORMAT, Priors

NOUNS = {"casa": "house", "mesa": "table", "silla": "chair", "puerta": "door", "calle": "street"}
COLOURS = {"verde": "green", "roja": "red", "negra": "black"}
PAIRS = [
    (["la", noun, colour], ["the", COLOURS[colour], NOUNS[noun]])
    for noun in NOUNS
    for colour in COLOURS
]
GOLD = {(0, 0), (1, 2), (2, 1)}


@pytest.fixture
def threads():
    threads_before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(threads_before)


def test_words_of_another_order_are_linked():
    assert all(aligned.links == GOLD for aligned in adapt(PAIRS).aligned())
    assert all(each.links == GOLD for each in adapt(PAIRS).aligned("grow-diagonal"))


def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(threads):
    results = []
    for count in (1, 2, 3):
        threads(count)
        results.append(learn(PAIRS, seed=5)[0])
    for result in results[1:]:
        np.testing.assert_array_equal(results[0].forward, result.forward)
        np.testing.assert_array_equal(results[0].backward, result.backward)
    assert not np.array_equal(results[0].forward, learn(PAIRS, seed=6)[0].forward)


def test_probabilities_of_a_word_sum_to_one_at_most():
    posteriors, _ = learn([*PAIRS, (["uno"], []), (["x"] * 50, ["y"] * 3)])
    for number in range(len(PAIRS) + 2):
        forward, backward = posteriors.matrices(number)
        assert (forward.sum(1) <= 1 + 1e-5).all()
        assert (backward.sum(0) <= 1 + 1e-5).all()
        assert min(forward.min(initial=0), backward.min(initial=0)) >= 0


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [([], [])],
        [(["a"], [])],
        [(["a"], ["b"])],
        [(["a"] * 300, ["b"])],
        [(["\0", "\ud800"], ["𝔞", ""])],
        [(["a", "b"], ["a", "b"])] * 3,
    ],
    ids=["no pair", "empty", "one side", "one word", "long", "odd characters", "the same text"],
)
def test_any_text_keeps_its_pairs(pairs):
    aligned = list(adapt(pairs).aligned())
    assert [(each.source, each.target) for each in aligned] == pairs
    assert all(each.weights.shape == (len(each.target), len(each.source)) for each in aligned)


def test_the_same_text_on_both_sides_is_linked_word_by_word():
    words = "each word of this line is another one".split()
    (aligned,) = adapt([(words, words)]).aligned()
    assert aligned.links == {(n, n) for n in range(len(words))}


def test_pairs_that_are_too_long_have_no_links_and_change_no_others(monkeypatch):
    monkeypatch.setattr(learning, "MOST_CELLS", 100)
    text = adapt([*PAIRS[:5], (["a"] * 60, ["b"] * 50), *PAIRS[5:]])
    aligned = list(text.aligned())
    assert text.posteriors.too_long == [5]
    assert aligned.pop(5).links == set()
    assert all(each.links == GOLD for each in aligned)


def test_progress_counts_all_rounds_and_an_error_ends_all_chains(threads):
    threads(2)
    counted: list[int] = []
    learn(PAIRS, progress=counted.append)
    assert counted == list(range(all_rounds(len(PAIRS))))

    def interrupt(count: int) -> None:
        counted.append(count)
        if count == 3:
            raise KeyboardInterrupt

    counted.clear()
    with pytest.raises(KeyboardInterrupt):
        learn(PAIRS, progress=interrupt)
    assert counted == [0, 1, 2, 3]


def test_one_sentence_is_aligned_with_what_a_text_taught(tmp_path):
    _, priors = learn(PAIRS)
    priors.save(tmp_path / "priors")
    stored = Priors.load(tmp_path / "priors", chain_names())
    lone = [(["calle", "verde", "nueva"], ["new", "green", "street"])]
    (aligned,) = adapt(lone, priors=stored).aligned()
    assert {(0, 2), (1, 1)} <= aligned.links
    np.testing.assert_array_equal(
        learn(lone, priors=priors)[0].forward, learn(lone, priors=stored)[0].forward
    )


def test_a_damaged_file_of_priors_is_refused(tmp_path):
    path = tmp_path / "priors"
    learn(PAIRS)[1].save(path)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match=r"priors: .*header|priors: cannot"):
        Priors.load(path, chain_names())
    path.write_bytes(content.replace(b"whole.forward.types", b"whole.forward.tapes"))
    with pytest.raises(DataError, match="damaged"):
        Priors.load(path, chain_names())
    path.write_bytes(b"text")
    with pytest.raises(DataError, match="cannot be read"):
        Priors.load(path, chain_names())
    with pytest.raises(DataError, match="cannot be read"):
        Priors.load(tmp_path / "none", chain_names())


@pytest.mark.parametrize(
    ("key", "tensor"),
    [
        ("jumps", torch.ones(1, dtype=torch.float64)),
        ("jumps", torch.full((61,), 1e308, dtype=torch.float64)),
        ("jumps", torch.full((61,), torch.nan, dtype=torch.float64)),
        ("jumps", torch.ones(61, dtype=torch.bfloat16)),
        ("fertility", torch.ones(3, 6)),
        ("types", torch.zeros(3, 2)),
        ("source_forms", b"[" * 100_000),
        ("source_forms", b"7"),
        ("source_forms", b"[[]]"),
        ("source_forms", b"\xff"),
    ],
    ids=lambda value: "" if isinstance(value, torch.Tensor) else str(value)[:8],
)
def test_hostile_priors_are_refused(tmp_path, key, tensor):
    path = tmp_path / "priors"
    learn(PAIRS[:2])[1].save(path)
    if isinstance(tensor, bytes):
        tensor = torch.frombuffer(bytearray(tensor), dtype=torch.uint8)
    tensors = {**load_file(path), f"whole.forward.{key}": tensor}
    save_file(tensors, path, {"format": FORMAT})
    with pytest.raises(DataError, match="damaged"):
        Priors.load(path, chain_names())
