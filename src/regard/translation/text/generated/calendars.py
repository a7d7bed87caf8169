"""Dates in six languages: the names of months and days, ordinals and formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Calendar:
    """One language's names and ways of writing a date.

    Args:
        language: ISO 639-1 code.
        months: the twelve months, January first.
        short_months: their abbreviations.
        weekdays: the seven days, Monday first.
        ordinal: the day of the month as the language writes it before a month's name.
        formats: templates over {weekday} {day} {day2} {ordinal} {month} {short} {number} {number2}
            {year} {year2}; `day2`, `number2` and `year2` have two digits.
    """

    language: str
    months: tuple[str, ...]
    short_months: tuple[str, ...]
    weekdays: tuple[str, ...]
    ordinal: Callable[[int], str]
    formats: tuple[str, ...]


def _english(day: int) -> str:
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def _first(word: str) -> Callable[[int], str]:
    """The Romance habit: the first of a month is an ordinal, the other days are plain numbers."""
    return lambda day: word if day == 1 else str(day)


def _german(day: int) -> str:
    return f"{day}."


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CALENDARS = (
    Calendar(
        language="en",
        months=_words(
            "January February March April May June July August September October November December"
        ),
        short_months=_words("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"),
        weekdays=_words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
        ordinal=_english,
        formats=(
            "{month} {day}, {year}",
            "{month} {ordinal}, {year}",
            "{day} {month} {year}",
            "the {ordinal} of {month} {year}",
            "{weekday}, {month} {day}, {year}",
            "{weekday} {day} {month} {year}",
            "{weekday} the {ordinal} of {month}, {year}",
            "{short} {day}, {year}",
            "{day} {short} {year2}",
            "{number}/{day}/{year}",
            "{number2}/{day2}/{year2}",
        ),
    ),
    Calendar(
        language="es",
        months=_words(
            "enero febrero marzo abril mayo junio"
            " julio agosto septiembre octubre noviembre diciembre"
        ),
        short_months=_words("ene feb mar abr may jun jul ago sept oct nov dic"),
        weekdays=_words("lunes martes miércoles jueves viernes sábado domingo"),
        ordinal=_first("1.º"),
        formats=(
            "{ordinal} de {month} de {year}",
            "el {day} de {month} de {year}",
            "{day} de {month} del {year}",
            "{weekday} {day} de {month} de {year}",
            "{weekday}, {ordinal} de {month} de {year}",
            "{day} {short} {year}",
            "{day} {short} {year2}",
            "{day}/{number}/{year}",
            "{day2}/{number2}/{year2}",
            "{day2}-{number2}-{year}",
        ),
    ),
    Calendar(
        language="fr",
        months=_words(
            "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
        ),
        short_months=_words("janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc."),
        weekdays=_words("lundi mardi mercredi jeudi vendredi samedi dimanche"),
        ordinal=_first("1er"),
        formats=(
            "{ordinal} {month} {year}",
            "le {ordinal} {month} {year}",
            "{weekday} {ordinal} {month} {year}",
            "le {weekday} {ordinal} {month} {year}",
            "{day} {short} {year}",
            "{day} {short} {year2}",
            "{day2}/{number2}/{year}",
            "{day2}/{number2}/{year2}",
            "{day2}.{number2}.{year2}",
        ),
    ),
    Calendar(
        language="de",
        months=_words(
            "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
        ),
        short_months=_words("Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez."),
        weekdays=_words("Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag"),
        ordinal=_german,
        formats=(
            "{ordinal} {month} {year}",
            "der {ordinal} {month} {year}",
            "am {ordinal} {month} {year}",
            "{weekday}, {ordinal} {month} {year}",
            "{weekday}, den {ordinal} {month} {year}",
            "{ordinal} {short} {year}",
            "{day2}.{number2}.{year}",
            "{day}.{number}.{year}",
            "{day}.{number}.{year2}",
        ),
    ),
    Calendar(
        language="it",
        months=_words(
            "gennaio febbraio marzo aprile maggio giugno"
            " luglio agosto settembre ottobre novembre dicembre"
        ),
        short_months=_words("gen feb mar apr mag giu lug ago set ott nov dic"),
        weekdays=_words("lunedì martedì mercoledì giovedì venerdì sabato domenica"),
        ordinal=_first("1º"),
        formats=(
            "{ordinal} {month} {year}",
            "{weekday} {ordinal} {month} {year}",
            "{weekday}, {day} {month} {year}",
            "{day} {short} {year}",
            "{day} {short} {year2}",
            "{day}/{number}/{year}",
            "{day2}/{number2}/{year2}",
            "{day}-{number}-{year}",
        ),
    ),
    Calendar(
        language="pt",
        months=_words(
            "janeiro fevereiro março abril maio junho"
            " julho agosto setembro outubro novembro dezembro"
        ),
        short_months=_words("jan fev mar abr mai jun jul ago set out nov dez"),
        weekdays=_words(
            "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo"
        ),
        ordinal=_first("1º"),
        formats=(
            "{ordinal} de {month} de {year}",
            "em {day} de {month} de {year}",
            "{weekday}, {ordinal} de {month} de {year}",
            "{day} {short} {year}",
            "{day} de {short} de {year2}",
            "{day2}/{number2}/{year}",
            "{day2}-{number2}-{year2}",
            "{day2}.{number2}.{year}",
        ),
    ),
)
