"""Messages of programs, gettext's .po: messages without a translation get one, all else is kept.

polib reads the file. It wraps and orders lines anew when it writes, so translations are put into the text of the file
instead.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from regard.errors import DataError, library
from regard.translation.formats.document import Document, refuse
from regard.translation.text.replacements import Replacement

# polib ends a line at these too; gettext does not.
_SEPARATORS = dict.fromkeys(map(ord, "\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_STRING = re.compile(r'(?:msg\w+(?:\[\d\])?\s*)?"(?:[^"\\]|\\.)*"')
_PLACEHOLDER = re.compile(
    r"%(?:\(\w+\)|\d+\$)?[-+#0]*\d*(?:\.\d+)?[a-zA-Z%]|\{[^{}\s]*\}|</?[a-zA-Z][^<>]*>"
)
# polib takes the square of the number of lines of a text, and of comments; it reads none of the latter.
_LONGEST = 2000
_COUNT = re.compile(r"nplurals\s*=\s*(\d)")


@dataclass(frozen=True)
class Message:
    """A message without a translation.

    Attributes:
        start, stop: where its msgstr lines are.
        flag: the change that marks it as fuzzy; gettext does not show fuzzy translations.
        sources: its msgid, and its msgid_plural if it has one.
        forms: for each msgstr, which of the sources it translates.
        newline: the line end of the file.
    """

    start: int
    stop: int
    flag: Replacement | None
    sources: tuple[str, ...]
    forms: tuple[int, ...]
    newline: str

    @property
    def texts(self) -> Sequence[str]:
        """The lines of the sources that have letters."""
        lines = (line for source in self.sources for line in source.split("\n"))
        return [line.strip() for line in lines if _has_letters(line)]

    def replacements(self, translations: Sequence[str]) -> Iterator[Replacement]:
        supply = iter(translations)
        targets = ["\n".join(_in_place(source, supply)) for source in self.sources]
        pairs = zip(self.sources, targets, strict=True)
        differ = any(_placeholders(source) != _placeholders(target) for source, target in pairs)
        # More than two forms would all have the translation of the plural.
        if self.flag is not None and (differ or len(self.forms) > 2):
            yield self.flag
        lines: list[str] = []
        for number, form in enumerate(self.forms):
            keyword = f"msgstr[{number}]" if len(self.sources) > 1 else "msgstr"
            lines += _strings(keyword, targets[form])
        yield Replacement(self.start, self.stop, self.newline.join(lines))


def read(text: str, name: str) -> Document:
    """The messages of a file that have no translation, neither a fuzzy one.

    Raises:
        DataError: a line or a message is broken, or the header says another number of plural forms.
        ConfigurationError: polib is not installed.
    """
    polib = library("polib")
    plain = text.translate(_SEPARATORS)
    plain = " " + plain[1:] if plain.startswith("\ufeff") else plain
    lines = plain.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    bare = [line.strip() for line in lines]
    length = 0
    for start, line in zip(starts, bare, strict=False):
        if line and line[0] != "#" and not _STRING.fullmatch(line):
            raise refuse(name, text, start, 'expected a keyword and a text in quotes: msgid "text"')
        length = length + 1 if line[:1] == '"' else 0
        if length > _LONGEST:
            raise refuse(name, text, start, f"a text of more than {_LONGEST} lines")
    read_lines = ["\n" if line[:1] == "#" and line[:2] != "#," else line + "\n" for line in bare]
    try:
        # No file has a name with the character 0: polib would read the file of this name.
        file = polib.pofile("# \0\n" + "".join(read_lines))
    except OSError as fault:
        number = re.search(r"line (\d+)", str(fault))
        place = starts[int(number[1]) - 2] if number else 0
        raise refuse(name, text, place, "no part of a message at this place") from None
    count = _COUNT.search(file.metadata.get("Plural-Forms", ""))
    messages: list[Message] = []
    for entry in file:
        begin = max(entry.linenum - 2, 0)
        if not entry.msgid:
            continue
        at = next((at for at in range(begin, len(bare)) if bare[at].startswith("msgstr")), None)
        if at is None:
            raise refuse(name, text, starts[begin], "a message without msgstr")
        expected = (int(count[1]) if count else len(entry.msgstr_plural)) or 1
        forms = range(expected if entry.msgid_plural else 0)
        if sorted(entry.msgstr_plural) != list(forms):
            raise DataError(
                f"{name}:{at + 1}: {len(entry.msgstr_plural)} plural forms, expected {len(forms)}: "
                "see Plural-Forms in the header"
            )
        if not entry.msgstr and not any(entry.msgstr_plural.values()):
            messages.append(_message(entry, begin, at, lines, starts))
    return Document(text, messages)


def _message(
    entry: object, begin: int, at: int, lines: Sequence[str], starts: Sequence[int]
) -> Message:
    """A message of polib whose lines begin at `begin`, and those of its translation at `at`."""
    msgid, plural = entry.msgid, entry.msgid_plural  # type: ignore[attr-defined]
    flags, count = entry.flags, len(entry.msgstr_plural)  # type: ignore[attr-defined]
    end = at + 1
    while end < len(lines) and lines[end].lstrip().startswith(('"', "msgstr[")):
        end += 1
    last_line = lines[end - 1]
    newline = "\r\n" if lines[at].endswith("\r\n") else "\n"
    flag = None
    if "fuzzy" not in flags:
        for number in range(begin, at):
            line = lines[number].lstrip()
            if line.startswith("#,") and flags:
                place = starts[number] + lines[number].index("#,") + 2
                flag = Replacement(place, place, " fuzzy,")
                break
            if line.startswith("msg"):
                flag = Replacement(starts[number], starts[number], f"#, fuzzy{newline}")
                break
    return Message(
        start=starts[at] + len(lines[at]) - len(lines[at].lstrip()),
        stop=starts[end - 1] + len(last_line.rstrip()),
        flag=flag,
        sources=(msgid, plural) if plural else (msgid,),
        forms=tuple(min(form, 1) if count > 1 else 1 for form in range(count)) if plural else (0,),
        newline=newline,
    )


def _in_place(source: str, supply: Iterator[str]) -> Iterator[str]:
    """The lines of a source, with translations for those that have letters; white space around them stays."""
    for line in source.split("\n"):
        if _has_letters(line):
            text = line.strip()
            head, _, tail = line.partition(text)
            line = head + next(supply) + tail
        yield line


def _strings(keyword: str, text: str) -> list[str]:
    """A keyword with its text, a line for each line of several."""
    escape = library("polib").escape
    lines = re.findall(r".*\n|.+\Z", text)
    if len(lines) < 2:
        return [f'{keyword} "{escape(text)}"']
    return [f'{keyword} ""', *(f'"{escape(line)}"' for line in lines)]


def _has_letters(line: str) -> bool:
    return any(map(str.isalpha, line))


def _placeholders(text: str) -> Counter[str]:
    return Counter(_PLACEHOLDER.findall(text))
