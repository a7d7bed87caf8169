"""Dates as people write them in six languages, and the same dates as ISO 8601 writes them.

Every source has one reading. Two rules make it so:

- **Two-digit years** are POSIX's: 69 to 99 are 1969 to 1999, and 00 to 68 are 2000 to 2068. A date
  outside these hundred years is never written with two digits.
- **Numbers alone** put the day first, except that English puts the month first; English is written
  so only where nobody could misread it: a day above 12, or a day equal to its month.
"""

from __future__ import annotations

import datetime
import random

from regard.translation.text.corpora import Pair
from regard.translation.text.generated.calendars import CALENDARS, Calendar

FIRST = datetime.date(1900, 1, 1)
LAST = datetime.date(2099, 12, 31)
# As the language writes it, mostly; then as hurried people do.
_CASES = (str, str, str, str, str.lower, str.upper)


def draw(dice: random.Random) -> Pair:
    """One date, written in a language and a format of that language, and its ISO form.

    Example:
        >>> datetime.date.fromisoformat(draw(random.Random(4)).target) >= FIRST
        True
    """
    calendar = dice.choice(CALENDARS)
    date = datetime.date.fromordinal(dice.randint(FIRST.toordinal(), LAST.toordinal()))
    template = dice.choice([each for each in calendar.formats if has_one_reading(each, date)])
    written = dice.choice(_CASES)(render(calendar, template, date))
    return Pair(source=written, target=date.isoformat())


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
