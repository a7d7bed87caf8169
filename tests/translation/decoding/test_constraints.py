"""Constrained beam search against all translations that have what they must have."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.translation.decoding.toy import Tied, Toy, every_translation, some_sources

from regard.errors import ConfigurationError
from regard.translation.decoding.constraints import PLACEMENTS, Constraint, Constraints, Progress
from regard.translation.decoding.search import translate_batch
from regard.translation.engines import SearchEngine
from regard.translation.settings.search import Search
from regard.translation.text.tokenizer import EOS
from regard.translation.translator import Translator

TOKENS = st.lists(st.integers(4, 5), min_size=1, max_size=3)
# Terms that begin, end, contain and repeat one another, and tokens that go on with their last words.
TERMS = st.lists(st.lists(st.integers(4, 6), min_size=1, max_size=4), min_size=1, max_size=4)
BARRED = st.frozensets(st.integers(4, 6), max_size=1)
SENTENCES = st.lists(st.lists(TOKENS, max_size=3), min_size=3, max_size=3)


def constrained(model, source, lengths, sentences, compiled=True, **settings):
    search = Search(**{"length_ratio": 0.0, "length_margin": 4, **settings})
    engine = SearchEngine(model, loops=compiled)
    constraints = None if sentences is None else Constraints.of(sentences)
    return translate_batch(
        model, source, lengths, search, engine=engine, constraints=constraints, ended=True
    )


def placed(tokens, constraints):
    """Whether the constraints are in some tokens, at different places."""
    if not constraints:
        return True
    sequence, *others = constraints
    size = len(sequence)
    return any(
        tokens[i : i + size] == sequence
        and placed([*tokens[:i], None, *tokens[i + size :]], others)
        for i in range(len(tokens) - size + 1)
    )


@given(
    SENTENCES,
    st.integers(0, 1000),
    st.integers(2, 5),
    st.booleans(),
    st.floats(-3, 3),
    st.integers(0, 3),
)
def test_every_translation_has_its_constraints(sentences, seed, beam, compiled, ends, repeats):
    """Also with a beam of fewer places than banks, and where no sequence may occur twice."""
    model, (source, lengths) = Toy(seed=seed, ends=ends), some_sources(3, seed)
    settings = {"beam": beam, "no_repeat_ngram": repeats, "compiled": compiled}
    hypotheses = constrained(model, source, lengths, sentences, **settings)
    for group, constraints in zip(hypotheses, sentences, strict=True):
        assert group
        assert all(placed(one.tokens, constraints) for one in group)


@given(st.integers(0, 1000), st.booleans(), st.lists(TOKENS, min_size=1, max_size=2))
def test_a_beam_that_holds_everything_finds_the_best_of_all_that_have_them(
    seed, compiled, required
):
    model, (source, lengths) = Toy(vocabulary=6, seed=seed), some_sources(1, seed)
    longest = max(4, sum(map(len, required)))
    (hypotheses,) = constrained(
        model, source, lengths, [required], beam=1000, length_margin=longest, compiled=compiled
    )
    possible = [
        one
        for one in every_translation(model, source, lengths, longest)
        if placed(one.tokens, required)
    ]
    assert hypotheses[0].score == pytest.approx(possible[0].score, abs=1e-5)


def fewest_needed(tokens, terms, barred, used=frozenset()):
    """How many tokens of terms must follow, by trying all places that are not used for every term."""
    if not terms:
        return 0
    term, *others = terms
    least = len(term) + fewest_needed(tokens, others, barred, used)  # it has no place
    for start in range(len(tokens)):
        written, following = term[: len(tokens) - start], tokens[start + len(term) :][:1]
        places = set(range(start, start + len(written)))
        if tokens[start : start + len(written)] == written and not (
            places & used or barred.intersection(following)
        ):
            rest = len(term) - len(written)
            least = min(least, rest + fewest_needed(tokens, others, barred, used | places))
    return least


@settings(max_examples=300)
@given(TERMS, BARRED, st.lists(st.integers(4, 7), max_size=9))
def test_terms_count_wherever_they_stand(terms, barred, tokens):
    """Also where a term begins, ends or is inside of another one that is not completed."""
    progress = Progress.of(Constraint(tuple(term), barred) for term in terms)
    assert progress.after(tokens).needed == fewest_needed(tokens, terms, barred)


@given(TERMS, BARRED, st.lists(st.integers(4, 7), max_size=9))
def test_tokens_that_continue_terms_leave_fewer(terms, barred, tokens):
    progress = Progress.of(Constraint(tuple(term), barred) for term in terms).after(tokens)
    fewer = {token for token in range(4, 8) if progress.followed_by(token).needed < progress.needed}
    assert progress.continued == fewer
    if not barred:
        assert bool(fewer) == bool(progress.needed)


def test_many_terms_that_overlap_keep_few_placements():
    terms = [term for at in range(0, 18, 3) for term in ((at, at + 1), (at + 1, at + 2))]
    progress = Progress.of(map(Constraint, terms)).after(range(18))
    assert len(progress.placements) <= PLACEMENTS + 1
    assert progress.needed == 12


@given(st.integers(0, 1000), st.integers(2, 5), st.booleans())
def test_sentences_without_constraints_are_as_in_the_plain_search(seed, beam, compiled):
    model, (source, lengths) = Toy(seed=seed), some_sources(3, seed)
    settings = {"beam": beam, "compiled": compiled, "nbest": 2}
    plain = constrained(model, source, lengths, None, **settings)
    mixed = constrained(model, source, lengths, [[], [[4, 5, 4]], []], **settings)
    none = constrained(model, source, lengths, [[], [], []], **settings)
    assert none == plain
    assert [mixed[0], mixed[2]] == [plain[0], plain[2]]


def test_constraints_longer_than_a_translation_make_room():
    model, (source, lengths) = Tied(), some_sources(1)
    (group,) = constrained(model, source, lengths, [[[4, 5, 6, 7, 4, 5]]], beam=2, length_margin=1)
    assert [one.tokens for one in group] == [[4, 5, 6, 7, 4, 5]]


def test_a_word_of_a_constraint_is_not_gone_on_with():
    tokenizer = Translator.open("es-en-tiny").tokenizers.target
    constraints = Constraints.words([["the cat", "C++"]], [99], tokenizer, torch.device("cpu"))
    ((placement,), inside) = constraints.sentences[0].placements, constraints.inside
    cat, plus = placement.missing
    assert (bool(cat.barred), bool(plus.barred)) == (True, False)
    log_p = torch.zeros(1, 3, len(tokenizer))
    tokens = torch.tensor([[[9] * len(cat.tokens), list(cat.tokens), [*cat.tokens[:-1], 9]]])
    constraints.restrict(log_p, tokens)
    assert (log_p[0, :, EOS] == -torch.inf).all()
    assert (log_p[0, 1, inside] == -torch.inf).all()
    assert (log_p[0, ::2, inside] == 0).all()


@pytest.mark.parametrize("settings", [{"beam": 1}, {"sampling": True}])
def test_other_searches_are_refused(settings):
    with pytest.raises(ConfigurationError, match="constraints are for beam search"):
        constrained(Toy(), *some_sources(1), [[[4]]], **settings)


def test_prefixes_are_refused():
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        translate_batch(Toy(), *some_sources(1), prefix=[[4]], constraints=Constraints.of([[[4]]]))
