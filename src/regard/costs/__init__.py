"""The costs of models: parameters, multiply-adds and memory, on paper and measured."""

from regard.costs.counting import cost
from regard.costs.parts import Cost, Part

__all__ = ["Cost", "Part", "cost"]
