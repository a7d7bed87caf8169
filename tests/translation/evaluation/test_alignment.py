"""Links and how right they are, against worked examples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.translation.evaluation.alignment import (
    argmax_links,
    count_from_one,
    diagonal_links,
    flipped,
    grow_diagonal,
    measure_alignment,
    mutual_links,
    parse_links,
    threshold_links,
)

LINKS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


def test_the_scores_of_a_worked_example():
    links = [{(0, 0), (1, 1), (2, 3)}, {(0, 1)}]
    sure, possible = [{(0, 0), (1, 1)}, {(0, 0)}], [{(2, 3)}, set()]
    scores = measure_alignment(links, sure, possible)
    # 4 links: 2 sure, 3 possible; 3 sure ones in the gold.
    assert scores.precision == pytest.approx(75.0)
    assert scores.recall == pytest.approx(200 / 3)
    assert scores.f1 == pytest.approx(2 * 75 * (200 / 3) / (75 + 200 / 3))
    assert scores.aer == pytest.approx(100 * (1 - 5 / 7))
    assert scores.links == 4


@given(LINKS, LINKS)
def test_without_possible_links_aer_is_one_minus_f1(links: set, sure: set):
    scores = measure_alignment([links], [sure])
    if links and sure:
        assert scores.aer == pytest.approx(100 - scores.f1)


def test_nothing_found_and_nothing_wanted():
    nothing = measure_alignment([set()], [set()])
    assert (nothing.aer, nothing.precision, nothing.recall) == (0, 100, 100)
    missed = measure_alignment([set()], [{(0, 0)}])
    assert (missed.aer, missed.recall, missed.f1) == (100, 0, 0)
    invented = measure_alignment([{(0, 0)}], [set()])
    assert (invented.aer, invented.precision) == (100, 0)


def test_unequal_numbers_are_refused():
    with pytest.raises(DataError, match="1 sentences with links, 2 with sure"):
        measure_alignment([set()], [set(), set()])


def test_gold_lines_are_read():
    assert parse_links(" 0-0 2?1  3p4\n") == ({(0, 0)}, {(2, 1), (3, 4)})
    assert parse_links("") == (set(), set())


@pytest.mark.parametrize("line", ["0-", "-1-0", "１-1"])
def test_what_is_no_link_is_told(line: str):
    with pytest.raises(DataError, match="not a link"):
        parse_links(line)


def test_links_of_a_look():
    weights = torch.tensor([[0.1, 0.6, 0.3], [0.4, 0.4, 0.2], [0.0, 0.0, 0.0]])
    assert argmax_links(weights) == {(1, 0), (0, 1)}
    assert threshold_links(weights, 0.3) == {(1, 0), (2, 0), (0, 1), (1, 1)}
    assert flipped(argmax_links(weights)) == {(0, 1), (1, 0)}
    assert argmax_links(torch.empty(0, 3)) == set()


def test_mutual_links_hold_from_both_sides():
    weights = torch.tensor([[0.1, 0.6, 0.3], [0.0, 0.9, 0.1], [0.5, 0.1, 0.4]])
    assert argmax_links(weights) == {(1, 0), (1, 1), (0, 2)}
    assert mutual_links(weights) == {(1, 1), (0, 2)}
    assert mutual_links(torch.zeros(2, 2)) == set()
    assert mutual_links(torch.empty(0, 3)) == set()


def test_the_diagonal_runs_from_corner_to_corner():
    assert diagonal_links(4, 4) == {(place, place) for place in range(4)}
    assert diagonal_links(7, 3) == {(0, 0), (3, 1), (6, 2)}
    assert diagonal_links(1, 3) == {(0, 0), (0, 1), (0, 2)}
    assert diagonal_links(3, 1) == {(0, 0)}
    assert diagonal_links(0, 3) == diagonal_links(3, 0) == set()


def test_symmetrised_by_the_published_steps():
    forward = {(0, 0), (1, 1), (2, 1), (3, 4)}
    backward = {(0, 0), (1, 1), (1, 2), (5, 5)}
    # (2, 1) and (1, 2) touch (1, 1); (3, 4) and (5, 5) touch nothing and link words not yet linked.
    assert grow_diagonal(forward, backward) == forward | backward
    # (1, 0) lies beside (0, 0), but both of its words are linked.
    crossed = grow_diagonal({(0, 0), (1, 1), (1, 0)}, {(0, 0), (1, 1)})
    assert crossed == {(0, 0), (1, 1)}
    # Of (3, 3) and (3, 4), neither beside a link, the forward one comes first and takes word 3.
    final = grow_diagonal({(0, 0), (3, 4)}, {(0, 0), (3, 3)})
    assert final == {(0, 0), (3, 4)}


def plainly(forward: set, backward: set) -> set:
    """The published pseudo-code, line by line: sweeps over all cells until nothing is added."""
    union, links = forward | backward, forward & backward

    def is_linked(target: int | None = None, source: int | None = None) -> bool:
        return any(t == target or s == source for s, t in links)

    added = True
    while added:
        added = False
        for target in range(6):
            for source in range(6):
                if (source, target) not in links:
                    continue
                around = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
                for down, right in around:
                    t, s = target + down, source + right
                    if (s, t) in union and not (is_linked(target=t) and is_linked(source=s)):
                        links.add((s, t))
                        added = True
    for direction in (forward, backward):
        for t in range(6):
            for s in range(6):
                if (s, t) in direction and not is_linked(target=t) and not is_linked(source=s):
                    links.add((s, t))
    return links


@given(LINKS, LINKS)
def test_growing_is_the_published_pseudo_code(forward: set, backward: set):
    links = grow_diagonal(forward, backward)
    assert links == plainly(forward, backward)
    assert forward & backward <= links <= forward | backward


def test_links_that_count_from_one_are_noticed():
    gold = [{(1, 1), (2, 3)}, {(2, 2)}, {(1, 2)}, {(3, 3)}, {(1, 1)}]
    assert count_from_one(gold)
    assert count_from_one([set(), *gold])
    assert not count_from_one(gold[:4])
    assert not count_from_one([*gold, {(0, 4)}])
    assert not count_from_one([*gold, {(4, 0)}])
    assert not count_from_one([])
