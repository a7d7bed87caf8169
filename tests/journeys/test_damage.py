"""Every file of a run damaged in turn: a command refuses it by name, or answers as if nothing had happened."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.journeys.commands import Result, check_refused, run

# Files for people, which no command reads: they are damaged all at once.
PROSE = {"card.md", "commands.txt", "curves.png", "metrics.jsonl", "repeat.txt", "samples.txt"}

DAMAGES = ["flipped", "cut", "gone"]


def damaged(damage: str, content: bytes, dice: random.Random) -> bytes | None:
    if damage == "gone":
        return None
    if damage == "cut":
        return content[: dice.randrange(len(content))]
    flipped = bytearray(content)
    flipped[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    return bytes(flipped)


def answers(model: Path, corpus: Path, of_checkpoint: bool) -> Result:
    if of_checkpoint:
        more = ["--set", "training.max_steps=13", "--set", "training.log_every=100"]
        return run("train", model, "--resume", "--data", corpus, *more)
    return run("translate", "--model", model, "--beam", "2", "El gato ve el mar.", apart=True)


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damage_gives_another_answer_or_an_unexpected_error(damage, trained, corpus, tmp_path):
    """Checksums are there for every second file: each file meets both, and so does each damage."""
    dice = random.Random(damage)
    model = tmp_path / "model"

    def fresh(signed: bool) -> None:
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(trained, model)
        if not signed:
            (model / "checksums.json").unlink()

    fresh(signed=True)
    files = (path for path in sorted(model.rglob("*")) if path.is_file() and path.stat().st_size)
    names = [path.relative_to(model) for path in files]
    expected = answers(model, corpus, of_checkpoint=False)
    assert expected.code == 0
    prose = [name for name in names if str(name) in PROSE]
    groups = [prose, *([name] for name in names if name not in prose)]
    for number, group in enumerate(groups, DAMAGES.index(damage)):
        signed = number % 2 == 0 or group == [Path("checksums.json")]
        fresh(signed)
        if not all((model / name).is_file() for name in group):
            continue
        for name in group:
            content = damaged(damage, (model / name).read_bytes(), dice)
            (model / name).unlink()
            if content is not None:
                (model / name).write_bytes(content)
        of_checkpoint = group[0].parts[0] == "checkpoints"
        result = answers(model, corpus, of_checkpoint)
        if result.code:
            check_refused(result, code=result.code)
            assert result.code in (1, 2)
        elif signed and not of_checkpoint:
            assert result.out == expected.out, group
