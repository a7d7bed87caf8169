"""Muon for the matrices of layers, AdamW for all other weights."""

from __future__ import annotations

import pytest
import torch
from tests.translation.tiny import MODELS, resumed, stop_at, trainer
from torch import nn

from regard.errors import ConfigurationError
from regard.translation import weights
from regard.translation.training import checkpoints
from regard.translation.training.optimiser import Muon, optimiser_of

MUON = "training.optimiser=muon"


@pytest.mark.parametrize("model", MODELS)
def test_muon_updates_the_matrices_of_layers_and_adamw_all_others(model, tmp_path):
    new_trainer = trainer(tmp_path, MUON, model=model)
    muon, adam = new_trainer.optimiser.parts
    of_muon = {id(weight) for weight in muon.param_groups[0]["params"]}
    names = {name for name, weight in new_trainer.model.named_parameters() if id(weight) in of_muon}
    assert names, "no matrix is Muon's"
    assert not [name for name in names if "embedding" in name or name.startswith("output")]
    other_names = {
        name for name, weight in new_trainer.model.named_parameters() if id(weight) not in of_muon
    }
    assert all(
        "embedding" in name or name.startswith("output") or weight.ndim != 2
        for name, weight in new_trainer.model.named_parameters()
        if name in other_names
    )
    assert len(of_muon) + len(adam.param_groups[0]["params"]) == len(
        list(new_trainer.model.parameters())
    )


@pytest.mark.parametrize("shape", [(16, 16), (32, 16), (16, 48)])
def test_an_update_goes_equally_far_in_all_directions(shape, tmp_path):
    """Beside the polar factor of the gradient by a decomposition in float64, scaled as arXiv 2502.16982 says."""
    settings = trainer(tmp_path, MUON, "training.learning_rate=0.5").settings
    torch.manual_seed(0)
    layer = nn.Linear(shape[1], shape[0])
    original_weight = layer.weight.detach().double()
    layer.weight.grad = torch.randn(shape)
    u, _, v = torch.linalg.svd(layer.weight.grad.double(), full_matrices=False)
    optimiser_of(settings, layer).step()
    update = original_weight - layer.weight.detach().double()
    expected = 0.5 * 0.2 * max(shape) ** 0.5 * (u @ v)
    # Five steps of Newton and Schulz bring the singular values near 1, not to it.
    assert nn.functional.cosine_similarity(update.flatten(), expected.flatten(), dim=0) > 0.97
    assert 0.6 < update.norm() / expected.norm() < 1.3


@pytest.mark.parametrize("half", [False, True])
def test_muon_agrees_with_that_of_torch(half):
    """Which rounds its products to bfloat16: three digits of an update."""
    torch.manual_seed(0)
    start = torch.randn(32, 48)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    settings = {"lr": 0.02, "weight_decay": 0.1}
    mine = Muon([ours], **settings)
    peer = torch.optim.Muon([theirs], **settings, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        ours.grad = theirs.grad = torch.randn(32, 48)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            mine.step()
        peer.step()
    assert mine.state[ours]["momentum_buffer"].dtype == ours.dtype == torch.float32
    difference = (ours - theirs).norm() / (ours - start).norm()
    assert difference < 0.02


def test_a_rate_that_is_set_reaches_both(tmp_path):
    new_trainer = trainer(tmp_path, MUON)
    for group in new_trainer.optimiser.param_groups:
        group["lr"] = 0.0
    own_copies = {name: each.clone() for name, each in weights.unique(new_trainer.model).items()}
    for parameter in new_trainer.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    new_trainer.optimiser.step()
    assert all(
        torch.equal(own_copies[name], each)
        for name, each in weights.unique(new_trainer.model).items()
    )


@pytest.mark.parametrize("model", MODELS)
def test_a_resumed_training_has_the_same_bits(model, tmp_path):
    whole_trainer = trainer(tmp_path, MUON, model=model, run="whole")
    assert whole_trainer.train() == "finished"
    stop_at(trainer(tmp_path, MUON, model=model, run="parts"), 3)
    resumed_trainer = resumed(tmp_path, MUON, model=model, run="parts")
    resumed_trainer.resume()
    assert resumed_trainer.train() == "finished"
    expected, actual = weights.unique(whole_trainer.model), weights.unique(resumed_trainer.model)
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    state = checkpoints._optimiser_state(resumed_trainer.model, resumed_trainer.optimiser)
    assert any(name.startswith("momentum_buffer.") for name in state)
    assert any(name.startswith("exp_avg.") for name in state)


def test_muon_needs_whole_matrices(tmp_path):
    with pytest.raises(ConfigurationError, match="Muon needs whole matrices"):
        trainer(tmp_path, MUON, "training.shard=true")
