"""What another project's layers have not is refused by name when a model of ours is converted, and never left out."""

from __future__ import annotations

import pytest
from tests.interop.models import translator

import regard
from regard.attention.positions import Rotary
from regard.errors import ModelError
from regard.interop import ctranslate2
from regard.interop.huggingface import marian_export as writing
from regard.interop.keras import to_keras
from regard.interop.torch import to_torch

PARTS = {
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "norms": {"normalisation": "rms"},
    "gates": {"gated": True},
    "heads": {"head_width": 6},
}
each_setting = pytest.mark.parametrize(("setting", "changes"), PARTS.items(), ids=PARTS)


@each_setting
def test_exporters_name_it(tmp_path, setting, changes):
    new_translator = translator(tmp_path, norm="post", **changes)
    for export in (writing.export, ctranslate2.export)[: 2 if setting == "alibi" else 1]:
        with pytest.raises(ModelError, match=setting):
            export(new_translator, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


@each_setting
def test_torchs_layers_have_it_not(tmp_path, setting, changes):
    words = {"rotary": "rotates queries and keys", "norms": "RMSNorm", "gates": "gate"}
    with pytest.raises(ValueError, match=words.get(setting, setting)):
        to_torch(translator(tmp_path, **changes).model)


def test_attention_that_turns_is_no_attention_of_theirs():
    turning = regard.MultiHeadAttention(8, heads=2, rotary=Rotary(base=500.0))
    for convert in (to_torch, to_keras):
        with pytest.raises(ValueError, match=r"base=500\.0"):
            convert(turning)


def test_exporters_name_a_module_that_was_altered(tmp_path):
    new_translator = translator(tmp_path, norm="post")
    new_translator.model.encoder[0].feed_forward.register_forward_hook(lambda *_: None)
    for export in (writing.export, ctranslate2.export):
        with pytest.raises(ModelError, match=r"encoder\.0\.feed_forward has forward hooks"):
            export(new_translator, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
