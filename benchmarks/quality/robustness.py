"""How a model translates text that is written otherwise than its corpus: case, accents, typing errors, names, numbers.

python benchmarks/quality/robustness.py MODEL [--sentences 500] [--as-written] [--out FILE]

Lines are drawn from the validation file of the model's configuration (in the folder REGARD_DATA names). The source is
changed, and the reference is not, with two exceptions: that of UPPER CASE is in capitals, too, and lines of several
sentences have as many references. Names and numbers stand in sentences of ours, Spanish or English; a translation is
right when it has the name, or the number as its language writes it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write

from regard.translation.evaluation.scores import measure
from regard.translation.text.corpora import Pair
from regard.translation.text.generated.dates import CALENDARS
from regard.translation.text.letters import without_accents
from regard.translation.training.data import read_split
from regard.translation.training.noise import mistyped, without_marks
from regard.translation.translator import Translator

SEED = 17
NAMES = (
    "Miguel Lucía Carlos Sofía Javier Marta Pablo Elena Diego Carmen Álvaro Inés Sergio Paula Andrés Raquel Hugo "
    "Nuria Óscar Beatriz Emily James Olivia Daniel Sarah Kevin Laura Peter Susan Brian Karen Jack Emma Oliver Grace "
    "Henry Alice Steven Rachel Simon Giulia Marco Chloé Pierre Hans Ingrid Yuki Ahmed Fatima Olga"
).split()
NAMED = {
    "es": ("{} vive aquí.", "¿Dónde está {}?", "Ayer vi a {} en la calle.", "El coche es de {}.", "{} no come."),
    "en": ("{} lives here.", "Where is {}?", "I saw {} in the street.", "This is {}'s car.", "{} doesn't eat."),
}  # fmt: skip
MONTHS = {calendar.language: calendar.months for calendar in CALENDARS}
DATE = {"es": "{day} de {month} de {year}", "en": "{month} {day}, {year}"}
# The marks of decimals and of thousands.
MARKS = {"es": (",", "."), "en": (".", ","), "fr": (",", " ")}
NUMBERED = {
    "es": {
        "telephone": ("Mi número de teléfono es {}.", "Llámame al {}.", "Su número es el {}."),
        "decimal": ("El paquete pesa {} kilos.", "La distancia es de {} metros.", "El resultado es {}."),
        "full date": ("Nació el {}.", "La carta es del {}.", "Nos casamos el {}."),
        "short date": ("La reunión es el {}.", "La fecha es {}.", "Llegaron el {}."),
        "time": ("El tren sale a las {}.", "Son las {}.", "Nos vemos a las {}."),
        "year": ("La guerra terminó en {}.", "Nací en {}.", "La casa es de {}."),
        "thousands": ("La ciudad tiene {} habitantes.", "El coche cuesta {} euros.", "Había {} personas."),
        "percent": ("El {}% de los niños lee.", "El precio subió un {}%.", "Estoy seguro al {}%."),
        "count": ("Tengo {} libros.", "Vivo en el número {}.", "Hay {} sillas en la sala."),
        "code": ("La versión es la {}.", "El vuelo es el {}.", "La dirección es {}."),
    },
    "en": {
        "telephone": ("My telephone number is {}.", "Call me at {}.", "Her number is {}."),
        "decimal": ("The parcel weighs {} pounds.", "The distance is {} meters.", "The result is {}."),
        "full date": ("He was born on {}.", "The letter is from {}.", "We got married on {}."),
        "short date": ("The meeting is on {}.", "The date is {}.", "They arrived on {}."),
        "time": ("The train leaves at {}.", "It is {}.", "See you at {}."),
        "year": ("The war ended in {}.", "I was born in {}.", "The house is from {}."),
        "thousands": ("The city has {} inhabitants.", "The car costs {} dollars.", "There were {} people."),
        "percent": ("{}% of the children read.", "The price rose by {}%.", "I am {}% sure."),
        "count": ("I have {} books.", "I live at number {}.", "There are {} chairs in the room."),
        "code": ("The version is {}.", "The flight is {}.", "The address is {}."),
    },
}  # fmt: skip
EACH = 30
# Rows of this name are of --whole-lines; all others are translated sentence by sentence, as by default.
WHOLE = "as a whole"


class Number(NamedTuple):
    """A number as the source writes it, and all that its translation must have."""

    written: str
    wanted: tuple[str, ...]


def number(kind: str, source: str, target: str, random: Random) -> Number:
    """One number of a kind."""
    year = str(random.randint(1500, 2050))
    hour, minute = random.randint(1, 12), random.randrange(60)
    (mark, thousands), (target_mark, target_thousands) = MARKS[source], MARKS[target]
    if kind == "full date":
        day, month = str(random.randint(1, 28)), random.randrange(12)
        months = [MONTHS[language][month] for language in (source, target)]
        written = DATE[source].format(day=day, month=months[0], year=year)
        return Number(written, (day, months[1], year))
    if kind == "decimal":
        units, fraction = random.randint(0, 99), random.randint(1, 99)
        return Number(f"{units}{mark}{fraction}", (f"{units}{target_mark}{fraction}",))
    if kind == "thousands":
        units, fraction = random.randint(1, 999), random.randrange(1000)
        return Number(
            f"{units}{thousands}{fraction:03}", (f"{units}{target_thousands}{fraction:03}",)
        )
    same: dict[str, Callable[[], str]] = {
        "telephone": lambda: random.choice("{}-{}-{} {}.{}.{}".split()).format(*random.choices(range(100, 999), k=3)),
        "short date": lambda: f"{random.randint(1, 28)}/{random.randint(1, 12)}/{year}",
        "time": lambda: f"{hour}:{minute:02}",
        "year": lambda: year,
        "percent": lambda: str(random.randint(2, 99)),
        "count": lambda: str(random.randint(13, 9999)),
        "code": lambda: f"{random.randint(1, 20)}.{random.randrange(20)}.{random.randrange(20)}",
    }  # fmt: skip
    text = same[kind]()
    return Number(text, (text,))


def has(text: str, term: str) -> bool:
    """Whether a translation has a name or number: as a whole, and not as a part of another."""
    return re.search(rf"(?<![\w]){re.escape(term)}(?![\w]|[.,:/-]\d)", text) is not None


def counted(translator: Translator, frames: Sequence[tuple[str, Number]]) -> dict[str, Any]:
    """How many sentences keep their name or number, with the first that do not."""
    texts = [frame.format(each.written) for frame, each in frames]
    translations = [one.text for one in translator.translate(texts)]
    right = [
        all(has(text, wanted) for wanted in each.wanted)
        for text, (_, each) in zip(translations, frames, strict=True)
    ]
    wrong = [
        f"{text} -> {to}"
        for text, to, good in zip(texts, translations, right, strict=True)
        if not good
    ]
    return {"right": sum(right), "of": len(frames), "wrong": wrong[:5]}


def bleu(translator: Translator, pairs: Sequence[Pair], whole_lines: bool) -> float:
    translations = translator.translate([pair.source for pair in pairs], whole_lines=whole_lines)
    texts = [one.text for one in translations], [pair.target for pair in pairs]
    return round(measure(*texts, measures=["bleu"]).bleu or 0.0, 2)


def table(translator: Translator, pairs: Sequence[Pair], sentences: int) -> dict[str, Any]:
    """Every row by its name."""
    random = Random(SEED)
    lines = random.sample(pairs, min(sentences, len(pairs)))

    def with_sources(change: Callable[[str], str]) -> list[Pair]:
        return [pair._replace(source=change(pair.source)) for pair in lines]

    rows: dict[str, list[Pair]] = {
        "as they are": lines,
        "UPPER CASE": [Pair(pair.source.upper(), pair.target.upper()) for pair in lines],
        "lower case": with_sources(str.lower),
        "no accents": with_sources(without_accents),
        "one typing error": with_sources(lambda text: mistyped(text, random)),
        "no final mark": with_sources(without_marks),
    }
    for count in (2, 3, 4, 8):
        groups = [lines[at : at + count] for at in range(0, len(lines) - count + 1, count)]
        rows[f"{count} sentences on a line"] = rows[f"{count} sentences {WHOLE}"] = [
            Pair(" ".join(p.source for p in group), " ".join(p.target for p in group))
            for group in groups
        ]
    for name, shortest, longest in (("13 to 16 words", 13, 16), ("17 words and more", 17, 10**6)):
        rows[name] = [pair for pair in pairs if shortest <= len(pair.source.split()) <= longest]
    results: dict[str, Any] = {}
    for name, row in rows.items():
        if row:
            score = bleu(translator, row, name.endswith(WHOLE))
            results[name] = {"bleu": score, "lines": len(row)}
            print(f"{name:24} {results[name]['bleu']:6.2f} BLEU of {len(row)} lines", flush=True)
    return results


def templates(translator: Translator) -> dict[str, Any]:
    """Names and numbers in sentences of ours; none for source languages without sentences."""
    data = translator.run.configuration.data
    source, target = data.source_language, data.target_language
    if source not in NAMED or target not in MARKS:
        return {}
    random = Random(SEED)
    frames = [NAMED[source][at % len(NAMED[source])] for at in range(len(NAMES))]
    named = [(frame, Number(name, (name,))) for frame, name in zip(frames, NAMES, strict=True)]
    results = {"names": counted(translator, named)}
    for kind, sentences in NUMBERED[source].items():
        numbers_of_kind = [number(kind, source, target, random) for _ in range(EACH)]
        frames = [sentences[at % len(sentences)] for at in range(EACH)]
        results[kind] = counted(translator, list(zip(frames, numbers_of_kind, strict=True)))
    for name, result in results.items():
        print(f"{name:24} {result['right']:6} of {result['of']}", *result["wrong"][:1], flush=True)
    numbers = [result for name, result in results.items() if name != "names"]
    print(f"{'numbers':24} {sum(f['right'] for f in numbers):6} of {sum(f['of'] for f in numbers)}")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--as-written", action="store_true", help="read no word otherwise")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    translator = Translator.open(options.model)
    if options.as_written:
        translator.search = translator.search.as_written()
    configuration = translator.run.configuration
    data = Path(os.environ["REGARD_DATA"])
    pairs = read_split(configuration.data, "valid", data, configuration.seed).pairs
    results = {"bleu": table(translator, pairs, options.sentences), "copied": templates(translator)}
    name = Path(options.model).name
    file = f"robustness-{name}{'-as-written' * options.as_written}.json"
    out = options.out or Path("benchmarks/results") / file
    write(out, {"model": name, "seed": SEED, "as_written": options.as_written, **results})


if __name__ == "__main__":
    main()
