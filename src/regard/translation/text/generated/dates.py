"""Dates as people write them in six languages, and the same dates as ISO 8601 writes them.

Every source has one reading. Two rules make it so:

- **Two-digit years** are POSIX's: 69 to 99 are 1969 to 1999, and 00 to 68 are 2000 to 2068. A date
  outside these hundred years is never written with two digits.
- **Numbers alone** put the day first, except that English puts the month first; English is written
  so only where nobody could misread it: a day above 12, or a day equal to its month.
"""

import datetime
import random
from collections.abc import Callable
from typing import NamedTuple

from regard.translation.text.corpora import Pair

FIRST = datetime.date(1900, 1, 1)
LAST = datetime.date(2099, 12, 31)
# As the language writes it, mostly; then as hurried people do.
_CASES = (str, str, str, str, str.lower, str.upper)


class Calendar(NamedTuple):
    """One language's names and ways of writing a date.

    Args:
        language: ISO 639-1 code.
        months: the twelve months, January first.
        weekdays: the seven days, Monday first.
        ordinal: the day of the month as the language writes it before a month's name.
        formats: templates over {weekday} {day} {day2} {ordinal} {month} {short} {number} {number2}
            {year} {year2}; `day2`, `number2` and `year2` have two digits.
    """

    language: str
    months: list[str]
    short_months: list[str]
    weekdays: list[str]
    ordinal: Callable[[int], str]
    formats: list[str]


def _english(day: int) -> str:
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def _ordinal_first(word: str) -> Callable[[int], str]:
    """The Romance habit: the first of a month is an ordinal, the other days are plain numbers."""
    return lambda day: word if day == 1 else str(day)


CALENDARS = (
    Calendar(
        "en",
        "January February March April May June July August September October November December".split(),
        "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(),
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
        _english,
        (
            "{month} {day}, {year} | {month} {ordinal}, {year} | {day} {month} {year} | "
            "the {ordinal} of {month} {year} | {weekday}, {month} {day}, {year} | "
            "{weekday} {day} {month} {year} | {weekday} the {ordinal} of {month}, {year} | "
            "{short} {day}, {year} | {day} {short} {year2} | {number}/{day}/{year} | "
            "{number2}/{day2}/{year2}"
        ).split(" | "),
    ),
    Calendar(
        "es",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split(),
        "ene feb mar abr may jun jul ago sept oct nov dic".split(),
        "lunes martes miércoles jueves viernes sábado domingo".split(),
        _ordinal_first("1.º"),
        (
            "{ordinal} de {month} de {year} | el {day} de {month} de {year} | "
            "{day} de {month} del {year} | {weekday} {day} de {month} de {year} | "
            "{weekday}, {ordinal} de {month} de {year} | {day} {short} {year} | "
            "{day} {short} {year2} | {day}/{number}/{year} | {day2}/{number2}/{year2} | "
            "{day2}-{number2}-{year}"
        ).split(" | "),
    ),
    Calendar(
        "fr",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split(),
        "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.".split(),
        "lundi mardi mercredi jeudi vendredi samedi dimanche".split(),
        _ordinal_first("1er"),
        (
            "{ordinal} {month} {year} | le {ordinal} {month} {year} | "
            "{weekday} {ordinal} {month} {year} | le {weekday} {ordinal} {month} {year} | "
            "{day} {short} {year} | {day} {short} {year2} | {day2}/{number2}/{year} | "
            "{day2}/{number2}/{year2} | {day2}.{number2}.{year2}"
        ).split(" | "),
    ),
    Calendar(
        "de",
        "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split(),
        "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.".split(),
        "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split(),
        "{}.".format,
        (
            "{ordinal} {month} {year} | der {ordinal} {month} {year} | "
            "am {ordinal} {month} {year} | {weekday}, {ordinal} {month} {year} | "
            "{weekday}, den {ordinal} {month} {year} | {ordinal} {short} {year} | "
            "{day2}.{number2}.{year} | {day}.{number}.{year} | {day}.{number}.{year2}"
        ).split(" | "),
    ),
    Calendar(
        "it",
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre".split(),
        "gen feb mar apr mag giu lug ago set ott nov dic".split(),
        "lunedì martedì mercoledì giovedì venerdì sabato domenica".split(),
        _ordinal_first("1º"),
        (
            "{ordinal} {month} {year} | {weekday} {ordinal} {month} {year} | "
            "{weekday}, {day} {month} {year} | {day} {short} {year} | {day} {short} {year2} | "
            "{day}/{number}/{year} | {day2}/{number2}/{year2} | {day}-{number}-{year}"
        ).split(" | "),
    ),
    Calendar(
        "pt",
        "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro".split(),
        "jan fev mar abr mai jun jul ago set out nov dez".split(),
        "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo".split(),
        _ordinal_first("1º"),
        (
            "{ordinal} de {month} de {year} | em {day} de {month} de {year} | "
            "{weekday}, {ordinal} de {month} de {year} | {day} {short} {year} | "
            "{day} de {short} de {year2} | {day2}/{number2}/{year} | {day2}-{number2}-{year2} | "
            "{day2}.{number2}.{year}"
        ).split(" | "),
    ),
)


def draw(dice: random.Random) -> Pair:
    """One date, written in a language and a format of that language, and its ISO form.

    Example:
        >>> datetime.date.fromisoformat(draw(random.Random(4)).target) >= FIRST
        True
    """
    calendar = dice.choice(CALENDARS)
    date = datetime.date.fromordinal(dice.randint(FIRST.toordinal(), LAST.toordinal()))
    template = dice.choice([each for each in calendar.formats if has_one_reading(each, date)])
    spelling = dice.choice(_CASES)(render(calendar, template, date))
    return Pair(source=spelling, target=date.isoformat())


def render(calendar: Calendar, template: str, date: datetime.date) -> str:
    """The date as this calendar's template writes it.

    Example:
        >>> render(CALENDARS[1], "{day} de {month} de {year}", datetime.date(1998, 3, 3))
        '3 de marzo de 1998'
    """
    return template.format(
        weekday=calendar.weekdays[date.weekday()],
        day=date.day,
        day2=f"{date.day:02}",
        ordinal=calendar.ordinal(date.day),
        month=calendar.months[date.month - 1],
        short=calendar.short_months[date.month - 1],
        number=date.month,
        number2=f"{date.month:02}",
        year=date.year,
        year2=f"{date.year % 100:02}",
    )


def has_one_reading(template: str, date: datetime.date) -> bool:
    """Whether the template's writing of this date can be read back (the two rules above)."""
    if "{year2}" in template and not 1969 <= date.year <= 2068:
        return False
    month_first = template.startswith("{number")
    return not month_first or date.day > 12 or date.day == date.month
