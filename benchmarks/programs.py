"""Compiled programs beside plain Python: every input of the shipped ones, samples of random ones; sizes beside tracr's.

python benchmarks/programs.py [--random 10000] [--out benchmarks/results/programs.json]
python benchmarks/programs.py --table    # the tables of the documents, from the stored results

tracr's sizes are those of `peers/tracr_sizes.py`. Ours count the output layer and the norms, which tracr's lack.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

from _measure import write

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
RESULTS = ROOT / "benchmarks" / "results"

from tests.programs.random_programs import random_input, random_program  # noqa: E402

from regard.programs import (  # noqa: E402
    PROGRAMS,
    Program,
    ProgramError,
    aggregate,
    compile,
    elementwise,
    everywhere,
    indices,
    numerical,
    plan,
    select,
    tokens,
    width,
)
from regard.programs.library import earlier, same_token, up_to_here  # noqa: E402

LENGTH, LONGEST = 8, 64
SHORTER = {"addition": 5}  # of eleven tokens there are 235,794,768 inputs up to length 8
SAMPLES = 40  # inputs of a random program


def balance(opening: str, closing: str) -> Any:
    return numerical(elementwise(lambda t: (t == opening) - (t == closing), tokens))


def shuffled(*pairs: str) -> Any:
    """Whether each kind of bracket is balanced, independently of the others."""
    early = [aggregate(up_to_here, balance(*pair)) < 0 for pair in pairs]
    total = [aggregate(everywhere, balance(*pair)) == 0 for pair in pairs]
    wrong = elementwise(lambda *each: any(each), *early)
    even = elementwise(lambda *each: all(each), *total)
    return even & ~aggregate(select(wrong), wrong, False)


count = width(same_token).named("count")
smaller = width(select(tokens, tokens, "<")).named("smaller")
rarer = width(select(count, count, ">")) + width(select(count, count) & earlier)
earlier = [aggregate(select(indices, indices - offset), tokens) for offset in (2, 1)]
ABC = "abc"
TRACR = {  # the tasks of tracr's own examples
    "length": (width(everywhere), ABC),
    "frac_prevs": (aggregate(up_to_here, numerical(tokens == "a")), ABC),
    "hist": (PROGRAMS["histogram"].output, ABC),
    "reverse": (PROGRAMS["reverse"].output, ABC),
    "shift_by": (PROGRAMS["shift"].output, ABC),
    "detect_pattern": (elementwise(lambda *each: each == tuple("aba"), *earlier, tokens), ABC),
    "sort_unique": (aggregate(select(smaller, indices), tokens), (1, 2, 3)),
    "sort": (PROGRAMS["sort"].output, (1, 2, 3)),
    "sort_freq": (aggregate(select(rarer, indices), tokens), ABC),
    "count_less_freq": (width(select(count, 2, "<=")), ABC),
    "pair_balance": (aggregate(up_to_here, balance("(", ")")), "()"),
    "shuffle_dyck": (shuffled("()"), "()"),
    "shuffle_dyck2": (shuffled("()", "[]"), "()[]"),
}


def sizes(program: Program, length: int = LENGTH) -> dict[str, int]:
    figures = plan(program, length).sizes
    named = ("layers", "heads", "head_width", "width", "feed_forward", "parameters")
    return {name: getattr(figures, name) for name in named}


def differing(program: Program, inputs: Iterable[Sequence[Any]], length: int) -> tuple[int, int]:
    """How many inputs there are, and how many get another answer than the program's."""
    compiled, count, wrong = compile(program, length), 0, 0
    remaining = iter(inputs)
    while batch := list(islice(remaining, 4096)):  # itertools.batched is of Python 3.12
        answers = compiled.answered(batch)
        wrong += sum(program(one) != got for one, got in zip(batch, answers, strict=True))
        count += len(batch)
    return count, wrong


def proof(program: Program) -> dict[str, Any]:
    upto = SHORTER.get(program.name, LENGTH)
    every = (each for n in range(upto + 1) for each in product(program.alphabet, repeat=n))
    inputs, wrong = differing(program, every, LENGTH)
    row = {"alphabet": len(program.alphabet), "up_to": upto, "inputs": inputs, "differing": wrong}
    if upto < LENGTH:
        draw = random.Random(0)
        sampled = ["".join(draw.choices(program.alphabet, k=LENGTH)) for _ in range(20_000)]
        row["sampled"], row["sampled_differing"] = differing(program, sampled, LENGTH)
    row["longest"] = longest(program)
    return row | sizes(program)


def longest(program: Program) -> int:
    """The greatest length up to LONGEST for which a program compiles."""
    for length in range(LENGTH + 1, LONGEST + 1):
        try:
            plan(program, length)
        except ProgramError:
            return length - 1
    return LONGEST


def at_random(programs: int) -> dict[str, Any]:
    """Random programs by what became of them; the layers of those that were compiled."""
    became, layers, wrong = Counter[str](), Counter[int](), []
    for seed in range(programs):
        program, length = random_program(seed)
        draw = random.Random(seed)
        inputs = sorted((random_input(draw, program, length) for _ in range(SAMPLES)), key=len)
        try:
            layers[plan(program, length).sizes.layers] += 1
        except ProgramError as why:
            became[kind(str(why))] += 1
            continue
        _, differ = differing(program, inputs, length)
        became["different" if differ else "equal"] += 1
        wrong += [seed] * bool(differ)
    refused = {why: n for why, n in became.most_common() if why not in ("equal", "different")}
    return {
        "programs": programs,
        "samples": SAMPLES,
        "equal": became["equal"],
        "different": became["different"],
        "different_seeds": wrong,
        "refused": sum(refused.values()),
        "reasons": refused,
        "layers": dict(sorted(layers.items())),
    }


def kind(why: str) -> str:
    """A reason without its names and numbers."""
    kinds = {
        "must be categorical": "a selector compares a numerical column",
        "takes categorical columns or one": "a function of several columns, one of them numerical",
        "fails for the values": "a function fails for a value of its columns",
        "must be numbers": "numbers are expected",
        "apart in float32": "values that float32 cannot tell apart",
        "more than": "too many values",
        "which are equal": "equal values of several types",
    }
    return next((said for part, said in kinds.items() if part in why), re.sub(r"'.*'", "", why))


def tables(results: dict[str, Any], tracr: dict[str, Any]) -> str:
    """The tables of the documents."""
    lines = [
        "| program | inputs up to length | inputs | different | longest | layers | heads | width | parameters |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name, row in results["programs"].items():
        sampled = f" + {row['sampled']:,} of length {LENGTH}" if "sampled" in row else ""
        different = row["differing"] + row.get("sampled_differing", 0)
        more = "+" * (row["longest"] == LONGEST)
        lines.append(
            f"| {name} | {row['up_to']} | {row['inputs']:,}{sampled} | {different} | {row['longest']}{more} |"
            f" {row['layers']} | {row['heads']} | {row['width']} | {row['parameters']:,} |"
        )
    lines += [
        "",
        "| tracr's example | layers | heads | width | parameters | tracr: layers | heads | width | parameters |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name, ours in results["tracr"].items():
        theirs = tracr["examples"][name]
        cells = [
            f"{each[k]:,}"
            for each in (ours, theirs)
            for k in ("layers", "heads", "width", "parameters")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--random", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=RESULTS / "programs.json")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        stored = (
            json.loads((RESULTS / f"{n}.json").read_text()) for n in ("programs", "tracr-sizes")
        )
        print(tables(*stored), end="")
        return
    proofs = {}
    for name, program in PROGRAMS.items():
        proofs[name] = proof(program)
        print(name, proofs[name], flush=True)
    examples = {name: sizes(Program(name, *each)) for name, each in TRACR.items()}
    figures = at_random(options.random)
    print(figures)
    write(options.out, {"programs": proofs, "tracr": examples, "random": figures})


if __name__ == "__main__":
    main()
