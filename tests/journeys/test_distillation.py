"""A teacher's translations of the training text: resumed without loss, checked, and learnt from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.journeys.commands import check_refused, run
from tests.journeys.conftest import TINY
from tests.translation.tiny import configuration

from regard.cli.signals import Interrupted
from regard.errors import ConfigurationError, DataError
from regard.translation.results import Candidate, Translation
from regard.translation.settings.data import DataSettings, DistillationSettings
from regard.translation.synthesis import distillation
from regard.translation.synthesis.back_translation import fingerprint
from regard.translation.synthesis.distillation import closest, distil
from regard.translation.text.corpora import Pair, Tsv, by_people, read_lines
from regard.translation.training.data import distilled, read_split
from regard.translation.training.preparation import prepare
from regard.translation.translator import Translator

PAIRS = [
    Pair(f"El gato ve {each}.", f"The cat sees {each}.") for each in "uno dos tres ana".split()
]


def actual(*texts: str) -> Translation:
    return Translation("x", text=texts[0], alternatives=[Candidate(text) for text in texts])


def test_the_candidate_closest_to_the_target_is_taken():
    assert closest(actual("a b c d", "a b x d", "a b c e"), "a b c e") == "a b c e"


def test_of_equally_close_candidates_the_teacher_chooses():
    assert closest(actual("p q r s", "t u v w"), "a b c d") == "p q r s"


@pytest.fixture(scope="module")
def teacher(trained) -> Translator:
    return Translator.open(trained)


def test_every_line_is_a_candidate_of_the_teacher(teacher, tmp_path):
    out, counts = tmp_path / "distilled.tsv", []
    distil(teacher, PAIRS, out, beam=3, progress=counts.append)
    search = teacher.search.as_written().changed(beam=3, nbest=3)
    translations = teacher.translate(
        [pair.source for pair in PAIRS], search=search, whole_lines=True
    )
    expected = [closest(one, pair.target) for one, pair in zip(translations, PAIRS, strict=True)]
    assert list(Tsv(out).rows()) == list(
        zip([pair.source for pair in PAIRS], expected, strict=True)
    )
    assert counts == [0, 4]


def test_interrupted_work_is_resumed_where_it_stopped(teacher, tmp_path, monkeypatch):
    monkeypatch.setattr(distillation, "CHUNK", 1)
    full_output, cut = tmp_path / "whole.txt", tmp_path / "cut.txt"
    distil(teacher, PAIRS, full_output)

    def interrupt(sentence_count: int) -> None:
        if sentence_count == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distil(teacher, PAIRS, cut, progress=interrupt)
    assert not cut.exists()
    with pytest.raises(
        ConfigurationError,
        match=r"cut\.txt: was begun with other settings: search\.beam: 5 before, 2",
    ):
        distil(teacher, PAIRS, cut, beam=2)
    counts: list[int] = []
    distil(teacher, PAIRS, cut, progress=counts.append)
    assert counts == [2, 3, 4]
    assert cut.read_bytes() == full_output.read_bytes()
    finished = {"whole.txt", "whole.txt.json", "cut.txt", "cut.txt.json"}
    assert {path.name for path in tmp_path.iterdir()} - finished <= {
        "whole.txt.part.lock",
        "cut.txt.part.lock",
    }


def test_a_finished_file_serves_again_but_not_for_other_pairs(teacher, tmp_path):
    out, counts = tmp_path / "distilled.tsv", []
    distil(teacher, PAIRS, out)
    distil(teacher, PAIRS, out, progress=counts.append)
    assert counts == []
    with pytest.raises(ConfigurationError, match="with other settings: the pairs changed: use"):
        distil(teacher, PAIRS[1:], out)
    (tmp_path / "distilled.tsv.json").unlink()
    with pytest.raises(ConfigurationError, match="does not tell what it was made from: remove it"):
        distil(teacher, PAIRS, out)


def test_no_pair_is_made_of_a_source_that_the_teacher_cut(teacher, tmp_path):
    pairs = [PAIRS[0], Pair("gato " * 600, "cat " * 600)]
    for _ in range(2):  # the second time it is there
        assert distil(teacher, pairs, tmp_path / "distilled.tsv") == 1
    assert list(Tsv(tmp_path / "distilled.tsv").rows())[1][1] == ""


def test_translations_are_further_pairs_that_nobody_wrote(tmp_path):
    path = tmp_path / "distilled.tsv"
    path.write_text("a\tA one.\nc\t\n", encoding="utf-8")
    train = [Pair("a", "b", ("t",), 2.0, "0-0"), Pair("x", "y", synthetic=True), Pair("c", "d")]
    settings = DistillationSettings(teacher=("t",), weight=0.5)
    assert distilled(train, settings, path) == [Pair("a", "A one.", ("t",), 1.0, "", True)]
    assert by_people(train) == [train[0], train[2]]
    path.write_text("c\t\na\tA one.\n", encoding="utf-8")
    with pytest.raises(DataError, match="its 2 sources are not those of the 2 training pairs"):
        distilled(train, settings, path)


def test_a_model_learns_from_its_teacher_too(trained, corpus, tmp_path):
    taught = TINY.replace("[tokenizer]", f"[data.distillation]\nteacher = '{trained}'\n[tokenizer]")
    (tmp_path / "taught.toml").write_text(taught, encoding="utf-8")
    command = ("train", "taught.toml", "--data", corpus, "--run", "taught")
    result = run(*command)
    assert result.code == 0, result
    assert f"translating the training sources by {trained}\n" in result.out
    assert "400 training pairs with those that models made" in result.out
    rows = list(Tsv(tmp_path / "taught" / "distilled.tsv").rows())
    assert len(rows) == 200
    assert len({translation for _, translation in rows}) > 5
    card = (tmp_path / "taught" / "card.md").read_text(encoding="utf-8")
    assert f"and translations by {trained} of the sources that people wrote" in card
    # The tokenizer and the words are those of the text that people wrote.
    for name in ("tokenizer.model", "words.json"):
        assert (tmp_path / "taught" / name).read_bytes() == (trained / name).read_bytes()
    assert _tokens(tmp_path / "taught") != _tokens(trained)
    repetition = ("train", "taught", "--data", corpus, "--resume", "--set", "training.max_steps=14")
    assert run(*repetition).code == 0
    with (tmp_path / "taught" / "distilled.tsv").open("a", encoding="utf-8") as file:
        file.write("otro\tone more\n")
    refused = run(*repetition)
    check_refused(refused, "taught/distilled.tsv: has changed since this training began")
    assert "corpora.json" not in refused.err  # removing it would not help: see below
    (tmp_path / "taught" / "corpora.json").unlink()
    check_refused(run(*repetition), "its 201 sources are not those of the 200 training pairs")
    (tmp_path / "taught" / "distilled.tsv").unlink()
    check_refused(
        run(*repetition), "distilled.tsv: is missing: a model made it before this training"
    )


def test_translations_made_before_are_used_again(trained, corpus, tmp_path):
    taught = TINY.replace("[tokenizer]", f"[data.distillation]\nteacher = '{trained}'\n[tokenizer]")
    (tmp_path / "taught.toml").write_text(taught, encoding="utf-8")
    command = ("train", "taught.toml", "--data", corpus)
    assert run(*command, "--run", "one").code == 0
    (tmp_path / "two").mkdir()
    for name in ("distilled.tsv", "distilled.tsv.json"):
        shutil.copy(tmp_path / "one" / name, tmp_path / "two" / name)
    result = run(*command, "--run", "two")
    assert result.code == 0, result
    assert "two/distilled.tsv: made before\n" in result.out
    assert "translating the training sources" not in result.out
    weights, two = (tmp_path / run / "model.safetensors" for run in ("one", "two"))
    assert two.read_bytes() == weights.read_bytes()


def _tokens(folder: Path) -> int:
    (newest,) = list((folder / "checkpoints").glob("step-12"))
    return json.loads((newest / "progress.json").read_text(encoding="utf-8"))["target_tokens"]


def test_several_teachers_translate_together(trained, corpus, tmp_path):
    other_folder = shutil.copytree(trained, tmp_path / "other")
    taught = TINY.replace(
        "[tokenizer]",
        f"[data.distillation]\nteacher = ['{trained}', '{other_folder}']\n[tokenizer]",
    )
    (tmp_path / "taught.toml").write_text(taught, encoding="utf-8")
    result = run("train", "taught.toml", "--data", corpus, "--run", "taught")
    assert result.code == 0, result
    assert f"translating the training sources by {trained} and {other_folder}\n" in result.out
    record = json.loads((tmp_path / "taught" / "distilled.tsv.json").read_text(encoding="utf-8"))
    assert record["settings"]["teacher"] == fingerprint(Translator.open([trained, other_folder]))
    assert record["settings"]["teacher"] != fingerprint(Translator.open(trained))


@pytest.mark.parametrize(
    ("teacher", "message", "code"),
    [
        (
            "['es-en', 'en-es']",
            "data.distillation.teacher: en-es translates en to es, and es to en is needed",
            2,
        ),
        (
            "['es-en', 'es-en-tiny']",
            "data.distillation.teacher: es-en-tiny: its source vocabulary",
            1,
        ),
    ],
)
def test_teachers_that_cannot_work_together_are_refused_before_the_corpora_are_read(
    corpus, tmp_path, teacher, message, code
):
    taught = TINY.replace("[tokenizer]", f"[data.distillation]\nteacher = {teacher}\n[tokenizer]")
    (tmp_path / "taught.toml").write_text(taught, encoding="utf-8")
    refused = run("train", "taught.toml", "--data", corpus, "--run", "taught")
    check_refused(refused, message, code=code)
    assert "training pairs" not in refused.out
    assert not (tmp_path / "taught").exists()


@pytest.mark.parametrize("teacher", ["5", "[]", "''", "['es-en', 5]", "['']"])
def test_a_teacher_is_a_name_or_a_list_of_names(corpus, tmp_path, teacher):
    taught = TINY.replace("[tokenizer]", f"[data.distillation]\nteacher = {teacher}\n[tokenizer]")
    (tmp_path / "taught.toml").write_text(taught, encoding="utf-8")
    refused = run("train", "taught.toml", "--data", corpus, "--run", "taught")
    check_refused(refused, "give the name of one model, or a list of names", code=2)


def test_a_teacher_of_other_languages_leaves_no_folder(trained, corpus, tmp_path):
    taught = TINY.replace("[tokenizer]", f"[data.distillation]\nteacher = '{trained}'\n[tokenizer]")
    (tmp_path / "taught.toml").write_text(taught, encoding="utf-8")
    command = ("train", "taught.toml", "--data", corpus, "--run", "taught")
    other_result = run(*command, "--set", "data.target_language=fr")
    check_refused(other_result, "translates es to en, and es to fr is needed", code=2)
    missing = run(*command, "--set", "data.distillation.teacher=none")
    check_refused(missing, "data.distillation.teacher: none: no such model or run folder")
    assert not (tmp_path / "taught").exists()


def test_an_interrupted_start_goes_on_with_the_same_command(trained, corpus, tmp_path):
    taught = TINY.replace("[tokenizer]", f"[data.distillation]\nteacher = '{trained}'\n[tokenizer]")
    (tmp_path / "taught.toml").write_text(taught, encoding="utf-8")
    command = ("train", "taught.toml", "--data", corpus, "--run", "taught")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distillation, "CHUNK", 50)
        real = Translator.translate

        def interrupted(self, texts, **given):
            if texts[0] == pairs[100]:
                raise Interrupted(2)
            return real(self, texts, **given)

        pairs = list(read_lines(corpus / "train.es"))
        patch.setattr(Translator, "translate", interrupted)
        cut = run(*command)
        assert cut.code == 130
        assert "stopped before the training; give the same command to resume" in cut.out
        early = run(*command, "--resume")
        check_refused(early, "its training has not begun yet: give the command without", code=2)
        patch.setattr(Translator, "translate", real)
        assert (tmp_path / "taught" / "distilled.tsv.part").read_bytes().count(b"\n") == 100
        result = run(*command)
    assert result.code == 0, result
    assert len(list(read_lines(tmp_path / "taught" / "distilled.tsv"))) == 200


def test_what_cannot_be_trained_is_refused_before_a_teacher_works(tmp_path):
    def never(pairs):
        raise AssertionError("a teacher was asked")

    for change in ("data.longest=1", "tokenizer.vocabulary_size=20"):
        expected_settings = configuration(tmp_path, "data.distillation.teacher=x", change)
        with pytest.raises((DataError, ConfigurationError)):
            prepare(expected_settings, tmp_path / "run", synthesise=never)
    assert not (tmp_path / "run").exists()


def test_which_pairs_people_wrote_is_read_with_the_pairs(tmp_path):
    for name, line in (("real.tsv", "one\tuno\n"), ("made.tsv", "two\tdos\n")):
        (tmp_path / name).write_text(line, encoding="utf-8")
    corpora = [{"tsv": "real.tsv"}, {"tsv": "made.tsv", "synthetic": True}]
    section = DataSettings.model_validate({"train": corpora, "valid": {"tsv": "real.tsv"}})
    pairs = read_split(section, "train", tmp_path, 1).pairs
    assert [pair.source for pair in pairs] == ["one", "two"]
    assert [pair.source for pair in by_people(pairs)] == ["one"]
