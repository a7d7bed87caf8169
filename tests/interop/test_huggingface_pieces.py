"""Sentencepiece files of others: maps and pieces that would lead the library astray are refused before it sees them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.interop.models import tokenizer
from tests.interop.pieces import trained

from regard.errors import ModelError
from regard.interop.huggingface.sentencepiece_check import check, check_map
from regard.translation.text.vocabulary import content, fields


def character_map(model: bytes) -> bytes:
    return content(dict(fields(content(dict(fields(model))[3])))[2])


def reachable(compiled: bytes) -> bool:
    """Whether no text leads out of the tables: the texts of one byte, then those of two, and so on."""
    length = int.from_bytes(compiled[:4], "little")
    units = np.frombuffer(compiled[4 : 4 + length], dtype="<u4").astype(np.int64)
    letters = np.arange(1, 256)
    places, is_visited = np.zeros(1, np.int64), np.zeros(len(units), bool)
    while len(places):
        unit = units[places]
        base = places ^ ((unit >> 10) << ((unit & 512) >> 6))
        if (base >= len(units)).any():
            return False
        ends = units[base[(unit >> 8 & 1) == 1]] & 0x7FFFFFFF
        if (ends >= len(compiled) - 4 - length).any():
            return False
        children = base[:, None] ^ letters
        reached = np.unique(children[units[children] & 0x800000FF == letters])
        places = reached[~is_visited[reached]]
        is_visited[places] = True
    return True


def test_files_of_other_trainers_and_our_own_are_let_through():
    for rule in ("nmt_nfkc", "nfkc_cf", "identity"):
        check(trained(["the cat sees the sea"] * 9, rule), "x.spm")
    check(tokenizer().model, "x.spm")


def test_a_map_that_leads_out_of_its_tables_is_refused():
    compiled = character_map(trained(["the cat sees the sea"] * 9, "nmt_nfkc"))
    check_map(compiled)
    assert reachable(compiled)
    length, draw = int.from_bytes(compiled[:4], "little"), random.Random(0)
    refused = 0
    for _ in range(12):
        flipped = bytearray(compiled)
        flipped[draw.randrange(4, 4 + length)] ^= 1 << draw.randrange(8)
        try:
            check_map(bytes(flipped))
            accepted = True
        except ValueError:
            accepted = False
        # What nobody can walk out of may be let through; what is let through, nobody can walk out of.
        assert accepted == reachable(bytes(flipped)) or not accepted
        refused += not accepted
    assert refused >= 2


@pytest.mark.parametrize(
    ("compiled", "message"),
    [
        (b"\0\0", "truncated"),
        (b"\0\0\0\0x", "truncated"),
        (b"\0\4\0\0" + bytes(1000), "truncated"),
        (b"\0\4\0\0" + bytes(1024), "do not end"),
        (b"\0\4\0\0" + b"\xff\xff\xff\x7f" + bytes(1020) + b"x\0", "out of its table"),
        (b"\0\4\0\0" + bytes(1020) + b"\xff\xff\xff\xff" + b"x\0", None),
        (
            b"\0\4\0\0" + b"\0\5\0\0" + b"\xff\xff\xff\x80" + bytes(1016) + b"x\0",
            "beyond its texts",
        ),
    ],
)
def test_maps_that_are_none(compiled, message):
    if message is None:
        check_map(compiled)
        return
    with pytest.raises(ValueError, match=message):
        check_map(compiled)


def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def entry(text: bytes, kind: int = 1) -> bytes:
    return field(1, field(1, text) + bytes([2 << 3 | 5, 0, 0, 0, 0, 3 << 3, kind]))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (b"\x0a\xff", "truncated"),
        (entry(b"<unk>", 2), "it holds 1 pieces"),
        (entry(b"a") + entry(b"b"), "0 pieces for the unknown"),
        (entry(b"<unk>", 2) + entry(b"a") + entry(b"a"), "a piece twice"),
        (entry(b"<unk>", 2) + entry(b"a", 9), "an unknown kind"),
        (entry(b"<unk>", 2) + entry(b"a", 3), "no piece of text"),
        (entry(b"<unk>", 2) + entry(b"a") + entry(b"<0x00>", 6), "bytes it does not fall back to"),
        (entry(b"<unk>", 2) + entry(b"a") + field(2, bytes([3 << 3, 3])), "neither a unigram"),
        (entry(b"<unk>", 2) + entry(b"a") + field(9, b""), "field 9 is unknown"),
    ],
)
def test_files_that_are_no_models(model, message):
    with pytest.raises(ModelError, match=f"x.spm: not a usable sentencepiece model: .*{message}"):
        check(model, "x.spm")
