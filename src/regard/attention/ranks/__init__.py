"""Attention over keys that are shared out among processes, the ranks of a group of torch.distributed."""

from regard.attention.ranks.exchange import RankError, gather
from regard.attention.ranks.keys import Description, Keys, agree, meet
from regard.attention.ranks.look import RanksLook, look_over_ranks
from regard.attention.ranks.merge import Blend, Inputs, merge, row_of
from regard.attention.ranks.reading import attend_over_ranks, check_softmax

__all__ = [
    "Blend",
    "Description",
    "Inputs",
    "Keys",
    "RankError",
    "RanksLook",
    "agree",
    "attend_over_ranks",
    "check_softmax",
    "gather",
    "look_over_ranks",
    "meet",
    "merge",
    "row_of",
]
