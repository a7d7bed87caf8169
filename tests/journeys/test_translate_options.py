"""Every option of `regard translate` changes what comes out as it should, or is refused with a reason."""

from __future__ import annotations

import json

from tests.journeys.commands import run

SENTENCES = ["El gato ve el mar hoy.", "El niño come aquí.", "El sol busca la casa."]
TEXT = "".join(line + "\n" for line in SENTENCES)


def translate(model, *more: str, text: str = TEXT) -> list[str]:
    result = run("translate", "--model", model, *more, stdin=text.encode("utf-8"))
    assert result.code == 0, result
    return result.lines


def objects(lines: list[str]) -> list[dict[str, object]]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_a_line_of_json_for_each_line(trained):
    lines = translate(trained, "--format", "json", text=TEXT + "\n\u2028\n")
    plain = translate(trained, text=TEXT + "\n\u2028\n")
    found = objects(lines)
    assert [one["translation"] for one in found] == plain
    assert [one["source"] for one in found] == [*SENTENCES, "", "\u2028"]
    for one in found[:3]:
        assert one["score"] < 0
        assert one["log_probability"] < 0
        assert " ".join(word["word"] for word in one["words"]) == one["translation"]
        assert "nbest" not in one
        assert "alignment" not in one


def test_json_holds_the_n_best_and_their_alignments(trained):
    (found,) = objects(
        translate(trained, "--format", "json", "--nbest", "3", "--alignment", SENTENCES[0])
    )
    assert len(found["nbest"]) == 3
    assert found["nbest"][0].items() <= found.items()
    scores = [one["score"] for one in found["nbest"]]
    assert scores == sorted(scores, reverse=True)
    for one in found["nbest"]:
        links = [link.split("-") for link in one["alignment"].split()]
        assert [int(target) for _, target in links] == list(range(len(one["words"])))
        assert all(int(source) < 6 for source, _ in links)


def test_alignments_and_confidences_go_beside_and_into_the_text(trained):
    plain = translate(trained)
    for text, line in zip(plain, translate(trained, "--alignment"), strict=True):
        same, _, links = line.partition("\t")
        assert same == text
        assert len(links.split()) == len(text.split())
    for text, line in zip(plain, translate(trained, "--confidence"), strict=True):
        words = [word.rpartition("|") for word in line.split()]
        assert [word for word, _, _ in words] == text.split()
        assert all(0 <= float(confidence) <= 1 for _, _, confidence in words)


def test_each_line_may_have_a_prefix_of_its_own(trained):
    text = f"{SENTENCES[0]}\tA dog\n{SENTENCES[1]}\n{SENTENCES[2]}\t\n"
    lines = translate(trained, "--prefixes", text=text)
    assert lines[0].startswith("A dog")
    assert lines[1:] == translate(trained)[1:]
    (argument,) = translate(trained, "--prefixes", f"{SENTENCES[0]}\tA dog")
    assert argument == lines[0]
