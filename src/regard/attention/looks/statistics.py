"""The answers of a look, from any source of weights: each is a fold over blocks of rows."""

from collections.abc import Callable
from math import prod
from operator import methodcaller

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.looks.blocks import Block, entropy_of, log_normaliser_of
from regard.attention.looks.caption import Caption
from regard.attention.looks.weights import Progress, Weights
from regard.attention.looks.windows import Bins, Map, Reduce, Window, positions
from regard.attention.shapes import ShapeError

BLOCK = 1 << 22  # scores held at a time where some columns are wanted with their gradient


class Statistics(Weights):
    """The public answers of a look."""

    caption = Caption()

    def weights(
        self, rows: Window = None, columns: Window = None, progress: Progress | None = None
    ) -> Float[Tensor, "*batch rows columns"]:
        """The weights, or any window of them.

        Args:
            rows: positions of queries: a range, a slice, a tensor of indices; None for all.
            columns: positions of keys, likewise. A row is normalised over every key all the same.
        """
        batch, queries, keys = self.shape[:-2], *self.shape[-2:]
        if rows is None and columns is None:
            weights = self._finite()._rows(None).expand(*batch, queries, keys)
            if progress:
                progress(prod(batch) * queries, prod(batch) * queries)
            return weights
        down = positions(rows, queries, self.device)
        if not self._follows():
            across = None if columns is None else positions(columns, keys, self.device)
            return self._window(down, across, progress)
        look, across = self._finite(), positions(columns, keys, self.device)
        windows = [
            look._spread(block).index_select(-1, across)
            for block in down.split(max(1, BLOCK // max(1, keys)))
        ]
        return torch.cat(windows, dim=-2)

    def readable(
        self, rows: Window = None, columns: Window = None
    ) -> Bool[Tensor, "*batch rows columns"] | None:
        """Which keys each query may read, by the mask and a bias of -inf; None where nothing forbids.

        Args:
            rows: positions of queries, as for `weights`.
            columns: positions of keys, likewise.

        Example:
            >>> import torch, regard
            >>> x = torch.zeros(2, 4)
            >>> regard.look(x, x, mask=regard.masks.causal(align="start")).readable()
            tensor([[ True, False],
                    [ True,  True]])
        """
        batch, queries, keys = self.shape[:-2], *self.shape[-2:]
        down = positions(rows, queries, self.device)
        across = positions(columns, keys, self.device)
        allowed = self._readable(down, across)
        return None if allowed is None else allowed.expand(*batch, len(down), len(across))

    @torch.no_grad()
    def _window(self, down: Tensor, across: Tensor | None, progress: Progress | None) -> Tensor:
        keys = self.shape[-1]
        window = self._empty(*self.shape[:-2], len(down), keys if across is None else len(across))
        for block in self._blocks(down, progress):
            region = block.region
            weights = region.spread(block.weights(), keys)
            # Picking single columns is slow, and not needed for whole rows.
            window[region.place] = weights if across is None else weights.index_select(-1, across)
        return window

    def log_normaliser(self, progress: Progress | None = None) -> Float[Tensor, "*batch queries"]:
        """ln sum_j exp(s_ij), s the scores with bias over the temperature: p = exp(s - this).

        -inf for a row with nothing to read.

        Raises:
            TypeError: the weights are not a softmax of scores.

        Example:
            >>> import torch, regard
            >>> regard.look(torch.zeros(1, 2), torch.zeros(4, 2)).log_normaliser().exp()
            tensor([4.])
        """
        self._temperature()
        return self._answer(
            methodcaller("log_normaliser"),
            lambda look: log_normaliser_of(look._scores()),
            progress,
        )

    def entropy(self, progress: Progress | None = None) -> Float[Tensor, "*batch queries"]:
        """-sum_j p_ij ln p_ij in nats: 0 for one key, ln n for n alike, 0 with nothing to read.

        nan where a weight is below 0, as it may be without a normaliser.

        Example:
            >>> import torch, regard
            >>> regard.look(torch.zeros(1, 2), torch.zeros(4, 2)).entropy()
            tensor([1.3863])
        """
        return self._answer(
            methodcaller("entropy"),
            lambda look: entropy_of(look._spread()),
            progress,
        )

    def _answer(
        self,
        of_block: Callable[[Block], Tensor],
        of_section: Callable[[Weights], Tensor],
        progress: Progress | None,
    ) -> Tensor:
        """An answer for each row, from blocks or, where a gradient is wanted, from sections."""
        if not self._follows():
            return self._by_row(of_block, progress)
        return self._learned(
            lambda look, _: of_section(look), lambda: self._by_row(of_block, progress), progress
        )

    def perplexity(self, progress: Progress | None = None) -> Float[Tensor, "*batch queries"]:
        """exp(entropy): among how many keys a query seems to choose; 1 with nothing to read."""
        return self.entropy(progress).exp()

    @torch.no_grad()
    def top(
        self, count: int, progress: Progress | None = None
    ) -> tuple[Float[Tensor, "*batch queries count"], Int[Tensor, "*batch queries count"]]:
        """The keys that every query reads most, the heaviest first, ties in the order of the keys.

        A softmax is ranked by its scores, which tell keys apart where the weights round to 0. Equal
        keys are ties for `Hard`; elsewhere their scores may differ by rounding, and decide.

        Args:
            count: how many keys a query.

        Returns:
            Weights and positions of keys; 0 and -1 where a query may read no more keys.

        Example:
            >>> import torch, regard
            >>> regard.look(torch.eye(2), torch.eye(3)[:, :2]).top(1)[1]
            tensor([[0],
                    [1]])
        """
        if count < 0:
            raise ValueError(f"count is {count}: pass how many keys a query, 0 or more")
        weights = self._empty(*self.shape[:-1], count)
        keys = self._empty(*weights.shape, dtype=torch.long)
        for block in self._blocks(None, progress):
            place = block.region.place
            weights[place], keys[place] = block.top(count)
        return weights, keys

    def argmax(self, progress: Progress | None = None) -> Int[Tensor, "*batch queries"]:
        """The key that every query reads most, the first one on a tie, as in `top`; -1 with nothing to read."""
        return self._by_row(methodcaller("argmax"), progress, torch.long)

    def received(
        self,
        rows: Window = None,
        weights: Float[Tensor, "*#batch rows"] | None = None,
        progress: Progress | None = None,
    ) -> Float[Tensor, "*batch keys"]:
        """How much every key was read: sum_i w_i p_ij over queries i.

        Args:
            rows: the queries to count, any range of them; None for all.
            weights: the w_i of those rows, which broadcast to (*batch, rows); 1 by default.

        Example:
            >>> import torch, regard
            >>> regard.look(torch.zeros(6, 2), torch.zeros(4, 2)).received(rows=range(2))
            tensor([0.5000, 0.5000, 0.5000, 0.5000])
        """
        *batch, queries, _ = self.shape
        down = None if rows is None else positions(rows, queries, self.device)
        if weights is not None:
            count = queries if down is None else len(down)
            try:
                weights = weights.expand(*batch, count)
            except RuntimeError as error:
                raise ShapeError(
                    f"weights have shape {list(weights.shape)}: pass weights that broadcast to"
                    f" {[*batch, count]}, one a row"
                ) from error
        follows = weights is not None and weights.requires_grad and torch.is_grad_enabled()
        if not (follows or self._follows()):
            return self._received(down, weights, progress)

        def received_by(look: Weights, shares: Tensor | None) -> Tensor:
            weights = look._spread()
            return (weights if shares is None else shares * weights).sum(-2)

        return self._learned(
            received_by,
            lambda: self._received(down, weights, progress),
            progress,
            down,
            weights,
            True,
        )

    @torch.no_grad()
    def _received(
        self, rows: Tensor | None, weights: Tensor | None, progress: Progress | None
    ) -> Tensor:
        total = self._empty(*self.shape[:-2], self.shape[-1]).zero_()
        for block in self._blocks(rows, progress):
            numerators, factors = block.shares()
            region = block.region
            if weights is not None:
                factors = factors * weights[region.place]
            region.add(total[region.entries], (factors.unsqueeze(-2) @ numerators).squeeze(-2))
        return total

    @torch.no_grad()
    def map(
        self,
        height: int,
        width: int,
        rows: Window = None,
        columns: Window = None,
        reduce: Reduce = "mean",
        progress: Progress | None = None,
    ) -> Float[Tensor, "*batch height width"]:
        """The weights of any window at any resolution, pooled exactly.

        Bin i of h covers rows floor(i n / h) to floor((i + 1) n / h) of the n in the window. Cells
        that may not be read count as 0. A map finer than its window repeats cells.

        Args:
            height: rows of the map.
            width: columns of the map.
            rows: the window's queries; None for all.
            columns: the window's keys; None for all.
            reduce: "mean" or "max" of the cells in a bin.

        Example:
            >>> import torch, regard
            >>> regard.look(torch.zeros(4, 2), torch.zeros(4, 2)).map(1, 2)
            tensor([[0.2500, 0.2500]])
        """
        if height < 1 or width < 1:
            raise ValueError(f"a map of {height} x {width}: pass a height and width of 1 or more")
        if reduce not in ("mean", "max"):
            raise ValueError(f'reduce is {reduce!r}: pass "mean" or "max"')
        *batch, queries, keys = self.shape
        down = None if rows is None else positions(rows, queries, self.device)
        across = None if columns is None else positions(columns, keys, self.device)
        lengths = [n if w is None else len(w) for n, w in ((queries, down), (keys, across))]
        bins = Bins(height, lengths[0], self.device), Bins(width, lengths[1], self.device)
        cells = Map(bins, across, reduce, self._empty(*batch, height, width))
        if lengths[1]:
            for block in self._blocks(down, progress):
                cells.add(block, keys)
        return cells.pooled()

    def distance(
        self, signed: bool = False, progress: Progress | None = None
    ) -> Float[Tensor, "*batch queries"]:
        """How far a query looks: sum_j p_ij |j - i|, the mean offset where weights sum to 1.

        Args:
            signed: whether to keep the sign of j - i: below 0 is before the query's own position.

        Example:
            >>> import torch, regard
            >>> regard.look(torch.zeros(3, 2), torch.zeros(3, 2)).distance()
            tensor([1.0000, 0.6667, 1.0000])
        """
        return self._by_row(lambda block: block.distance(signed), progress)
