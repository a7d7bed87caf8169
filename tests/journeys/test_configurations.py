"""A configuration is right or refused, by key, value and what is allowed, before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.journeys.commands import check_refused, run

from regard.cli import shipped
from regard.translation.settings import toml


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("learning_rate", "lerning_rate", ["training.lerning_rate", "training.learning_rate"]),
        ("[training]", "[trainning]", ["trainning", "did you mean training"]),
        ("width = 16", "width = 16\nwidth = 16", ["not valid TOML", "line"]),
        ("width = 16", "width = ", ["not valid TOML", "line"]),
        ("heads = 2", "heads = 3", ["width 16", "heads 3"]),
        ("seed = 3", "version = 2\nseed = 3", ["version"]),
    ],
)
def test_a_slip_of_the_hand_is_named(old, new, named, corpus_copy, tmp_path):
    text = (corpus_copy / "tiny.toml").read_text(encoding="utf-8")
    assert old in text
    (corpus_copy / "tiny.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    check_refused(
        run("train", corpus_copy / "tiny.toml", "--run", "run"),
        corpus_copy / "tiny.toml",
        *named,
        code=2,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ('training.learning_rate="1e-3x"', "learning_rate"),
        ("training.learning_rate=-1", "greater than 0"),
        ("training.learning_rate=nan", "learning_rate"),
        ("training.learning_rate=1e8", "less than or equal to 10"),
        ("model.encoder_layers=0", "greater than or equal to 1"),
        ("model.width=15", "width 15"),
        ("model.dropout=1.5", "less than 1"),
        ("search.beam=0", "search.beam = 0"),
        ("training.batch_tokens=1000000000000", "training.batch_tokens"),
        ("model.width=true", "model.width"),
        ("seed=1.5", "seed"),
        ("model.kind=abacus", "model.kind"),
        ("nothing", "section.key=value"),
        ("seed.deeper=1", "seed is not a table"),
        ('data.train.tsv="x.tsv"', "either"),
        ('model.positions="learned"\x00', "model.positions"),
    ],
)
def test_a_value_out_of_range_is_refused_before_anything_is_read(
    change, named, corpus_copy, tmp_path
):
    for text in corpus_copy.glob("*.e?"):
        text.unlink()  # whoever looked for the corpus first would say that it is not there
    result = run("train", corpus_copy / "tiny.toml", "--run", "run", "--set", change)
    check_refused(result, named, code=2, seconds=5)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_parts_of_a_model_that_do_not_fit_are_refused(corpus, tmp_path):
    change = 'model={kind="recurrent",score="dot",decoder_width=24}'
    result = run("train", corpus / "tiny.toml", "--run", "run", "--set", change)
    check_refused(result, "compares vectors of one width", code=2, seconds=5)
    assert result.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_number_may_be_written_with_an_exponent():
    text = shipped.configurations()["reverse"].read_text(encoding="utf-8")
    assert toml.parse(text, changes=("training.learning_rate=1e-3",)).training == (
        toml.parse(text, changes=("training.learning_rate=0.001",)).training
    )


@pytest.mark.parametrize(
    "content",
    [
        b'!!python/object/apply:os.system ["touch PWNED"]',
        b"a: &a [x,x]\nb: &b [*a,*a]\n",
        b"[" * 100_000,
        b"a = " + b"[" * 100_000,
        b"a" + b".a" * 100_000 + b" = 1\n",
        b"\xff\xfe",
        b"",
        b'[data]\ntrain.source = "../../../../etc/passwd"\n',
    ],
)
def test_a_malicious_file_does_nothing(content, tmp_path):
    (tmp_path / "bad.toml").write_bytes(content)
    check_refused(run("train", "bad.toml"), "bad.toml", code=2, megabytes=280)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.toml"]


def test_a_path_that_leads_elsewhere_is_a_file_like_any_other(corpus, tmp_path):
    odd = 'data.train.source="../../../../../../nonexistent/passwd"'
    result = run("train", corpus / "tiny.toml", "--run", "run", "--set", odd)
    check_refused(result, "nonexistent/passwd", "no such file")
    assert list(tmp_path.iterdir()) == []


def test_a_huge_file_is_not_read(tmp_path):
    with (tmp_path / "huge.toml").open("wb") as file:
        file.truncate(100 * 2**20)
    check_refused(run("train", "huge.toml"), "huge.toml", "larger than", code=2, megabytes=50)


def test_no_such_configuration_lists_those_there_are(tmp_path):
    check_refused(run("train", "revers"), "revers", "reverse", "tatoeba-en-fr", code=2)
    check_refused(run("train", tmp_path), tmp_path, code=2)


def test_a_folder_does_not_hide_a_shipped_configuration(tmp_path):
    (tmp_path / "reverse").mkdir()
    (tmp_path / "reverse" / "config.toml").write_text("", encoding="utf-8")
    small = ["training.max_steps=1", "data.generated.train=50", "data.generated.valid=10"]
    result = run("train", "reverse", *[part for each in small for part in ("--set", each)])
    assert result.code == 0, result
    assert (tmp_path / "runs" / "reverse" / "model.safetensors").exists()


def test_a_configuration_must_be_there():
    check_refused(run("train", "a\0b"), "no such configuration", code=2)


@pytest.mark.parametrize("name", ["q\"u o'te", "new\nline", "~", "$(touch PWNED)", "ünï"])
def test_odd_but_legal_paths_work(name, corpus, tmp_path):
    folder = tmp_path / name / "run"
    result = run("train", corpus / "tiny.toml", "--run", folder, "--set", "training.max_steps=1")
    assert result.code == 0, result
    assert run("translate", "--model", folder, "El gato").code == 0
    assert not Path("PWNED").exists()


@pytest.mark.parametrize("name", sorted(shipped.configurations()))
def test_each_shipped_configuration_is_valid_and_says_what_it_is(name):
    path = shipped.configurations()[name]
    configuration = toml.read(path)
    assert toml.parse(toml.dump(configuration)) == configuration
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_the_shipped_configurations_find_the_corpora(data_folder):
    for path in shipped.configurations().values():
        data = toml.read(path).data
        for files in (*data.training, *data.validation):
            assert all((data_folder / name).is_file() for name in files.names)
