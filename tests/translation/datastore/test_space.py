"""States as codes: near ones stay near, and what is written is read again."""

from __future__ import annotations

import pytest
import torch

from regard.tensor_files import TensorFileError
from regard.translation.datastore.space import Space, assigned
from regard.translation.datastore.table import Spans, Table


def states(count: int = 400) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 20, generator=generator) * torch.linspace(3, 0.5, 20) + 1


def test_distances_of_codes_are_those_of_states():
    points = states()
    space = Space.fit(points, 4)
    codes = space.codes(space.project(points)).float()
    exact = torch.cdist(points, points).square()
    coded = torch.cdist(codes, codes).square() * space.scale**2
    assert (coded - exact).abs().max() < 0.02 * exact.max()
    assert space.variance == pytest.approx(
        (points - points.mean(0)).square().sum(1).mean().item(), rel=1e-4
    )


def test_the_first_components_are_kept(monkeypatch):
    monkeypatch.setattr("regard.translation.datastore.space.COMPONENTS", 5)
    points = states()
    space = Space.fit(points, 1)
    plain = torch.linalg.svdvals((points - points.mean(0)).double())[:5].square().sum()
    kept = (space.project(points) * space.scale).double().square().sum()
    assert kept == pytest.approx(plain.item(), rel=1e-4)


def test_a_list_is_that_of_the_nearest_centroid():
    space = Space.fit(states(), 7)
    points = space.project(states())
    nearest = torch.cdist(points, space.centroids).argmin(1)
    assert torch.equal(space.lists(points), nearest)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_nearest_lists_are_those_of_the_nearest_centroids(compiled):
    space = Space.fit(states(), 7)
    points = space.project(states())
    order = torch.cdist(points, space.centroids).argsort(1)
    for count in (1, 3, 9):
        spans = Spans.nearest(Table.empty(), space.closeness(points), count, compiled=compiled)
        assert torch.equal(spans.numbers.sort(1).values, order[:, :count].sort(1).values)


def test_lists_are_not_worse_than_the_drawn_centroids():
    points = Space.fit(states(), 1).project(states())
    space = Space.fit(states(), 8)
    draw = torch.randperm(len(points), generator=torch.Generator().manual_seed(1))[:8]

    def spread(centroids: torch.Tensor) -> float:
        return float((points - centroids[assigned(points, centroids)]).square().sum())

    assert spread(space.centroids) < 0.9 * spread(points[draw])


def test_what_is_written_is_read_and_damage_is_told(tmp_path):
    space = Space.fit(states(), 3)
    space.write(tmp_path / "space")
    for name, tensor in vars(Space.read(tmp_path / "space")).items():
        assert torch.equal(tensor, getattr(space, name))
    (tmp_path / "space").write_bytes((tmp_path / "space").read_bytes()[:50])
    with pytest.raises(TensorFileError):
        Space.read(tmp_path / "space")
