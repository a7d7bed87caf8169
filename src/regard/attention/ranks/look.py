"""A look at weights over keys that are shared out among ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.looks import Look
from regard.attention.looks.windows import Window, positions
from regard.attention.ranks.exchange import gather
from regard.attention.ranks.merge import Blend, merge, row_of
from regard.attention.ranks.reading import Sharded, shard
from regard.attention.shapes import Shape

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def look_over_ranks(group: ProcessGroup, query: Tensor, key: Tensor, **options: Any) -> RanksLook:
    """The look at the weights over the keys of all ranks; arguments are those of `look`."""
    return RanksLook(group, shard(group, query, key, **options))


class RanksLook:
    """Statistics of the weights of each query over the keys of all ranks: `regard.look` with a group.

    Every rank calls the same methods in the same order; each method is one message to the others.
    `entropy` and `log_normaliser` can be trained with, the others have no gradient.

    Attributes:
        keys: the positions of this rank's keys among all.
    """

    def __init__(self, group: ProcessGroup, sharded: Sharded) -> None:
        self._group, self._sharded = group, sharded
        self._total, self.keys = sharded.keys.total, sharded.keys.columns
        self._local = Look(sharded.request)
        self._log_normaliser: Tensor | None = None

    @property
    def shape(self) -> Shape:
        """(*batch, queries, keys), the keys of all ranks."""
        return (*self._local.shape[:-1], self._total)

    def __repr__(self) -> str:
        return f"RanksLook(shape={self.shape}, keys={self.keys})"

    def log_normaliser(self) -> Float[Tensor, "*batch queries"]:
        """ln sum_j e^(s_ij) over the keys of all ranks, as `Look.log_normaliser`."""
        return self._merged()[1]

    def entropy(self) -> Float[Tensor, "*batch queries"]:
        """-sum_j p_ij ln p_ij over the keys of all ranks.

        H = L - E[s], and E[s] is the blend of what each rank has for it, L_r - H_r.
        """
        mean, log_normaliser = self._merged()
        entropy = torch.where(log_normaliser == -torch.inf, 0.0, log_normaliser - mean.squeeze(-1))
        return entropy.clamp(min=0.0)

    def perplexity(self) -> Float[Tensor, "*batch queries"]:
        """exp(entropy): among how many keys a query seems to choose; 1 with nothing to read."""
        return self.entropy().exp()

    @torch.no_grad()
    def top(
        self, count: int
    ) -> tuple[Float[Tensor, "*batch queries count"], Int[Tensor, "*batch queries count"]]:
        """The keys that every query reads most among those of all ranks, on every rank.

        Args:
            count: how many keys a query.

        Returns:
            Weights and positions of keys among all; 0 and -1 where a query may read no more keys. Of
            equal weights, also of those that round to 0, the lower position counts first.
        """
        shape = (*self.shape[:-1], count)
        share = self._share()

        def numbers() -> np.ndarray:
            weights, places = self._local.top(count)
            weights = torch.where(places < 0, -1.0, weights.double() * share.double().unsqueeze(-1))
            places = torch.where(places < 0, -1, places + self.keys.start)
            return row_of([weights, places])

        size = 2 * torch.Size(shape).numel()
        messages = torch.from_numpy(gather(self._group, numbers, size))
        weights, places = torch.cat([message.view(2, *shape) for message in messages], -1)
        order = weights.sort(dim=-1, descending=True, stable=True).indices[..., :count]
        dtype = share.dtype
        return (
            weights.gather(-1, order).clamp(min=0.0).to(self._local.device, dtype),
            places.gather(-1, order).long().to(self._local.device),
        )

    @torch.no_grad()
    def received(self) -> Float[Tensor, "*batch keys"]:
        """How much every key of this rank was read: sum_i p_ij over all queries i."""
        return self._local.received(weights=self._share())

    @torch.no_grad()
    def weights(
        self, rows: Window = None, columns: Window = None
    ) -> Float[Tensor, "*batch rows columns"]:
        """The weights of this rank's keys, or any window of them.

        Args:
            rows: positions of queries, as for `Look.weights`.
            columns: positions of keys, counted from this rank's first one.
        """
        share = self._share()
        if rows is not None:
            share = share.index_select(-1, positions(rows, self.shape[-2], share.device))
        return self._local.weights(rows, columns) * share.unsqueeze(-1)

    def _share(self) -> Tensor:
        """p_r: the weight of all keys of this rank together, for each query; kept from then on."""
        if self._log_normaliser is None:
            self._log_normaliser = self.log_normaliser().detach()
        ours = self._local.log_normaliser()
        return torch.where(ours == -torch.inf, 0.0, (ours - self._log_normaliser).exp())

    def _merged(self) -> Blend:
        def compute(common: list[Tensor | None], apart: list[Tensor | None]) -> Blend:
            look = Look(self._sharded.rebuilt(common, apart))
            log_normaliser = look.log_normaliser()
            nothing = log_normaliser == -torch.inf
            mean = torch.where(nothing, 0.0, log_normaliser - look.entropy())
            return Blend(mean.unsqueeze(-1), log_normaliser)

        return merge(self._group, compute, (*self.shape[:-1], 1), self._sharded.inputs)
