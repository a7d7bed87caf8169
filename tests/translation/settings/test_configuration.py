"""Configurations: each mistake is told with its key, its value and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard.translation
from regard.errors import ConfigurationError
from regard.translation.settings.configuration import Configuration
from regard.translation.settings.toml import differences, dump, parse, read

LEAST = """
[data]
generated = {task = "dates"}
[model]
kind = "transformer"
"""
CONFIGS = Path(regard.translation.__file__).parent / "configs"


def fault(text: str, *changes: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        parse(text, "my.toml", changes)
    assert len(str(raised.value)) < 4096
    return str(raised.value)


def test_the_least_configuration_has_defaults():
    configuration = parse(LEAST)
    assert configuration.model.width == 256
    assert configuration.training.batch_tokens == 2048


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_what_is_shipped_is_valid(path):
    assert parse(dump(read(path))) == read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[training]\nlerning_rate = 1", "unknown key training.lerning_rate: did you mean training.learning_rate?"),
        ("[trainig]\nclip = 1", "unknown key trainig: did you mean training?"),
        ("[transformer]\nwidth = 1", "unknown key transformer"),
        ("[recurrent]\nwidth = 1", "unknown key recurrent"),
        ("[tokenizer]\nvocab = 300", "unknown key tokenizer.vocab"),
        ("[search]\nbeams = 4", "did you mean search.beam?"),
        ("[training.guide]\nheads = 4", "did you mean training.guide.head?"),
        ("[training]\nzzz = 1", "unknown key training.zzz: known are accumulate, average"),
        ('[search]\n"\\u001b[31m\\n" = 1', r"unknown key 'search.\x1b[31m\n'"),
        (f"[search]\n{'k' * 5000} = 1", "unknown key search.kkk"),
    ],
)  # fmt: skip
def test_a_key_that_does_not_exist(text, message):
    assert message in fault(LEAST + text)


def test_a_key_of_a_model_is_sought_among_the_models_keys():
    assert "unknown key model.widht: did you mean model.width?" in fault(LEAST + "widht = 3")


@pytest.mark.parametrize(
    ("kind", "key", "other_kind"),
    [
        ("recurrent", "gated = true", "transformer"),
        ("transformer", "bridge = 1", "recurrent"),
    ],
)
def test_a_key_of_the_other_kind_of_model_is_told_as_one(kind, key, other_kind):
    message = (
        f'unknown key model.{key.split()[0]}: model.kind is "{kind}", it is for "{other_kind}"'
    )
    assert message in fault(LEAST.replace('"transformer"', f'"{kind}"') + key)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("training.learning_rate", '"1e-3"', "= '1e-3': input should be a valid number"),
        ("training.learning_rate", '"1e-3x"', "= '1e-3x': input should be a valid number"),
        ("training.learning_rate", "-1", "= -1: input should be greater than 0"),
        ("training.learning_rate", "nan", "= nan: input should be a finite number"),
        ("training.learning_rate", "inf", "= inf: input should be"),
        ("training.learning_rate", "true", "= True: input should be a valid number"),
        ("training.batch_tokens", "1000000000000", "input should be less than or equal to 10000000"),
        ("training.batch_tokens", "1.0", "= 1.0: input should be a valid integer"),
        ("training.clip", "nan", "= nan: input should be a finite number"),
        ("training.betas", "[0.9]", "training.betas"),
        ("training.betas", '["0.9", 0.98]', "training.betas.0 = '0.9'"),
        ("training.betas", "[0.9, 1.0]", "training.betas.1 = 1.0: input should be less than 1"),
        ("training.optimiser", '"sgd"', "training.optimiser = 'sgd': input should be 'adam', 'adamw' or 'muon'"),
        ("training.average", "1", "training.average = 1: input should be a valid boolean"),
        ("model.encoder_layers", "0", "= 0: input should be greater than or equal to 1"),
        ("model.width", "15", "width 15 must be a multiple of heads 4"),
        ("model.head_width", "0", "model.head_width = 0: input should be greater than or equal to 1"),
        ("model", '{kind = "transformer", positions = "rotary", head_width = 3}', "head_width 3 must be even"),
        ("model", '{kind = "transformer", positions = "relative", relative_buckets = 6}', "must be a multiple of 4"),
        ("model", '{kind = "transformer", positions = "relative", relative_furthest = 16}', "must be above half of"),
        ("model", '{kind = "recurrent", bridge = "copy", decoder_width = 3}', "bridge 'copy' needs as many"),
        ("model.dropout", "1.5", "model.dropout = 1.5: input should be less than 1"),
        ("model.dropout", "nan", "model.dropout = nan: input should be"),
        ("model.kind", '"lstm"', 'model.kind must be "transformer" or "recurrent"'),
        ("model", "3", "model = 3"),
        ("data.words", "[7, 3]", "words = [7, 3]: give the fewest first"),
        ("search.beam", "0", "search.beam = 0: input should be greater than or equal to 1"),
        ("tokenizer.sampling", "nan", "tokenizer.sampling = nan"),
        ("tokenizer.joint", "false", '"three_way" needs tokenizer.joint = true'),
        ("seed", "-1", "seed = -1: input should be greater than or equal to 0"),
        ("seed", "9223372036854775808", "seed"),
        ("seed", "9" * 5000, "seed = '999"),
        ("version", "2", "version = 2: input should be 1"),
        ("data.train.tsv", '"a"', "give either `data.generated`, or"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_told_with_its_range(key, value, message):
    assert message in fault(LEAST, f"{key}={value}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "missing key data"),
        ("[data]\n[model]\nkind = 'transformer'", "give `data.train` and `data.valid`, or `data.generated`"),
        ("[data]\ngenerated = {task = 'dates'}\n[model]", "model.kind must be"),
        (LEAST + "kind = 'transformer'", "not valid TOML"),
        (LEAST + "[model]\nkind = 'transformer'", "not valid TOML"),
        ("a = " + "[" * 100_000, "not valid TOML: maximum recursion depth"),
        ("seed = " + "9" * 5000, "not valid TOML: Exceeds the limit"),
        (".".join("a" * 100_000) + " = 1", "my.toml:1: more than 100 dots in one line"),
        ("!!python/object/apply:os.system ['touch PWNED']", "not valid TOML"),
        ("[data.train]\ntsv = 'a'\nsource = 'b'\ntarget = 'c'", "give either `tsv`, or `source` and `target`"),
        ("[data.train]\nsource = 'b'", "give either `tsv`, or `source` and `target`"),
        (LEAST + "[tokenizer]\nkind = 'bpe'\nsampling = 0.1", 'sampling needs kind = "unigram"'),
    ],
    ids=range(12),
)  # fmt: skip
def test_a_file_that_cannot_be_used(text, message):
    assert message in fault(text)


def test_numbers_are_numbers_however_they_are_written():
    text = LEAST + "[training]\nlearning_rate = 1\nclip = 5e-1"
    assert parse(text).training.learning_rate == 1.0
    assert parse(text).training.clip == 0.5


def test_changes_on_the_command_line():
    changed_document = parse(
        LEAST,
        changes=("training.optimiser=adamw", "training.learning_rate = 1e-4", "search.beam=2"),
    )
    assert changed_document.training.optimiser == "adamw"
    assert changed_document.training.learning_rate == 1e-4
    assert changed_document.search.beam == 2
    assert "did you mean search.beam" in fault(LEAST, "search.beams=2")
    for nonsense in ("search.beam", "=3", "search..beam=3", ""):
        assert "expected section.key=value" in fault(LEAST, nonsense)
    assert "seed is not a table" in fault("seed = 1\n" + LEAST, "seed.x=3")
    assert "is not UTF-8" in fault(LEAST, "data.attribution=a\udcff")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"seed = 1 \xff", "byte 10 is not UTF-8"),
        (b"#" * 2_000_000, "larger than"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "my config.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        read(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read(tmp_path / "missing.toml")


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xef\xbb\xbf" + LEAST.encode())
    assert read(path) == parse(LEAST)


rates = st.floats(0, 1, exclude_max=True)
words = st.text(st.characters(exclude_categories=["Cs"]))
files = st.one_of(
    words.map(lambda tsv: {"tsv": tsv}),
    st.tuples(words, words).map(lambda pair: {"source": pair[0], "target": pair[1]}),
)
document: dict[str, Any] = {
    "seed": st.integers(0, 2**63 - 1),
    "data": st.fixed_dictionaries(
        {"train": files, "valid": files, "attribution": words, "longest": st.integers(1, 500)}
    ),
    "model": st.fixed_dictionaries({"kind": st.just("transformer"), "dropout": rates})
    | st.fixed_dictionaries({"kind": st.just("recurrent"), "cell": st.sampled_from(["gru", "lstm"])}),
    "training": st.fixed_dictionaries(
        {"learning_rate": st.floats(0, 10, exclude_min=True), "betas": st.tuples(rates, rates)}
    ),
}  # fmt: skip


@settings(max_examples=100)
@given(st.fixed_dictionaries(document))
def test_what_is_written_is_read_back(table):
    configuration = Configuration.model_validate(table)
    assert parse(dump(configuration)) == configuration


def test_passes_alone_are_a_budget_and_no_budget_is_refused():
    assert parse(LEAST).training.max_steps == 10_000
    alone = parse(LEAST, changes=("training.max_epochs=5",))
    assert (alone.training.max_steps, alone.training.max_epochs) == (0, 5)
    assert parse(dump(alone)) == alone
    both_document = parse(LEAST, changes=("training.max_epochs=5", "training.max_steps=7"))
    assert (both_document.training.max_steps, both_document.training.max_epochs) == (7, 5)
    with pytest.raises(ConfigurationError, match="give max_steps, max_epochs or both"):
        parse(LEAST, changes=("training.max_steps=0",))


def test_a_resumed_training_may_change_budgets_only():
    old = parse(LEAST)
    budget = parse(LEAST, changes=("training.max_steps=7", "training.log_every=1"))
    assert differences(old, budget, free=False) == []
    assert differences(old, budget, free=True) == [
        ("training.log_every", old.training.log_every, 1),
        ("training.max_steps", old.training.max_steps, 7),
    ]
    other_document = parse(LEAST, changes=("model.width=64", "seed=3"))
    assert differences(old, other_document, free=True) == []
    assert differences(old, other_document, free=False) == [
        ("model.width", 256, 64),
        ("seed", 1, 3),
    ]
    recurrent = parse(LEAST.replace("transformer", "recurrent"))
    kinds = differences(old, recurrent, free=False)
    assert ("model.kind", "transformer", "recurrent") in kinds


SEVERAL = """
[data]
source_language = "en"
target_language = "fr"
valid.tsv = "valid.tsv"
[[data.train]]
tsv = "real.tsv"
weight = 2
[[data.train]]
tsv = "synthetic.tsv"
tag = "bt"
source_column = 3
[[data.train]]
source = "a.en"
target = "a.es"
target_language = "es"
[model]
kind = "transformer"
"""


def test_several_corpora_have_their_own_columns_weights_and_tags():
    data = parse(SEVERAL).data
    assert parse(dump(parse(SEVERAL))).data == data
    assert [files.weight for files in data.training] == [2, 1, 1]
    assert [str(files) for files in data.validation] == ["valid.tsv"]
    assert data.target_languages == ("fr", "es")
    assert data.source_languages == ("en",)
    assert data.tags == ("2fr", "2es", "bt")
    assert [data.tags_of(files) for files in data.training] == [("2fr",), ("2fr", "bt"), ("2es",)]
    assert data.tags_to("es") == ("2es",)


def test_one_target_language_needs_no_tag():
    data = parse(SEVERAL, changes=("data.train.2.target_language=fr",)).data
    assert data.tags == ("bt",)
    assert data.tags_to("fr") == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.train.1.tag=s", "data.train[1].tag = 's': a tag is a small letter"),
        ("data.train.1.tag=2fr", "data.train[1].tag = '2fr': a tag is a small letter"),
        ("data.train.0.wieght=2", "unknown key data.train[0].wieght: did you mean data.train[0].weight?"),
        ("data.train.0.weight=0", "data.train[0].weight = 0: input should be greater than 0"),
        ("data.train.0.weight=nan", "data.train[0].weight"),
        ("data.train=[]", "give `data.train` and `data.valid`, or `data.generated`"),
        ("data.train.3.tag=x", "there are 3 tables: say which, from 0, in place of 3"),
        ("data.train.tsv=x", "there are 3 tables: say which, from 0, in place of tsv"),
        ("data.train.0=x", "data.train[0] = 'x'"),
        ("data.train.0.tsv.x=1", "tsv is not a table"),
        ("data.valid.weight=2", "valid valid.tsv: weight is for data.train"),
        ("data.valid.back_translator=x", "valid valid.tsv: back_translator is for data.train"),
        ("data.train.2.back_translator=x", "with `back_translator` give either `tsv` or `target`"),
        ("data.valid.synthetic=true", "valid valid.tsv: synthetic is for data.train"),
        ("data.distillation.teacher=x", "a teacher translates one language into one, data.train has several"),
        ("data.valid.tag=x", "valid valid.tsv: tag 'x' is no tag of data.train"),
        ("data.valid.target_language=de", "target_language 'de' is none of data.train's: fr, es"),
        ("data.train.2.target_language=e s", "target_language 'e s': of several, each is named by"),
        ("data.train.2.target_column=1", "target_column is for `tsv`: other files have no columns"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_one_of_several_corpora_is_told_with_its_number(change, message):
    assert message in fault(SEVERAL, change)


def test_columns_are_of_tables():
    files = "[data]\n{}\ntrain = {{source = 'a', target = 'b'}}\nvalid = {{source = 'a', target = 'b'}}\n"
    text = files + "[model]\nkind = 'transformer'\n"
    message = "source_column and target_column are for `tsv`: no corpus is a table"
    assert message in fault(text.format("source_column = 1\ntarget_column = 0"))
    assert parse(dump(parse(text.format("")))).data.source_column == 0


def test_the_only_table_of_a_list_has_one_error():
    text = '[data]\nvalid.tsv = "b"\n[[data.train]]\ntsv = "a"\ntag = "BT"\n[model]\nkind = "transformer"\n'
    printed_fault = fault(text)
    assert "data.train[0].tag = 'BT': a tag is a small letter" in printed_fault
    assert "\n" not in printed_fault


def test_a_model_learns_from_some_text_that_people_wrote():
    texts = [f"data.train.{number}.synthetic=true" for number in range(3)]
    assert "every corpus is synthetic" in fault(SEVERAL, *texts)


def test_a_teacher_needs_a_text():
    assert "data.distillation is for `data.train`" in fault(LEAST, "data.distillation.teacher=x")
