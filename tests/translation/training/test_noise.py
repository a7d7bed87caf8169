"""Noise of training pairs: each option alone, its share, and passes that come again after a stop."""

from __future__ import annotations

from random import Random

import pytest
from tests.translation.tiny import WORDS, configuration, resumed, stop_at, trainer

from regard.errors import ConfigurationError
from regard.translation.settings.data import NoiseSettings
from regard.translation.text.corpora import Pair
from regard.translation.training.noise import Noise

NAMES = "Tom Beatrice Honolulu Miguel".split()
PLACES = "árboles montañas canción jardín".split()
PAIRS = [
    Pair(f"¿Está {place} cerca de {name} {n}?", f"Is {word} near {name} {n}?")
    for n, (place, name, word) in enumerate(zip(PLACES, NAMES, WORDS, strict=False))
] * 100
OPTIONS = list(NoiseSettings.model_fields)
ALL = [f"data.noise.{name}=0.3" for name in OPTIONS]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_changes_its_part_of_the_pairs(option):
    case = Noise(NoiseSettings(**{option: 0.3}), PAIRS).draw(Random(1))
    assert 90 < len(case) < 150
    rows = [(PAIRS[row], new) for row, new in case.items()]
    if option in ("names", "numbers"):
        copied = [(new.source.split(" de ")[1], new.target.split(" near ")[1]) for _, new in rows]
        assert all(source.startswith(target[:-1].split()[0]) for source, target in copied)
        assert len(set(copied)) > 20
    elif option == "joined":
        assert all(new.source.startswith(f"{old.source} ¿") for old, new in rows)
        counts = {new.target.count("?") for _, new in rows}
        assert counts == {new.source.count("?") for _, new in rows} == {2, 3, 4}
    else:
        assert all(new.source != old.source and new.target == old.target for old, new in rows)


def test_without_names_and_numbers_in_the_text_nothing_is_exchanged():
    pairs = [Pair("el gato", "the cat")] * 20
    assert Noise(NoiseSettings(names=0.9, numbers=0.9), pairs).draw(Random(1)) == {}


def test_only_pairs_of_the_same_tags_are_joined():
    pairs = [Pair("a", "b", ("2en",)), Pair("c", "d", ("2fr",))] * 50
    for row, new in Noise(NoiseSettings(joined=0.9), pairs).draw(Random(1)).items():
        assert new.tags == pairs[row].tags
        assert set(new.source.split()) == {pairs[row].source}


def test_what_is_to_be_copied_gets_no_typing_error():
    noise = Noise(NoiseSettings(names=0.5, typos=0.9, accents=0.9), PAIRS)
    for new in noise.draw(Random(1)).values():
        name = new.target.split(" near ")[1].rsplit(" ", 1)[0]
        if name not in NAMES:
            assert f" {name} " in new.source


def test_each_pass_has_other_noise_and_a_resumed_one_the_same(tmp_path):
    new_trainer = trainer(tmp_path, *ALL)
    other_trainer = trainer(tmp_path, *ALL, run="other")

    def sentences(epochs, epoch: int) -> list[list[list[int]]]:
        batches = [epochs.part(epoch, n).batch for n in range(epochs.batches(epoch))]
        return [part.source.tolist() for part in batches] + [
            part.target_out.tolist() for part in batches
        ]

    first_sentences = [sentences(new_trainer.epochs, epoch) for epoch in (0, 1, 2)]
    assert first_sentences[1] == sentences(other_trainer.epochs, 1)  # without the passes before it
    assert first_sentences[0] != first_sentences[1] != first_sentences[2]


def test_a_stopped_training_with_noise_ends_with_the_same_weights(tmp_path):
    changes = [*ALL, "training.max_steps=30", "training.batch_tokens=200"]
    straight = trainer(tmp_path, *changes, run="straight")
    straight.train()
    stop_at(trainer(tmp_path, *changes), 17)
    second_trainer = resumed(tmp_path, *changes)
    assert second_trainer.train() == "finished"
    for name, tensor in straight.model.state_dict().items():
        assert tensor.equal(second_trainer.model.state_dict()[name]), name


def test_changed_pairs_are_marked_and_long_ones_are_not_taken(tmp_path):
    epochs = trainer(tmp_path, "data.noise.joined=0.9", "data.longest=14").epochs
    batches = [epochs.part(0, number).batch for number in range(epochs.batches(0))]
    rows = [row for batch in batches for row in batch.rows.tolist()]
    assert rows.count(-1) > 3
    assert len(set(rows) - {-1}) == len(rows) - rows.count(-1) > 3
    assert max(int(batch.source_lengths.max()) for batch in batches) <= 15


def test_noise_is_for_files(tmp_path):
    text = "data.generated={task='reverse'}"
    with pytest.raises(ConfigurationError, match=r"data\.noise changes text"):
        configuration(tmp_path, text, "data.train=[]", "data.valid=[]", "data.noise.lower=0.1")
