"""How models translate text as people have it: markup, emoji, addresses, names, titles, text without full stops.

    REGARD_DATA=FOLDER python benchmarks/quality/found_text.py [MODEL] [--rows added,names] [--without spans]

Sentences are drawn from validation files (Tatoeba's, and for technical text those of Python's documentation); no test
file is read. `--without` switches a reading off, by its key of `[search]`, so that each has its ablation. Rows:

- clean: BLEU of the sentences as they are.
- technical: BLEU, and the share of code spans, roles and addresses of the sources that the translations have.
- added: a thing is added to each sentence. BLEU of the translations without it, how often it is there once, and how
  often at its place: at the end of the sentence where it was put, or a pair around a word.
- copied: addresses, code, telephone numbers, ranges and flight numbers in sentences of ours.
- names: 50 first names in 5 sentences of ours.
- case: Title Case (also of its references) and one word in capitals (BLEU with the words of the references in capitals
  that the attention links to it, BLEU that ignores capitals, and how often the translation has a word in capitals).
- unmarked: two and four sentences, in small letters, without full stops.
- invented: lines with a word that no text of the target language here and no source has, and those without a doubt.
- doubts: of bad lines (chrF below 25) the share that is marked, of marked lines the share below the median of all,
  and for each figure of a line the area under the curve (AUC) for bad lines.
- terms: of each sentence its longest word that is linked to one word of the reference, and that word. How many come
  out, BLEU, chrF and processor seconds, in five ways: without a glossary; with one; by linked words alone; by the
  constrained search alone; with names that carry the terms. With a glossary the constrained search writes the terms;
  where that is clearly less probable, the words that are linked to a term give way to it. "unexpected" has a word of
  another sentence in the place of each target, in the references, too.
- persons: impersonal sentences and possessives, counted.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import repeat
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write
from robustness import NAMED, NAMES
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from regard.translation import lines
from regard.translation.calibration import chrf
from regard.translation.lines import terms_of
from regard.translation.reading import carrying
from regard.translation.sentence_search import word_links
from regard.translation.text.corpora import Tsv, read_aligned
from regard.translation.text.glossary import Glossary, Term
from regard.translation.text.letters import WORD, in_title_case
from regard.translation.text.spans import Span
from regard.translation.training.data import read_split
from regard.translation.training.noise import without_marks
from regard.translation.translator import Translator

SEED = 34
DATA = Path(os.environ["REGARD_DATA"])
EACH = 20
MARKS = ".,;:!?¿¡\"'()"
_SPAN = re.compile(r":[\w:+-]+:`[^`]+`|``[^`]+``|`[^`]+`_*|https?://\S+[\w/]|\|\w+\|")
# Text that is added: before the text, after it, or around a word (the two halves with a line between them).
ADDED = {
    "emoji": " ❤️",
    "emoji joined": "😂",
    "tag": "<b>|</b>",
    "tag g": '<g id="1">|</g>',
    "empty tag": "<br/> ",
    "format name": " {name}",
    "format %s": " %s",
    "code": " `x`",
    "user": "@ana_92 ",
    "hash": " #viajes",
    "ellipsis": "…",
}
ADDRESSES = {
    "es": {
        "URL": ("Visita {} para más información.", "El enlace es {}.", "La foto está en {} ahora.", "¿Has visto {}?"),
        "e-mail": ("Escribe a {} hoy.", "Mi correo es {}.", "Mándame la carta a {}.", "¿Es {} tu dirección?"),
        "code": ("Abre {} y lee.", "Tienes que usar {}.", "El error está en {}.", "¿Qué hace {}?"),
        "+34 telephone": ("Mi número es {}.", "Llámame al {}.", "El teléfono de Tom es {}.", "Llama al {} mañana."),
        "range": ("Lee las páginas {}.", "Necesitamos {} personas.", "Abrimos de {}.", "Cuesta {} euros."),
        "flight": ("El vuelo {} sale tarde.", "Mi vuelo es el {}.", "Perdimos el {}.", "¿Cuándo llega el {}?"),
    },
    "en": {
        "URL": ("Visit {} for more.", "The link is {}.", "I found the photo on {} yesterday.", "Have you seen {}?"),
        "e-mail": ("Write to {} today.", "My address is {}.", "Send the letter to {}.", "Is {} your address?"),
        "code": ("Open {} and read.", "You have to use {}.", "The mistake is in {}.", "What does {} do?"),
        "+34 telephone": ("My number is {}.", "Call me at {}.", "Tom's telephone is {}.", "Call {} tomorrow."),
        "range": ("Read pages {}.", "We need {} people.", "We're open {}.", "It costs {} dollars."),
        "flight": ("Flight {} leaves late.", "My flight is {}.", "We missed {}.", "When does {} arrive?"),
    },
}  # fmt: skip
IMPERSONAL = {
    "Se prohíbe fumar.": "must smoke",
    "Se habla español.": r"^(?!.*(Spanish is|speak)).*",
    "Se vende casa.": r"^(?!.*(for sale|sold|sell)).*",
    "Se alquila piso.": r"^(?!.*(for rent|rent)).*",
    "Se busca camarero.": r"^(?!.*(wanted|look)).*",
}
POSSESSIVE = {
    "La {} perdió su {}.": "her",
    "La {} quiere a su {}.": "her",
    "La {} abrió su {}.": "her",
    "El {} perdió su {}.": "his",
}
WOMEN = "reina profesora niña enfermera abuela princesa doctora vecina señora actriz".split()
MEN = "rey profesor niño enfermero abuelo príncipe doctor vecino señor actor".split()
THINGS = "corona bolso perro libro coche casa puerta hermano trabajo sombrero".split()


def thing(kind: str, random: Random) -> str:
    """One address, piece of code or number of a kind."""
    name = "".join(random.choices("abcdefgilmnoprstu", k=random.randint(3, 8)))
    site = "".join(random.choices("abcdefgilmnoprstu", k=random.randint(3, 8)))
    digits = [random.randint(2, 9) for _ in range(9)]
    makers: dict[str, Callable[[], str]] = {
        "URL": lambda: random.choice(
            (f"https://www.{site}.com/{name}", f"http://{site}.es", f"www.{site}.org",
             f"https://{site}.net/{name}?id={digits[0]}&p={digits[1]}")
        ),
        "e-mail": lambda: random.choice(
            (f"{name}@{site}.com", f"{name}.{site}@{site}.es", f"{name}_{digits[0]}@{site}.org")
        ),
        "code": lambda: random.choice(
            (f"`{name}`", f"`{name}({digits[0]})`", f"``{name} = {site}``", f"`{site}.{name}()`", f"`--{name}`")
        ),
        "+34 telephone": lambda: random.choice(
            ("+34 {}{}{} {}{}{} {}{}{}", "+34 {}{}{} {}{} {}{} {}{}", "+34{}{}{}{}{}{}{}{}{}")
        ).format(*digits),
        "range": lambda: random.choice(("{}-{}", "{}–{}", "{} - {}")).format(digits[0], digits[0] * 10 + digits[1]),
        "flight": lambda: random.choice(("IB{}", "IB {}", "BA{}", "FR {}")).format(random.randint(100, 9999)),
    }  # fmt: skip
    return makers[kind]()


class Bench:
    """The rows of a model."""

    def __init__(self, model: str, sentences: int, without: Sequence[str]) -> None:
        self.translator = Translator.open(model)
        search = self.translator.search
        self.translator.search = search.changed(**dict.fromkeys(without, False))
        configuration = self.translator.run.configuration
        self.source, self.target = (
            configuration.data.source_language,
            configuration.data.target_language,
        )
        self.valid = read_split(configuration.data, "valid", DATA, configuration.seed).pairs
        self.lines = Random(SEED).sample(self.valid, min(sentences, len(self.valid)))
        self.sentences = sentences

    def texts(self, sources: Sequence[str]) -> list[str]:
        return [translation.text for translation in self.translator.translate(sources)]

    def clean(self) -> dict[str, Any]:
        texts, references = (
            self.texts([p.source for p in self.lines]),
            [p.target for p in self.lines],
        )
        return {
            "bleu": bleu(texts, references),
            "ignoring_capitals": bleu(texts, references, lowercase=True),
        }

    def technical(self) -> dict[str, Any]:
        if {self.source, self.target} != {"es", "en"}:
            return {}
        columns = (1, 0) if self.source == "es" else (0, 1)
        pairs = read_aligned(Tsv(DATA / "python-docs-es" / "valid.tsv", *columns))
        pairs = Random(SEED).sample(pairs, min(self.sentences, len(pairs)))
        sources, references = [p.source for p in pairs], [p.target for p in pairs]
        texts = self.texts(sources)
        spans = [
            (span, text)
            for source, text in zip(sources, texts, strict=True)
            for span in _SPAN.findall(source)
        ]
        kept_spans = sum(span in text for span, text in spans)
        return {
            "bleu": bleu(texts, references), "copying": bleu(sources, references),
            "spans": len(spans), "spans_kept": round(100 * kept_spans / max(1, len(spans)), 1),
        }  # fmt: skip

    def added(self) -> dict[str, Any]:
        random = Random(SEED)
        lines = self.lines[: self.sentences // 2]
        references = [pair.target for pair in lines]
        clean = self.texts([pair.source for pair in lines])
        results: dict[str, Any] = {"as they are": bleu(clean, references)}
        for name, text in ADDED.items():
            noisy = [add(pair.source, text, random) for pair in lines]
            translations = self.texts(noisy)
            halves = [half.strip() for half in text.split("|")]
            bare = [strip(translation, halves) for translation in translations]
            once = [
                all(translation.count(half) == 1 for half in halves) for translation in translations
            ]
            placed = [
                good and in_place(source, translation, halves)
                for good, source, translation in zip(once, noisy, translations, strict=True)
            ]
            results[name] = {
                "bleu": bleu(bare, references),
                "once": sum(once),
                "at_its_place": sum(placed),
                "of": len(lines),
            }
        return results

    def copied(self) -> dict[str, Any]:
        random, results = Random(SEED), dict[str, Any]()
        for kind, templates in ADDRESSES.get(self.source, {}).items():
            things = [thing(kind, random) for _ in range(EACH)]
            sources = [templates[i % len(templates)].format(text) for i, text in enumerate(things)]
            texts = self.texts(sources)
            right = [has(text, wanted) for text, wanted in zip(texts, things, strict=True)]
            wrong = [
                f"{a} -> {b}" for a, b, good in zip(sources, texts, right, strict=True) if not good
            ]
            results[kind] = {"right": sum(right), "of": len(things), "wrong": wrong[:5]}
        return results

    def names(self) -> dict[str, Any]:
        templates = NAMED.get(self.source, ())
        pairs = [(template.format(name), name) for name in NAMES for template in templates]
        texts = self.texts([source for source, _ in pairs])
        right = [has(text, name) for text, (_, name) in zip(texts, pairs, strict=True)]
        wrong = [
            f"{pair[0]} -> {text}"
            for pair, text, good in zip(pairs, texts, right, strict=True)
            if not good
        ]
        return {"right": sum(right), "of": len(pairs), "wrong": wrong[:20]}

    def case(self) -> dict[str, Any]:
        random = Random(SEED)
        references = [pair.target for pair in self.lines]
        titles = self.texts([title(pair.source) for pair in self.lines])
        emphasised = [emphasise(pair.source, random) for pair in self.lines]
        texts = self.texts(emphasised)
        marked = [
            source
            for source, pair in zip(emphasised, self.lines, strict=True)
            if source != pair.source
        ]
        shouted = [
            any(len(word) > 1 and word.isupper() for word in WORD.findall(text))
            for source, pair, text in zip(emphasised, self.lines, texts, strict=True)
            if source != pair.source
        ]
        return {
            "title case": bleu(titles, [title(text) for text in references]),
            "title case, references as they are": bleu(titles, references),
            "title case, ignoring capitals": bleu(titles, references, lowercase=True),
            "one word in capitals": bleu(texts, references),
            "one word in capitals, as its reference": bleu(texts, self._emphasised(emphasised)),
            "one word in capitals, ignoring capitals": bleu(texts, references, lowercase=True),
            "words in capitals": {"right": sum(shouted), "of": len(marked)},
        }

    def _emphasised(self, sources: Sequence[str]) -> list[str]:
        """The references, in capitals where they are linked to the words of the sources that were put in capitals."""
        pairs = [(pair.source, pair.target) for pair in self.lines]
        references = []
        for (original, reference), source, linked in zip(
            pairs, sources, word_links(self.translator.aligner, pairs), strict=True
        ):
            words = reference.split()
            changes = zip(original.split(), source.split(), strict=True)
            shouted = {place for place, (small, large) in enumerate(changes) if small != large}
            for source_place, target_place in linked.links:
                if source_place in shouted:
                    words[target_place] = words[target_place].upper()
            references.append(" ".join(words))
        return references

    def unmarked(self) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for count in (2, 4):
            groups = [
                self.lines[i : i + count] for i in range(0, len(self.lines) - count + 1, count)
            ]
            sources = [
                " ".join(without_marks(pair.source).lower() for pair in group) for group in groups
            ]
            references = [" ".join(pair.target for pair in group) for group in groups]
            texts = self.texts(sources)
            results[f"{count} sentences"] = {
                "bleu": bleu(texts, references),
                "words_alone": bleu(list(map(plain, texts)), list(map(plain, references))),
                "lines": len(groups),
            }
        return results

    def invented(self) -> dict[str, Any]:
        vocabulary = set(map(str.lower, self._language()))
        strange_lines, unmarked, examples = 0, 0, []
        for translation in self._all():
            source = set(map(str.lower, WORD.findall(translation.source)))
            strange = [
                word
                for word in WORD.findall(translation.text)
                if word.lower() not in vocabulary | source
            ]
            strange_lines += bool(strange)
            unmarked += bool(strange) and not translation.doubts
            examples += [f"{translation.source} -> {translation.text}"] if strange else []
        return {
            "lines": strange_lines,
            "unmarked": unmarked,
            "of": len(self.valid),
            "examples": examples[:10],
        }

    def doubts(self) -> dict[str, Any]:
        translations = self._all()
        scores = np.array(chrf(translations, self.valid))
        bad, median = scores < 25, float(np.median(scores))
        marked = np.array([bool(translation.doubts) for translation in translations])
        figures = {
            "score": [translation.score for translation in translations],
            "mean log-probability": [
                translation.log_probability / max(1, len(translation.target_pieces))
                for translation in translations
            ],
            "mean log-confidence of words": [
                float(
                    np.mean(
                        [np.log(max(word.confidence, 1e-9)) for word in translation.words] or [0]
                    )
                )
                for translation in translations
            ],
        }
        if hasattr(translations[0], "quality"):
            figures["quality"] = [translation.quality or 0.0 for translation in translations]
        return {
            "bad_lines": int(bad.sum()),
            "bad_lines_marked": round(100 * float(marked[bad].mean()), 1),
            "marked": int(marked.sum()),
            "marked_below_the_median": round(100 * float((scores[marked] < median).mean()), 1),
            "auc": {name: round(auc(np.array(values), bad), 3) for name, values in figures.items()},
        }  # fmt: skip

    def terms(self) -> dict[str, Any]:
        pairs = [(pair.source, pair.target) for pair in self.lines[: self.sentences // 2]]
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
        terms: list[tuple[str, str] | None] = []
        for (source, target), links in zip(
            pairs, word_links(self.translator.aligner, pairs), strict=True
        ):
            words = [
                (source.split()[a].strip(MARKS), target.split()[b].strip(MARKS))
                for a, b in self._one_to_one(links.links)
            ]
            words = [pair for pair in words if all(map(str.islower, pair))]
            terms.append(max(words, key=longest) if words else None)
        targets = [term and term[1] for term in terms]
        swapped = [target for target in targets if target]
        Random(SEED).shuffle(swapped)
        new_targets = iter(swapped)
        unexpected = [term and (term[0], next(new_targets)) for term in terms]
        new_references = [
            text if old is None else text.replace(old, new[1])
            for text, old, new in zip(references, targets, unexpected, strict=True)
        ]
        return {
            "listed": self._ways(sources, references, terms),
            "unexpected": self._ways(sources, new_references, unexpected),
        }

    def _ways(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        terms: Sequence[tuple[str, str] | None],
    ) -> dict[str, Any]:
        """The figures of each way to place a term."""
        glossaries = [Glossary([Term(*term, 1)] if term else []) for term in terms]
        search = self.translator.search
        linked = search.changed(constraints=False)
        ways = {
            "without": (None, search, nullcontext()),
            "both": (glossaries, search, nullcontext()),
            "linked words": (glossaries, linked, nullcontext()),
            "constrained search": (
                glossaries,
                search,
                mock.patch.object(carrying, "CONSTRAINED", -math.inf),
            ),
            "names": (glossaries, linked, mock.patch.object(lines, "terms_of", carried_terms)),
        }
        results: dict[str, Any] = {}
        for name, (used, settings, patch) in ways.items():
            begin = time.process_time()
            with patch:
                texts = [
                    self.translator.translate([source], glossary=glossary, search=settings)[0].text
                    for source, glossary in zip(sources, used or repeat(None), strict=False)
                ]
            seconds = time.process_time() - begin
            expected = [
                (text, match.term.target)
                for text, source, glossary in zip(texts, sources, glossaries, strict=True)
                for match in glossary.matches(source)[0]
            ]
            results[name] = {
                "placed": sum(has(text, target) for text, target in expected),
                "of": len(expected),
                "bleu": bleu(texts, references),
                "chrf": round(CHRF().corpus_score(texts, [references]).score, 2),
                "seconds": round(seconds, 1),
            }
            print(name, results[name], flush=True)
        return results

    def _one_to_one(self, links: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        sources, targets = (Counter(link[side] for link in links) for side in (0, 1))
        return [(a, b) for a, b in links if sources[a] == targets[b] == 1]

    def persons(self) -> dict[str, Any]:
        if (self.source, self.target) != ("es", "en"):
            return {}
        texts = self.texts(list(IMPERSONAL))
        wrong = [
            f"{a} -> {b}"
            for (a, rule), b in zip(IMPERSONAL.items(), texts, strict=True)
            if re.search(rule, b)
        ]
        random, cases = Random(SEED), []
        for template, word in POSSESSIVE.items():
            people = MEN if word == "his" else WOMEN
            cases += [(template.format(person, random.choice(THINGS)), word) for person in people]
        texts = self.texts([source for source, _ in cases])
        counts = {}
        for word in ("her", "his"):
            right = [
                re.search(rf"\b{word}\b", text) is not None
                for text, (_, expected) in zip(texts, cases, strict=True)
                if expected == word
            ]
            counts[word] = {"right": sum(right), "of": len(right)}
        return {"impersonal": {"wrong": wrong, "of": len(IMPERSONAL)}, "possessive": counts}

    def _all(self) -> Any:
        if not hasattr(self, "_translations"):
            self._translations = self.translator.translate([pair.source for pair in self.valid])
        return self._translations

    def _language(self) -> set[str]:
        """Every word of the target language in the corpora here."""
        folder, words = DATA / "tatoeba-spa-eng", set[str]()
        texts = [
            p.target
            for part in ("train", "valid")
            for p in read_split(self.translator.run.configuration.data, part, DATA, 1).pairs
        ]
        if self.target == "en":
            texts += [
                p.target for p in read_aligned(Tsv(DATA / "tatoeba-fra-eng" / "train.tsv", 1, 0))
            ]
            texts += [p.target for p in read_aligned(Tsv(folder / "train.tsv", 1, 0))]
            texts += [
                p.source for p in read_aligned(Tsv(DATA / "python-docs-es" / "train.tsv", 0, 1))
            ]
            texts += (DATA / "flores-es-en" / "flores-dev.en").read_text().splitlines()
        for text in texts:
            words.update(WORD.findall(text))
        return words


def longest(words: tuple[str, str]) -> int:
    return len(words[0])


def carried_terms(*arguments: Any) -> tuple[list[Span], list[str]]:
    """The terms of a line, all of them carried by names."""
    spans, overlapping = terms_of(*arguments)
    return [
        span._replace(role="carried") if span.reason == "term" else span for span in spans
    ], overlapping


def bleu(texts: Sequence[str], references: Sequence[str], lowercase: bool = False) -> float:
    return round(BLEU(lowercase=lowercase).corpus_score(list(texts), [list(references)]).score, 2)


def auc(values: Any, bad: Any) -> float:
    """The chance that a bad line has a smaller value than another line."""
    order = np.argsort(np.argsort(values, kind="stable"), kind="stable") + 1
    good = ~bad
    return float((order[good].sum() - good.sum() * (good.sum() + 1) / 2) / (good.sum() * bad.sum()))


def plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+(?:['’][^\W_]+)*", text.lower()))


def has(text: str, term: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text) is not None


def title(text: str) -> str:
    return in_title_case(text)


def emphasise(text: str, random: Random) -> str:
    words = [match for match in WORD.finditer(text) if len(match[0]) > 3]
    if not words:
        return text
    word = random.choice(words)
    return text[: word.start()] + word[0].upper() + text[word.end() :]


def add(source: str, text: str, random: Random) -> str:
    """A sentence with a thing at its beginning or end, or around one of its words."""
    if "|" in text:
        opening, closing = text.split("|")
        word = random.choice(list(WORD.finditer(source)) or [re.search("$", source)])
        return f"{source[: word.start()]}{opening}{word[0]}{closing}{source[word.end() :]}"
    if text.endswith(" "):
        return text + source
    final = (
        re.search(r"[.!?]*$", source).start()
        if text.startswith((" {", " %")) or "`" in text
        else len(source)
    )
    return source[:final] + text + source[final:]


def strip(text: str, halves: Sequence[str]) -> str:
    for half in halves:
        text = text.replace(half, "", 1)
    return re.sub(r"\s+([.!?]+)$", r"\1", re.sub(r"\s+", " ", text)).strip()


def in_place(source: str, text: str, halves: Sequence[str]) -> bool:
    """Whether a thing is at the end of the translation where it was in the source, or a pair around a word."""
    if len(halves) == 2:
        start, end = text.index(halves[0]), text.index(halves[1])
        return start < end and bool(WORD.search(text[start + len(halves[0]) : end]))
    (half,) = halves
    outside = r"[\s.!?]*"
    if source.startswith(half):
        return text.startswith(half)
    return re.search(rf"{re.escape(half)}{outside}$", text) is not None


ROWS = (
    "clean",
    "technical",
    "added",
    "copied",
    "names",
    "case",
    "unmarked",
    "invented",
    "doubts",
    "terms",
    "persons",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="es-en")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--without", default="", help="keys of [search], with commas")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    without = [name for name in options.without.split(",") if name]
    bench = Bench(options.model, options.sentences, without)
    results: dict[str, Any] = {
        "model": options.model,
        "seed": SEED,
        "sentences": options.sentences,
        "without": without,
    }
    for row in options.rows.split(","):
        results[row] = getattr(bench, row)()
        print(row, results[row], flush=True)
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
