"""Monolingual text into a tagged training file: resumed without loss, filtered, and learnt from."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.journeys.commands import check_refused, run
from tests.journeys.conftest import TINY, WORDS

from regard import files
from regard.errors import ConfigurationError, DataError, RegardError
from regard.translation.decoding.search import Search
from regard.translation.synthesis import back_translation as working
from regard.translation.synthesis.back_translation import BackTranslation
from regard.translation.synthesis.filtering import PairFilter, Tally
from regard.translation.synthesis.resumable import ResumableFile
from regard.translation.text.corpora import read_lines
from regard.translation.translator import Translator


def sentences(count: int) -> list[str]:
    dice = random.Random(4)
    return [" ".join(["El", *dice.choices(list(WORDS), k=5)]) + "." for _ in range(count)]


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "mono.es"
    lines = sentences(26)
    lines[7:7] = ["", lines[3], "  ", f" {lines[5]} "]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def back(trained, text, tmp_path, monkeypatch):
    """Makes works that record after every six sentences, and keep whatever the model says."""
    monkeypatch.setattr(working, "CHUNK", 6)
    translator = Translator.open(trained)

    def make(name: str = "out.tsv", **settings) -> BackTranslation:
        options = {"search": Search(sampling=True), "ratio": 1000.0, "longest": 500} | settings
        return BackTranslation(text, tmp_path / name, translator, **options)

    return make


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in read_lines(path)]


def stop_after(count: int):
    counter = iter(range(1000))
    return lambda: next(counter) + 1 >= count


def test_a_table_of_synthetic_sources_and_real_targets_is_learnt_from(
    trained, corpus, text, tmp_path
):
    command = ("data", "back-translate", text, "--model", trained, "--out", "new.tsv")
    result = run(*command, "--sample", "--ratio", "1000", "--seed", "5")
    assert result.code == 0, result
    actual_rows = rows(tmp_path / "new.tsv")
    assert result.lines[0] == f"new.tsv: {len(actual_rows)} sentence pairs of 30 lines"
    assert "left out: 2 empty, 2 repeated" in result.out
    assert {target for _, target in actual_rows} <= set(sentences(26))
    assert len(actual_rows) > 20
    assert all(len(row) == 2 and row[0] for row in actual_rows)
    assert not list(tmp_path.glob("*.part*"))
    # What it printed is what a configuration takes: from en to es, learnt from both.
    snippet = result.out.rpartition("[[data.train]]")[2]
    real = "[[data.train]]\nsource = 'train.en'\ntarget = 'train.es'\nweight = 2\n[[data.train]]"
    config = TINY.replace("[tokenizer]", f"{real}{snippet}[tokenizer]")
    config = config.replace('train.source = "train.es"\ntrain.target = "train.en"\n', "")
    config = config.replace('"new.tsv"', f'"{tmp_path}/new.tsv"').replace("valid.es", "x")
    config = config.replace("valid.en", "valid.es").replace('"x"', '"valid.en"')
    (tmp_path / "both.toml").write_text(config, encoding="utf-8")
    larger = ("--set", "tokenizer.vocabulary_size=600")  # what is drawn has odd characters
    learnt_result = run("train", "both.toml", "--data", corpus, "--run", "both", *larger)
    assert learnt_result.code == 0, learnt_result
    assert learnt_result.out.startswith(f"{200 + len(actual_rows)} training pairs")
    assert run("translate", "The cat.", "--model", "both").code == 0
    check_refused(run(*command), "new.tsv: is there already")


def test_what_is_interrupted_and_resumed_is_what_was_never_interrupted(back):
    assert back("straight.tsv").run()[0] == "finished"
    cut = back("cut.tsv")
    outcome, tally = cut.run(should_stop=stop_after(2))
    assert outcome == "stopped"
    assert 12 <= tally.read < 20
    partial_file = cut.out.with_name("cut.tsv.part")
    assert partial_file.read_bytes().endswith(b"\n")
    with partial_file.open("ab") as file:  # as a kill leaves it, or a power cut
        file.write("half a li\xf1".encode()[:-1])
    with pytest.raises(ConfigurationError, match="was begun and not finished: add --resume"):
        cut.run()
    assert cut.run(resume=True, should_stop=stop_after(1))[0] == "stopped"
    outcome, resumed = cut.run(resume=True)
    assert outcome == "finished"
    assert cut.out.read_bytes() == back("straight.tsv").out.read_bytes()
    assert (resumed.read, resumed.empty, resumed.repeated) == (30, 2, 2)
    assert not list(cut.out.parent.glob("*.part*"))


def test_a_kill_before_the_record_loses_one_chunk_and_no_line(back, monkeypatch):
    back("straight.tsv").run()
    cut = back("cut.tsv")
    write, count = working.ResumableFile._save, iter(range(100))

    def killed(self, record):
        if next(count) == 3:
            raise KeyboardInterrupt
        write(self, record)

    monkeypatch.setattr(working.ResumableFile, "_save", killed)
    with pytest.raises(KeyboardInterrupt):
        cut.run()
    recorded = json.loads((cut.out.parent / "cut.tsv.part.json").read_text(encoding="utf-8"))
    assert recorded["bytes"] < (cut.out.parent / "cut.tsv.part").stat().st_size
    cut.run(resume=True)
    assert cut.out.read_bytes() == back("straight.tsv").out.read_bytes()


def test_a_finished_table_serves_a_training_on_another_device(back):
    _, second_command = back().run(reuse=True)
    record = back().out.with_name("out.tsv.json")
    message = record.read_text(encoding="utf-8")
    record.write_text(message.replace('"device": "cpu"', '"device": "cuda"'), encoding="utf-8")
    assert '"device": "cuda"' in record.read_text(encoding="utf-8")
    assert back().run(reuse=True) == ("finished", second_command)
    with pytest.raises(ConfigurationError, match="other settings: seed: 1 before, 2 asked for"):
        back(seed=2).run(reuse=True)


def test_other_settings_or_another_text_do_not_go_on(back, text):
    back().run(should_stop=stop_after(1))
    with pytest.raises(ConfigurationError, match="other settings: seed: 1 before, 2 asked for"):
        back(seed=2).run(resume=True)
    with pytest.raises(ConfigurationError, match="batch_tokens: 8192 before, 100 asked for"):
        back(batch_tokens=100).run(resume=True)
    with pytest.raises(ConfigurationError, match=r"search\.beam: 5 before, 1 asked for"):
        back(search=Search(beam=1)).run(resume=True)
    whole_content = text.read_bytes()
    text.write_bytes(whole_content.replace(b"El", b"La", 1))
    with pytest.raises(ConfigurationError, match=r"its first .* lines are not those"):
        back().run(resume=True)
    text.write_bytes(whole_content[:40])
    with pytest.raises(ConfigurationError, match=r"its first .* lines are not those"):
        back().run(resume=True)
    text.write_bytes(whole_content)
    journal = back().out.with_name("out.tsv.part.json")
    good = journal.read_bytes()
    for spoilt, message in (
        (b"{", "corrupted"),
        (good.replace(b'"version": 1', b'"version": 999'), "format 999"),
        (good.replace(b'"bytes": ', b'"bytes": 9'), "is shorter than"),
        (good.replace(b'"chunks"', b'"junks"'), "corrupted"),
        (b"[" * 100_000, "corrupted"),
    ):
        journal.write_bytes(spoilt)
        with pytest.raises(DataError, match=message):
            back().run(resume=True)
    journal.write_bytes(good)
    assert back().run(resume=True)[0] == "finished"


def test_who_asks_to_stop_while_the_last_sentences_are_translated_has_all_of_them(back):
    # 26 sentences, six at a time.
    assert back("last.tsv").run(should_stop=stop_after(5))[0] == "finished"
    assert back("last.tsv").out.exists()
    assert back("but-one.tsv").run(should_stop=stop_after(4))[0] == "stopped"


def test_who_asks_to_stop_waits_for_no_line_of_a_pipe(back, text, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDWR)
    os.write(descriptor, "".join(f"{line}\n" for line in sentences(6)).encode())
    work = dataclasses.replace(back(), text=pipe)
    assert work.run(should_stop=lambda: True)[0] == "stopped"
    os.close(descriptor)


def test_what_another_process_finished_meanwhile_is_left_alone(back, monkeypatch):
    work = back()
    hold = ResumableFile._lock

    @contextmanager
    def late(self: ResumableFile) -> Iterator[None]:
        with hold(self):
            work.out.write_text("theirs\tthere\n", encoding="utf-8")
            yield

    monkeypatch.setattr(ResumableFile, "_lock", late)
    with pytest.raises(RegardError, match=r"out\.tsv: is there already"):
        work.run()
    assert work.out.read_text(encoding="utf-8") == "theirs\tthere\n"
    assert not list(work.out.parent.glob("*.part*"))


def test_two_at_once_are_told_apart(back):
    result = back()
    result.run(should_stop=stop_after(1))
    lock = result.out.with_name("out.tsv.part.lock")
    with files.locked(lock), pytest.raises(RegardError, match="another process is making it"):
        result.run(resume=True)
    assert result.run(resume=True)[0] == "finished"


def test_a_line_that_cannot_be_read_is_named_and_once_mended_the_work_goes_on(back, text):
    whole_content = text.read_bytes()
    spoilt = whole_content.split(b"\n")
    spoilt[20] = b"\xff"
    text.write_bytes(b"\n".join(spoilt))
    with pytest.raises(DataError, match=r"mono\.es:21: byte 1"):
        back().run()
    text.write_bytes(whole_content)
    assert back().run(resume=True)[0] == "finished"
    back("straight.tsv").run()
    assert back().out.read_bytes() == back("straight.tsv").out.read_bytes()


def test_nothing_to_translate_leaves_nothing(back, text):
    text.write_text("\n \n", encoding="utf-8")
    with pytest.raises(DataError, match="no usable sentences in 2 lines: 2 empty"):
        back().run()
    text.write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="no usable sentences in 0 lines: it is empty"):
        back().run()
    assert [path.name for path in text.parent.glob("out*")] == []


def test_a_fault_before_the_first_sentences_leaves_nothing(back, text):
    text.write_bytes(b"\xff\n")
    with pytest.raises(DataError, match=r"mono\.es:1: byte 1"):
        back().run()
    assert [path.name for path in text.parent.glob("out*")] == []


def test_what_others_have_called_so_is_theirs(back):
    partial_file = back().out.with_name("out.tsv.part")
    partial_file.write_bytes(b"half a download")
    with pytest.raises(
        RegardError, match=r"out\.tsv\.part: exists already and is not an unfinished"
    ):
        back().run()
    assert partial_file.read_bytes() == b"half a download"
    partial_file.unlink()
    os.mkfifo(partial_file)
    with pytest.raises(RegardError, match=r"out\.tsv\.part: exists already"):
        back().run()
    assert [path.name for path in partial_file.parent.glob("out*")] == ["out.tsv.part"]


def test_an_unfinished_file_that_was_removed_or_changed_is_not_made_again(back):
    def spoil(change) -> RegardError:
        work, answers = back(), iter([False, True])
        partial_file = work.out.with_name("out.tsv.part")

        def meanwhile() -> bool:
            if not next(answers, False):
                return False
            change(partial_file)
            return False

        with pytest.raises(RegardError) as caught:
            work.run(should_stop=meanwhile)
        for path in partial_file.parent.glob("out.tsv*"):
            path.unlink()
        return caught.value

    assert "out.tsv.part: cannot be written: No such file" in str(spoil(Path.unlink))
    assert "out.tsv.part: another process has changed it" in str(spoil(lambda p: p.write_text("x")))


def test_a_pipe_is_read_whole(trained, text):
    os.mkfifo("pipe")
    command = ("data", "back-translate", "pipe", "--model", trained, "--out", "new.tsv")
    with subprocess.Popen(["sh", "-c", "cat mono.es > pipe"]):
        result = run(*command, "--sample", "--ratio", "1000")
    assert result.code == 0, result
    assert " of 30 lines" in result.lines[0]


def test_what_is_no_pair_is_counted():
    pair_filter = PairFilter(ratio=2.0)
    assert pair_filter.text(" a  b ") == "a b"
    assert pair_filter.text("a b") is None
    assert pair_filter.text("\t") is None
    assert not pair_filter.keeps("a b", "", 2, 0)
    assert not pair_filter.keeps("a b", "a b", 2, 2)
    assert not pair_filter.keeps("a b", "c", 21, 10)
    assert pair_filter.keeps("a b", "c", 20, 10)
    assert pair_filter.keeps("a b", "c", 9, 1)
    assert pair_filter.tally == Tally(0, 1, 1, 0, 1, 1, 1, 2)


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (["--ratio", "1"], "ratio 1: use a number above 1", 2),
        (["--longest", "0"], "longest 0", 2),
        (["--top-k", "5"], "add --sample", 2),
        (["--sample", "--top-p", "7"], "top_p 7.0", 2),
        (["--tag", "2fr"], "--tag 2fr: a tag is a small letter", 2),
        (["--to", "fr"], "translates into en", 2),
        (["--model", "nowhere"], "nowhere: no such model", 1),
        (["--out", "no/such/folder.tsv"], "there is no folder", 1),
    ],
)
def test_options_out_of_range_are_refused(options, message, code, text, trained):
    usual = [("--model", trained), ("--out", "new.tsv")]
    other_options = [each for pair in usual if pair[0] not in options for each in pair]
    check_refused(run("data", "back-translate", text, *other_options, *options), message, code=code)
    assert not Path("new.tsv.part").exists()


def test_a_text_that_is_not_there_is_told(trained):
    command = ("data", "back-translate", "missing.es", "--model", trained, "--out", "new.tsv")
    check_refused(run(*command), "missing.es: no such file")


@pytest.fixture(scope="module")
def reverse(trained, corpus, tmp_path_factory) -> Path:
    """A model of the other direction, English to Spanish."""
    folder = tmp_path_factory.mktemp("reverse") / "run"
    turned = TINY.replace('"es"', "X").replace('"en"', '"es"').replace("X", '"en"')
    for split in ("train", "valid"):
        turned = turned.replace(f'source = "{split}.es"', f'source = "{split}.en"')
        turned = turned.replace(f'target = "{split}.en"', f'target = "{split}.es"')
    config = folder.with_name("turned.toml")
    config.write_text(turned, encoding="utf-8")
    result = run("train", config, "--data", corpus, "--run", folder)
    assert result.code == 0, result
    return folder


@pytest.mark.parametrize("table", [False, True])
def test_a_training_translates_a_corpus_back_first(table, reverse, corpus, tmp_path):
    words = list(WORDS.values())
    lines = [f"The {one} sees the {two}." for one in words[:5] for two in words[:5]]
    (tmp_path / "mono.en").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    named = f"target = '{tmp_path}/mono.en'"
    if table:
        (tmp_path / "mono.tsv").write_text(
            "".join(f"x\t{line}\n" for line in lines), encoding="utf-8"
        )
        named = f"tsv = '{tmp_path}/mono.tsv'\ntarget_column = 1"
    sections = "[[data.train]]\nsource = 'train.es'\ntarget = 'train.en'\n[[data.train]]\n"
    sections += f"{named}\nback_translator = '{reverse}'\n[tokenizer]"
    config = TINY.replace('train.source = "train.es"\ntrain.target = "train.en"\n', "")
    (tmp_path / "both.toml").write_text(config.replace("[tokenizer]", sections), encoding="utf-8")
    command = ("train", "both.toml", "--data", corpus, "--run", "both")
    result = run(*command)
    assert result.code == 0, result
    assert f"back by {reverse}\n" in result.out
    pairs = rows(tmp_path / "both" / "back-translated-1.tsv")
    assert 0 < len(pairs) <= 25
    assert {target for _, target in pairs} <= set(lines)
    assert f"{200 + len(pairs)} training pairs with those that models made" in result.out
    card = (tmp_path / "both" / "card.md").read_text(encoding="utf-8")
    assert f"(translated back by {reverse})" in card
    # A new start takes the finished table; a table of another text is refused.
    for name in ("config.toml", "checksums.json"):
        (tmp_path / "both" / name).unlink()
    shutil.rmtree(tmp_path / "both" / "checkpoints")
    time_before = (tmp_path / "both" / "back-translated-1.tsv").stat().st_mtime_ns
    assert run(*command).code == 0
    assert (tmp_path / "both" / "back-translated-1.tsv").stat().st_mtime_ns == time_before
    (tmp_path / "both" / "config.toml").unlink()
    shutil.rmtree(tmp_path / "both" / "checkpoints")
    with (tmp_path / ("mono.tsv" if table else "mono.en")).open("a", encoding="utf-8") as file:
        file.write("x\tOne more.\n")
    check_refused(run(*command), "was made with other settings: the text changed", code=2)


def test_text_that_was_translated_back_is_not_needed_any_more(reverse, corpus, tmp_path):
    (tmp_path / "mono.en").write_text("The cat sees the dog.\nThe dog sees the cat.\n", "utf-8")
    sections = "[[data.train]]\nsource = 'train.es'\ntarget = 'train.en'\n[[data.train]]\n"
    sections += f"target = '{tmp_path}/mono.en'\nback_translator = '{reverse}'\n[tokenizer]"
    config = TINY.replace('train.source = "train.es"\ntrain.target = "train.en"\n', "")
    (tmp_path / "both.toml").write_text(config.replace("[tokenizer]", sections), encoding="utf-8")
    assert run("train", "both.toml", "--data", corpus, "--run", "both").code == 0
    with (tmp_path / "mono.en").open("a", encoding="utf-8") as file:
        file.write("The cat.\n")
    resume = ("train", "both", "--data", corpus, "--resume", "--set")
    assert run(*resume, "training.max_steps=13").code == 0
    (tmp_path / "mono.en").unlink()
    assert run(*resume, "training.max_steps=14").code == 0
    assert run("doubts", "--model", "both", "--data", corpus).code == 0


def test_a_model_of_the_wrong_direction_translates_nothing_back(trained, corpus, tmp_path):
    sections = "[[data.train]]\nsource = 'train.es'\ntarget = 'train.en'\n[[data.train]]\n"
    sections += f"target = 'train.en'\nback_translator = '{trained}'\n[tokenizer]"
    config = TINY.replace('train.source = "train.es"\ntrain.target = "train.en"\n', "")
    (tmp_path / "both.toml").write_text(config.replace("[tokenizer]", sections), encoding="utf-8")
    result = run("train", "both.toml", "--data", corpus, "--run", "both")
    message = f"train.en: back_translator: {trained} translates es to en, and en to es is needed"
    check_refused(result, message, code=2)
    assert not (tmp_path / "both").exists()


def test_a_column_of_a_table_is_translated_back(trained, text, tmp_path):
    lines = list(read_lines(text))
    table = "".join(f"x\t{line}\n" for line in lines if line.strip())
    (tmp_path / "table.tsv").write_text(table, encoding="utf-8")
    command = ("data", "back-translate", "--model", trained, "--ratio", "1000", "--out")
    assert run(*command, "one.tsv", text).code == 0
    assert run(*command, "two.tsv", "table.tsv", "--column", "1").code == 0
    assert rows(tmp_path / "two.tsv") == rows(tmp_path / "one.tsv")
    check_refused(run(*command, "three.tsv", "table.tsv", "--column", "5"), "table.tsv:1: expected")
    check_refused(run(*command, "three.tsv", text, "--column", "-1"), "--column -1", code=2)
