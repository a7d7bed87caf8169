"""Tokenizer files made up by others: refused here, before anything that could crash sees them."""

from __future__ import annotations

import os
import random
import struct

import pytest

from regard.errors import ModelError
from regard.translation.text import vocabulary
from regard.translation.text.tokenizer import Tokenizer

Fields = list[tuple[int, int | bytes]]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text: bytes, score: float = 0.0, kind: int = 1) -> bytes:
    return field(1, field(1, text) + field(2, score) + field(3, kind))


SPECIAL = [
    piece(b"<pad>", 0.0, 3),
    piece(b"<unk>", 0.0, 2),
    piece(b"<s>", 0.0, 3),
    piece(b"</s>", 0.0, 3),
]
BYTES = [piece(b"<0x%02X>" % b, 0.0, 6) for b in range(256)]
LETTERS = [piece("\u2581".encode(), -2.0), piece(b"a", -1.0), piece(b"b", -3.0)]
TRAINER = field(3, 1) + field(35, 1) + field(40, 1) + field(41, 2) + field(42, 3) + field(43, 0)
NORMALISER = field(1, b"identity") + field(2, b"") + field(3, 1) + field(4, 0) + field(5, 1)


def model(
    pieces: list[bytes] | None = None,
    trainer: bytes = TRAINER,
    normaliser: bytes = NORMALISER,
    more: bytes = b"",
) -> bytes:
    pieces = [*SPECIAL, *BYTES, *LETTERS] if pieces is None else pieces
    return b"".join(pieces) + field(2, trainer) + field(3, normaliser) + more


def test_a_file_written_by_hand_is_a_tokenizer():
    tokenizer = Tokenizer(model())
    assert tokenizer.pieces(tokenizer.encode("ab")) == ["\u2581", "a", "b"]


def test_files_as_we_train_them_pass(tokenizer):
    vocabulary.check(tokenizer.model)


EVIL = {
    "nothing": (b"", "fall back"),
    "no pieces": (model([]), "0 pieces"),
    "few pieces": (model(SPECIAL), "4 pieces"),
    "a piece twice": (model([*SPECIAL, *BYTES, *LETTERS, piece(b"a")]), "twice"),
    "literal control": (model([*SPECIAL, *BYTES, piece(b"<s>")]), "twice"),
    "missing specials": (model([*BYTES, *LETTERS]), "ids 0, 1, 2, 3"),
    "missing byte": (model([*SPECIAL, *BYTES[1:], *LETTERS]), "each byte once"),
    "odd byte": (model([*SPECIAL, *BYTES, piece(b"<0xZZ>", 0.0, 6)]), "each byte once"),
    "second unknown": (model([*SPECIAL, *BYTES, piece(b"u", 0.0, 2)]), "neither text nor bytes"),
    "control in the middle": (model([*SPECIAL, *BYTES, piece(b"<a>", 0.0, 3)]), "neither text nor"),
    "a tag without brackets": (model([*SPECIAL, piece(b"a", 0.0, 3), *BYTES]), "odd names"),
    "many tags": (
        model([*SPECIAL, *(piece(b"<t%d>" % i, 0.0, 3) for i in range(1001)), *BYTES]),
        "more than 1000",
    ),
    "user's own symbol": (model([*SPECIAL, *BYTES, piece(b"u", 0.0, 4)]), "neither text nor bytes"),
    "no such type": (model([*SPECIAL, *BYTES, piece(b"u", 0.0, 99)]), "neither text nor bytes"),
    "empty piece": (model([*SPECIAL, *BYTES, piece(b"")]), "piece 260 is empty"),
    "long piece": (model([*SPECIAL, *BYTES, piece(b"a" * 257)]), "piece 260 is empty, too long"),
    "NUL": (model([*SPECIAL, *BYTES, piece(b"a\0b")]), "holds NUL"),
    "not UTF-8": (model([*SPECIAL, *BYTES, piece(b"\xff")]), "utf-8"),
    "NaN": (model([*SPECIAL, *BYTES, piece(b"a", float("nan"))]), "piece 260 has the score nan"),
    "infinite": (model([*SPECIAL, *BYTES, piece(b"a", float("inf"))]), "score inf"),
    "huge": (model([*SPECIAL, *BYTES, piece(b"a", 1e38)]), "score"),
    "score of text": (
        model([*SPECIAL, field(1, field(1, b"a") + field(2, b"12345678"))]),
        "score nan",
    ),
    "type of text": (model([*SPECIAL, field(1, field(1, b"a") + field(3, b"1"))]), "no type"),
    "text of a number": (model([*SPECIAL, field(1, field(1, 5))]), "a number where text belongs"),
    "piece of a number": (field(1, 5), "a number where text belongs"),
    "words": (model(trainer=TRAINER + field(3, 3)), "neither a unigram nor a BPE"),
    "characters": (model(trainer=TRAINER + field(3, 4)), "neither a unigram nor a BPE"),
    "no bytes": (model(trainer=TRAINER + field(35, 0)), "fall back"),
    "suffix": (model(trainer=TRAINER + field(24, 1)), "spaces end words"),
    "map": (model(normaliser=NORMALISER + field(2, b"\xff\xff\xff\x7f" * 9)), "normalises"),
    "spaces": (model(normaliser=NORMALISER + field(4, 1)), "spaces in another way"),
    "no prefix": (model(normaliser=NORMALISER + field(3, 0)), "spaces in another way"),
    "no normaliser": (model()[: -len(field(3, NORMALISER))], "spaces in another way"),
    "denormaliser": (model(more=field(5, field(2, b"x" * 40))), "normalises"),
    "self test": (model(more=field(4, b"")), "field 4"),
    "two trainers": (model(more=field(2, TRAINER)), "field 2"),
    "group": (model(more=b"\x0b"), "wire type 3"),
    "long number": (model(more=b"\x80" * 11), "64 bits"),
    "huge length": (model(more=b"\x0a" + b"\xff" * 9 + b"\x01"), "64 bits|truncated"),
    "unfinished": (model() + b"\x0a\x7f", "truncated"),
    "half a number": (model() + b"\x80", "truncated"),
}


@pytest.mark.parametrize("kind", sorted(EVIL))
def test_evil_files_are_refused_with_their_fault(kind):
    content, reason = EVIL[kind]
    with pytest.raises(ValueError, match=reason):
        vocabulary.check(content)
    with pytest.raises(ModelError, match=r"their\.model: not a usable sentencepiece model"):
        Tokenizer(content, "their.model")


def test_a_truncated_file_is_refused(unigram):
    for share in range(20):
        with pytest.raises(ModelError):
            Tokenizer(unigram.model[: len(unigram.model) * share // 20])


def test_flipped_files_never_end_the_process(tokenizer):
    """Each is refused or a tokenizer whose ids are in range; in a process apart, which lives to tell."""
    process = os.fork()
    if process == 0:
        refused = [_refused(tokenizer.model, seed) for seed in range(100)]
        os._exit(0 if 10 < sum(refused) < 100 else 1)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def _refused(good: bytes, seed: int) -> bool:
    dice, data = random.Random(seed), bytearray(good)
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    try:
        tokenizer = Tokenizer(bytes(data))
    except ModelError:
        return True
    except BaseException:
        os._exit(2)
    for text in ("katzen <s>", "日本", "a" * 300):
        ids = tokenizer.encode(text)
        tokenizer.pieces(ids)
        if not all(3 < i < len(tokenizer) for i in ids):
            os._exit(3)
    return False
