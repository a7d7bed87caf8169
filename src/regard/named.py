"""Tensors whose axes have names, so that code reads as its equation.

How to use it: name the axes of every tensor once, then write the equation. Axes meet by name, never
by place; a mistake is reported by name. Attention, with the axis that each line sums over:

    Q = X W_Q                       q = dot(x, W_Q, "d_model")
    S = Q K^T / sqrt(d_key)         scores = dot(q, k, "d_key") / q.sizes["d_key"] ** 0.5
    A = softmax(S) over the keys    weights = along(torch.softmax, scores, "keys")
    R = A V                         reading = dot(weights, v, "keys")
    Y = concat(R) W_O               output = dot(reading, W_O, "heads d_value")

W_Q of a `MultiHeadAttention` is ``Named(attention.query_projection.weight, "rows d_model").split(
"rows", heads=2, d_key=4)``. For the lines from S to R, `attend` and `weights` call the library.

    >>> from regard.named import Named, along, attend, dot
    >>> q = Named(torch.randn(2, 3, 4), "heads queries d_key")
    >>> k = Named(torch.randn(2, 5, 4), "heads keys d_key")
    >>> v = Named(torch.randn(5, 2, 6), "keys heads d_value")  # the order of axes does not matter
    >>> past = Named(torch.arange(3), "queries") >= Named(torch.arange(5), "keys")
    >>> attend(q, k, v, mask=past)  # True = may be read
    Named(heads 2, queries 3, d_value 6)
    >>> dot(q, k.rename(d_key="d_model"), "d_key")
    Traceback (most recent call last):
    ...
    regard.attention.shapes.ShapeError: no axis 'd_key' in (heads 2, keys 5, d_model 4): pass one...
"""

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.attention import attend as plain
from regard.attention.shapes import ShapeError

__all__ = ["Axes", "Named", "along", "apply", "attend", "dot", "weights"]

Axes = str | Sequence[str]
Method = Callable[["Named", Any], "Named"]
_LIBRARY_AXES = "queries keys d_query d_key d_value".split()  # all others are batch axes


def _operator(function: Callable[[Any, Any], Any]) -> tuple[Method, Method]:
    """The method of the left operand, and that of the right one."""
    return lambda x, y: apply(function, x, y), lambda x, y: apply(function, y, x)


class Named:
    """A tensor, never copied, and a name for each of its axes: "batch queries d_key", or a list.

    `+ - * / **`, comparisons, `&`, `|` and `~` take named tensors and numbers, element by element; the
    result has the axes of the left one, then the others. A mistake in a name is a ShapeError.

    Example:
        >>> Named(torch.ones(2, 3), "queries keys") * Named(torch.ones(4, 3), "heads keys")
        Named(queries 2, keys 3, heads 4)
    """

    def __init__(self, tensor: Tensor, axes: Axes = ()) -> None:
        self.tensor, self.axes = tensor, _names(axes)
        if len(self.axes) != tensor.ndim:
            raise ShapeError(
                f"{len(self.axes)} names, {' '.join(self.axes)!r}, for a tensor of shape"
                f" {list(tensor.shape)}: pass {tensor.ndim}"
            )

    @property
    def sizes(self) -> dict[str, int]:
        """The length of each axis."""
        return dict(zip(self.axes, self.tensor.shape, strict=True))

    def order(self, axes: Axes) -> "Named":
        """The same numbers with the axes, all of them listed, in another order."""
        return Named(self._over(_names(axes), required=_names(axes)), axes)

    def rename(self, **names: str) -> "Named":
        """Other names for some axes: ``x.rename(queries="keys")``."""
        for name in names:
            self._place(name)
        return Named(self.tensor, [names.get(axis, axis) for axis in self.axes])

    def split(self, axis: str, **sizes: int) -> "Named":
        """One axis as several, the first the slowest: ``x.split("d_model", heads=8, d_key=64)``."""
        place, total = self._place(axis), prod(sizes.values())
        if total != self.tensor.shape[place]:
            raise ShapeError(
                f"axis {axis!r} of {_describe(self)} is not {total} long, as {sizes} is"
            )
        names = [*self.axes[:place], *sizes, *self.axes[place + 1 :]]
        return Named(self.tensor.unflatten(place, tuple(sizes.values())), names)

    def join(self, axes: Axes, into: str) -> "Named":
        """Several axes as one, which comes last: ``x.join("heads d_value", "d_model")``."""
        merged = _names(axes)
        remaining = [axis for axis in self.axes if axis not in merged]
        return Named(
            self.order([*remaining, *merged]).tensor.flatten(len(remaining)), [*remaining, into]
        )

    def at(self, **index: int) -> "Named":
        """The numbers at one place of some axes: ``x.at(heads=0, queries=-1)``."""
        tensor = self.tensor
        for place, axis in sorted(((self._place(axis), axis) for axis in index), reverse=True):
            if not -tensor.shape[place] <= index[axis] < tensor.shape[place]:
                raise IndexError(f"{axis}={index[axis]} is out of range in {_describe(self)}")
            tensor = tensor.select(place, index[axis])
        return Named(tensor, [axis for axis in self.axes if axis not in index])

    def _place(self, axis: str) -> int:
        if axis not in self.axes:
            raise ShapeError(
                f"no axis {axis!r} in {_describe(self)}: pass one of these, or rename one"
            )
        return self.axes.index(axis)

    def _over(self, axes: Sequence[str], required: Sequence[str] = ()) -> Tensor:
        """The tensor over these axes; those that it lacks, but may lack, are of size 1."""
        for axis in required:
            self._place(axis)
        if extra := [axis for axis in self.axes if axis not in axes]:
            raise ShapeError(f"axis {extra[0]!r} of {_describe(self)} is none of {', '.join(axes)}")
        ordered = self.tensor.permute([self._place(axis) for axis in axes if axis in self.axes])
        return ordered[tuple(slice(None) if axis in self.axes else None for axis in axes)]

    def __repr__(self) -> str:
        return f"Named{_describe(self)}"

    __add__, __radd__ = _operator(operator.add)
    __sub__, __rsub__ = _operator(operator.sub)
    __mul__, __rmul__ = _operator(operator.mul)
    __truediv__, __rtruediv__ = _operator(operator.truediv)
    __pow__, __rpow__ = _operator(operator.pow)
    __lt__, __gt__ = _operator(operator.lt)[0], _operator(operator.gt)[0]
    __le__, __ge__ = _operator(operator.le)[0], _operator(operator.ge)[0]
    __eq__ = _operator(operator.eq)[0]  # type: ignore[assignment]
    __ne__ = _operator(operator.ne)[0]  # type: ignore[assignment]
    __hash__ = object.__hash__
    __array_ufunc__ = None  # an array of NumPy meets `apply`, which asks for names
    __and__, __rand__ = _operator(operator.and_)
    __or__, __ror__ = _operator(operator.or_)

    def __neg__(self) -> "Named":
        return apply(operator.neg, self)

    def __invert__(self) -> "Named":
        return apply(operator.invert, self)

    def __bool__(self) -> bool:
        return bool(self.tensor)


def apply(function: Callable[..., Any], *operands: Any) -> Named:
    """A function, element by element, of named tensors and numbers: ``apply(torch.tanh, x)``."""
    if any(getattr(each, "ndim", 0) for each in operands):
        raise ShapeError("a tensor without names meets named ones: pass Named(tensor, axes)")
    sizes = _joint(*(each for each in operands if isinstance(each, Named)))
    tensors = [each._over(list(sizes)) if isinstance(each, Named) else each for each in operands]
    result = function(*tensors)
    if list(result.shape) != list(sizes.values()):
        raise ShapeError(f"the function made shape {list(result.shape)} of {sizes}: call `along`")
    return Named(result, list(sizes))


def along(function: Callable[..., Any], x: Named, axis: str) -> Named:
    """A function with a `dim`, along an axis that it keeps or, like `torch.mean`, drops."""
    place = x._place(axis)
    result = function(x.tensor, dim=place)
    if not isinstance(result, Tensor):
        raise TypeError("the function returned several tensors: pass one such as torch.amax")
    gone = result.ndim < x.tensor.ndim
    return Named(result, [name for name in x.axes if not (gone and name == axis)])


def dot(left: Named, right: Named, over: Axes) -> Named:
    """The sum of products over some axes, which both have; every other axis stays."""
    names, summed = list(_joint(left, right)), _names(over)
    for axis in summed:
        left._place(axis), right._place(axis)
    remaining = [name for name in names if name not in summed]
    places = [[names.index(axis) for axis in axes] for axes in (left.axes, right.axes, remaining)]
    return Named(
        torch.einsum(left.tensor, places[0], right.tensor, places[1], places[2]), remaining
    )


def attend(query: Named, key: Named, value: Named, **options: Any) -> Named:
    """`regard.attend` by name: the reading, over the batch axes, `queries` and `d_value`.

    Args:
        query: has the axes `queries` and `d_key`, or `d_query` for a score of two widths.
        key: has the axes `keys` and `d_key`.
        value: has the axes `keys` and `d_value`. All other axes, such as `heads`, are batch axes.
        options: those of `regard.attend`; mask and bias may be named.
    """
    batch, (q, k, v), options = _laid_out(query, key, value, **options)
    return Named(plain.attend(q, k, v, **options), [*batch, "queries", "d_value"])


def weights(query: Named, key: Named, **options: Any) -> Named:
    """The weights of `regard.look` by name, over the batch axes, `queries` and `keys`."""
    batch, (q, k), options = _laid_out(query, key, **options)
    return Named(plain.look(q, k, **options).weights(), [*batch, "queries", "keys"])


def _laid_out(*tensors: Named, **options: Any) -> tuple[list[str], list[Tensor], dict[str, Any]]:
    """The batch axes, and query, key, value and options with the axes in the library's order."""
    width = "d_query" if "d_query" in tensors[0].axes else "d_key"
    orders = [["queries", width], ["keys", "d_key"], ["keys", "d_value"]][: len(tensors)]
    batch = [axis for axis in _joint(*tensors) if axis not in _LIBRARY_AXES]
    planes = {name: plane for name, plane in options.items() if isinstance(plane, Named)}
    _joint(*tensors, *planes.values())
    laid = [
        x._over([*batch, *axes], required=axes) for x, axes in zip(tensors, orders, strict=True)
    ]
    options |= {name: plane._over([*batch, "queries", "keys"]) for name, plane in planes.items()}
    return batch, laid, options


def _joint(*operands: Named) -> dict[str, int]:
    """The length of each axis, in the order in which they appear."""
    sizes: dict[str, int] = {}
    for operand in operands:
        for axis, size in operand.sizes.items():
            if sizes.setdefault(axis, size) != size:
                described = " and ".join(map(_describe, operands))
                raise ShapeError(f"axis {axis!r} has two lengths in {described}: rename one")
    return sizes


def _names(axes: Axes) -> tuple[str, ...]:
    names = tuple(axes.split() if isinstance(axes, str) else axes)
    for name in names:
        if not name.isidentifier() or names.count(name) > 1:
            fault = "is no identifier" if names.count(name) == 1 else "occurs twice"
            raise ShapeError(f"the axis {name!r} {fault} in {' '.join(names)!r}: rename it")
    return names


def _describe(x: Named) -> str:
    return "(" + ", ".join(f"{axis} {size}" for axis, size in x.sizes.items()) + ")"
