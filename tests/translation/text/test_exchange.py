"""Names and numbers that are exchanged: the same on both sides, all else as it was."""

from __future__ import annotations

import re
from random import Random

from regard.translation.text.corpora import Pair
from regard.translation.text.exchange import Exchange, Inventor, Writing

PAIRS = [
    Pair("Tom vive en Boston.", "Tom lives in Boston."),
    Pair("El hotel es de Mary.", "The hotel is Mary's."),
    Pair("Hotel Paradiso.", "Hotel Paradiso."),
    Pair("Vi el hotel.", "I saw the hotel."),
    Pair("Son 20 euros y 20 más.", "It is 20 euros and 20 more."),
    Pair("Son las 2:30.", "It is half past two."),
    *[Pair("Cuesta 2.000 yenes.", "It costs 2,000 yen.")] * 5,
]


def test_names_are_words_with_a_capital_on_both_sides_that_are_never_small():
    exchange = Exchange(PAIRS)
    assert [names for _, names in exchange.named] == [["Tom", "Boston"], ["Mary"], ["Paradiso"]]
    assert [numbers for _, numbers in exchange.numbered] == [["20"]]


def test_a_name_is_exchanged_on_both_sides():
    exchange, random = Exchange(PAIRS), Random(3)
    patterns = [
        ("(.+) vive en (.+)[.]", "(.+) lives in (.+)[.]"),
        ("El hotel es de (.+)[.]", "The hotel is (.+)'s[.]"),
        ("Hotel (.+)[.]", "Hotel (.+)[.]"),
    ]
    names = set()
    for _ in range(60):
        pair = exchange.with_name(random)
        exchanged = [
            (source.groups(), target.groups())
            for a, b in patterns
            if (source := re.fullmatch(a, pair.source)) and (target := re.fullmatch(b, pair.target))
        ]
        assert len(exchanged) == 1, pair
        assert exchanged[0][0] == exchanged[0][1]
        names.update(exchanged[0][0])
    assert len(names) > 10


def test_a_number_takes_the_place_of_a_number_each_time_or_of_a_name():
    exchange, random = Exchange(PAIRS), Random(3)
    numbers = []
    for _ in range(200):
        source, target = exchange.with_number(random)[:2]
        digits = [re.sub(r"\D", "", text) for text in (source, target)]
        assert digits[0] == digits[1] != ""
        numbers.append(target)
    old = [re.fullmatch("It is (.+) euros and (.+) more.", text) for text in numbers]
    assert all(found[1] == found[2] for found in old if found)
    assert 60 < sum(map(bool, old)) < 140
    assert any("lives" in text for text in numbers)


def test_numbers_come_in_many_forms():
    writing, random = Writing(PAIRS), Random(5)
    numbers = [writing.number(random) for _ in range(500)]
    for form in (r"\d+", r"\d\d?:\d\d", r"\d+/\d+/\d+", r"\d{4}-\d\d-\d\d", r"\+?\d+( \d+)+"):
        assert any(re.fullmatch(form, source) and source == target for source, target in numbers)
    for source, target in numbers:
        assert source == target or source.translate(str.maketrans(",.", ".,")) == target
    assert any(source != target for source, target in numbers)


def test_dates_are_written_in_both_languages():
    writing, random = Writing(PAIRS, ("es", "en")), Random(5)
    items = [writing.number(random) for _ in range(800)]
    full = re.compile(r"(?:el )?(.+) de mayo del? (\d{4})")
    read = [(full.fullmatch(source), target) for source, target in items]
    dates = [(each[1], each[2], target) for each, target in read if each]
    assert len(dates) > 2
    for day, year, target in dates:
        assert target == f"May {day.replace('1.º', '1')}, {year}"
    assert any(re.fullmatch(r"May \d+", target) for _, target in items)
    assert not any("May" in target for _, target in map(Writing(PAIRS).number, [random] * 400))


def test_half_of_the_numbers_keep_the_form_of_the_old_one():
    writing, random = Writing(PAIRS), Random(5)
    kept_total = sum(
        bool(re.fullmatch(r"[1-9]\d:\d{3}/\d", writing.number(random, "12:345/6")[0]))
        for _ in range(400)
    )
    assert 150 < kept_total < 250


def test_invented_names_have_the_letter_sequences_of_the_given_ones():
    inventor, random = Inventor(["Maria", "Marta", "Tara"]), Random(2)
    names = {inventor.name(random) for _ in range(200)}
    known_texts = {
        f"  {name.lower()} "[at : at + 3] for name in ("Maria", "Marta", "Tara") for at in range(6)
    }
    for name in names:
        letters = f"  {name.lower()} "
        assert {letters[at : at + 3] for at in range(len(letters) - 2)} <= known_texts
        assert name.istitle()
        assert 2 <= len(name) <= 5
    assert len(names) > 4
    assert len(Inventor(["Constantinopolitan"]).name(random)) <= 18


def test_names_whose_small_letters_are_longer_are_invented_too():
    assert Inventor(["İzmir"]).name(Random(1)) == "İzmir".lower().title()
