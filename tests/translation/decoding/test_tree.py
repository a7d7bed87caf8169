"""The tree of a beam search holds the steps of the search itself."""

from __future__ import annotations

import pytest

from regard.errors import ConfigurationError
from regard.translation.decoding.beam import Tree
from regard.translation.text.tokenizer import EOS
from regard.translation.translator import Translator

TEXT = "La hermana de mi madre vive en una casa grande."


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.open("es-en")


def path(tree: Tree, number: int) -> list[int]:
    tokens: list[int] = []
    while number >= 0:
        node = tree.nodes[number]
        assert node.parent < number
        tokens.insert(0, node.token)
        number = node.parent
    return tokens


@pytest.mark.parametrize("layers", [False, True])
def test_the_hypotheses_are_kept_ends_of_the_tree(translator, layers):
    tree, search = Tree(), translator.search.changed(nbest=translator.search.beam)
    handle = translator.model.register_forward_hook(lambda *_: None) if layers else None
    (translation,) = translator.translate([TEXT], search=search, tree=tree)
    if handle:
        handle.remove()
    (alone,) = translator.translate([TEXT], search=search)
    assert translation.target_ids == alone.target_ids
    ends = {
        tuple(path(tree, number)): node.log_probability
        for number, node in enumerate(tree.nodes)
        if node.kept and node.token == EOS
    }
    best = ends[(*translation.target_ids, EOS)]
    assert best == pytest.approx(translation.log_probability, abs=1e-4)
    likelihoods = sorted(one.log_probability for one in translation.alternatives)
    assert all(min(abs(each - end) for end in ends.values()) < 1e-4 for each in likelihoods)


def test_a_step_keeps_the_best_and_lists_those_that_it_dropped(translator):
    tree, beam = Tree(), translator.search.beam
    translator.translate([TEXT], tree=tree)
    first_nodes = [node for node in tree.nodes if node.parent < 0]
    assert [node.kept for node in first_nodes] == [True] * beam + [False] * (
        len(first_nodes) - beam
    )
    scores = [node.log_probability for node in first_nodes]
    assert scores == sorted(scores, reverse=True)
    parents = {node.parent for node in tree.nodes if node.parent >= 0}
    assert all(tree.nodes[number].kept for number in parents)
    for node in tree.nodes:
        if node.parent >= 0:
            assert node.log_probability <= tree.nodes[node.parent].log_probability + 1e-6


def test_a_tree_is_of_one_sentence(translator):
    with pytest.raises(ConfigurationError, match="one sentence"):
        translator.translate([TEXT, TEXT], tree=Tree())
    with pytest.raises(ConfigurationError, match="one sentence"):
        translator.translate([TEXT, TEXT], tree=Tree(), batch_tokens=1)
