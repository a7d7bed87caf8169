"""Dates: every source is read back here by other means than those that wrote it."""

from __future__ import annotations

import datetime
import re

import pytest

from regard.translation.text.generated import dates, generate
from regard.translation.text.generated.dates import CALENDARS

PAIRS = generate("dates", seed=11, count=6000)
# The beginnings of month names that tell them apart in all six languages at once.
BEGINNINGS = {
    1: "jan ene gen",
    2: "feb fév fev",
    3: "mar mär",
    4: "apr abr avr",
    5: "may mai mag",
    6: "jun juin giu",
    7: "jul juil lug",
    8: "aug ago août",
    9: "sep set",
    10: "oct okt ott out",
    11: "nov",
    12: "dec dez déc dic",
}
MONTHS = {word: number for number, words in BEGINNINGS.items() for word in words.split()}
LANGUAGES = """
    monday tuesday wednesday thursday friday saturday sunday
    lunes martes miércoles jueves viernes sábado domingo
    lundi mardi mercredi jeudi vendredi samedi dimanche
    montag dienstag mittwoch donnerstag freitag samstag sonntag
    lunedì martedì mercoledì giovedì venerdì sabato domenica
    segunda terça quarta quinta sexta sábado domingo
"""
WEEKDAYS = {word: place % 7 for place, word in enumerate(LANGUAGES.split())}


def read(output: str) -> datetime.date:
    """A date from its text alone, by the rules that the task states."""
    text = output.casefold()
    numbers = [int(digits) for digits in re.findall(r"\d+", text)]
    words = [word for word in re.findall(r"[^\W\d_]+", text) if word not in WEEKDAYS]
    months = {MONTHS[w[:size]] for w in words for size in (3, 4) if w[:size] in MONTHS}
    year = numbers[-1]
    if len(re.findall(r"\d+", text)[-1]) == 2:
        year += 1900 if year >= 69 else 2000
    if months:
        (month,) = months
        return datetime.date(year, month, numbers[0])
    first_number, second = numbers[:2]
    day, month = (second, first_number) if second > 12 else (first_number, second)
    return datetime.date(year, month, day)


def test_every_target_is_the_date_its_source_says():
    assert [pair for pair in PAIRS if read(pair.source).isoformat() != pair.target] == []


def test_the_reader_would_notice_a_wrong_date():
    assert read("el 3 de marzo de 1998").isoformat() == "1998-03-03"
    assert read("03/25/98").isoformat() == "1998-03-25"
    assert read("martedì, 4 MAR 68").isoformat() == "2068-03-04"
    assert read("4 March 1998").isoformat() != "1998-04-03"


def test_a_weekday_is_that_of_the_date():
    weekdays = set()
    for pair in PAIRS:
        named = [w for w in re.findall(r"[^\W\d_]+", pair.source.casefold()) if w in WEEKDAYS]
        for word in named:
            weekdays.add(word)
            assert datetime.date.fromisoformat(pair.target).weekday() == WEEKDAYS[word], pair
    assert weekdays == set(WEEKDAYS)


@pytest.mark.parametrize("calendar", CALENDARS, ids=lambda calendar: calendar.language)
def test_every_month_format_and_case_of_a_language_appears(calendar):
    sources = {pair.source for pair in PAIRS}
    for month in calendar.months:
        assert any(month in source for source in sources), month
        assert any(month.upper() in source for source in sources), month
    for template in calendar.formats:
        assert any(
            dates.render(calendar, template, datetime.date.fromisoformat(target)) == source
            for source, target, *_ in PAIRS
        ), template


def test_there_are_six_languages_with_full_calendars():
    assert [calendar.language for calendar in CALENDARS] == ["en", "es", "fr", "de", "it", "pt"]
    for calendar in CALENDARS:
        assert len(set(calendar.months)) == len(set(calendar.short_months)) == 12
        assert len(set(calendar.weekdays)) == 7


def test_no_writing_has_two_readings():
    """Whatever language wrote it: one text, one date. The years lie a century apart on purpose."""
    readings: dict[str, datetime.date] = {}
    for year in (1903, 1998, 2003, 2098):
        for days in range(365):
            date = datetime.date(year, 1, 1) + datetime.timedelta(days)
            for calendar in CALENDARS:
                for template in calendar.formats:
                    if dates.has_one_reading(template, date):
                        text = dates.render(calendar, template, date).casefold()
                        assert readings.setdefault(text, date) == date, text
    assert len(readings) > 50_000


@pytest.mark.parametrize(
    ("template", "date", "allowed"),
    [
        ("{day} {short} {year2}", "1968-12-31", False),
        ("{day} {short} {year2}", "1969-01-01", True),
        ("{day} {short} {year2}", "2068-12-31", True),
        ("{day} {short} {year2}", "2069-01-01", False),
        ("{day} {short} {year}", "2069-01-01", True),
        ("{number}/{day}/{year}", "1998-03-04", False),
        ("{number}/{day}/{year}", "1998-03-12", False),
        ("{number}/{day}/{year}", "1998-03-13", True),
        ("{number}/{day}/{year}", "1998-03-03", True),
        ("{day}/{number}/{year}", "1998-03-04", True),
    ],
)
def test_what_could_be_misread_is_not_written(template, date, allowed):
    assert dates.has_one_reading(template, datetime.date.fromisoformat(date)) is allowed


@pytest.mark.parametrize(
    ("language", "day", "ordinal"),
    [
        ("en", 1, "1st"),
        ("en", 2, "2nd"),
        ("en", 3, "3rd"),
        ("en", 11, "11th"),
        ("en", 12, "12th"),
        ("en", 13, "13th"),
        ("en", 21, "21st"),
        ("en", 30, "30th"),
        ("es", 1, "1.º"),
        ("es", 2, "2"),
        ("fr", 1, "1er"),
        ("de", 1, "1."),
        ("de", 31, "31."),
        ("it", 1, "1º"),
        ("pt", 1, "1º"),
    ],
)
def test_ordinals(language, day, ordinal):
    (calendar,) = [each for each in CALENDARS if each.language == language]
    assert calendar.ordinal(day) == ordinal
