"""The models of a server: those it was started with, and the checkpoints of their runs."""

from __future__ import annotations

import shutil

import pytest
import torch

from regard.errors import RegardError
from regard.explorer.server.models import KEPT, Models
from regard.explorer.translating import explore
from regard.serving.errors import Refused
from regard.translation.opening import find
from regard.translation.runs import Run
from regard.translation.training import checkpoints
from regard.translation.training.progress import Progress
from regard.translation.translator import Translator

TEXT = "¿Dónde está el gato?"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with two checkpoints that differ, and no published model."""
    folder = tmp_path_factory.mktemp("runs") / "own"
    shutil.copytree(find("es-en-recurrent"), folder)
    translator = Translator.open(folder)
    run, model = Run.open(folder), translator.model.float()
    (folder / "model.safetensors").unlink()
    (folder / "checksums.json").unlink()
    optimiser = torch.optim.Adam(model.parameters())
    for step in (100, 200):
        checkpoints.save(run, Progress(step=step), model, optimiser)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.5)
    return folder


def test_checkpoints_are_listed_and_opened_by_name(trained):
    models = Models({"own": trained, "es-en": "es-en"})
    assert models.names == ["own", "own@step-100", "own@step-200", "es-en"]
    assert models.trains
    first_model, last_model = (models.open(f"own@step-{step}").model for step in (100, 200))
    for parameter, two in zip(first_model.parameters(), last_model.parameters(), strict=True):
        torch.testing.assert_close(parameter / 2, two)
    assert models.exact("own") == "own@step-200"
    assert models.exact("es-en") == "es-en"
    assert not Models({"es-en": "es-en"}).trains


@pytest.mark.parametrize(
    "name", ["own@step-300", "own@step-1", "own@../step-100", "other@step-100", "@step-100", "own@"]
)
def test_no_other_name_is_opened(trained, name):
    with pytest.raises(Refused, match="there are own, own@step-100, own@step-200"):
        Models({"own": trained}).open(name)


def test_a_broken_checkpoint_is_refused(trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "own")
    file = folder / "checkpoints" / "step-200" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    models = Models({"own": folder})
    with pytest.raises(RegardError, match=r"step-200.*checksum"):
        models.open("own@step-200")
    models.open("own@step-100")


def test_few_checkpoints_are_kept_open(trained, monkeypatch):
    monkeypatch.setattr(Models, "_translator", lambda self, name: [name])
    models = Models({"own": trained})
    opened = [models.open(f"own@step-{step}") for step in range(KEPT + 5)]
    assert models.open.cache_info().currsize == KEPT + 1
    assert models.open(opened[-1][0]) is opened[-1]


def test_the_attention_of_the_recurrent_decoder_is_of_source_and_target():
    translator = Translator.open("es-en-recurrent")
    scene, translation = explore(translator, TEXT)
    (cross,) = scene.attentions
    assert cross.kind == "cross"
    sizes = len(translation.target_pieces), len(translation.source_pieces)
    assert cross.shape[1:] == sizes
    assert tuple(len(scene.sequences[at].tokens) for at in (cross.rows, cross.columns)) == sizes
