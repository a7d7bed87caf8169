"""The cost of any nn.Module: its parameters by part, and the products of one call, by a count of them as they run."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from regard.attention.heads import MultiHeadAttention
from regard.attention.kernels.choose import kernel
from regard.attention.scores import ScaledDot
from regard.costs.parts import ADDED, Part, Parts, attention, scores_and_values
from regard.errors import ModelError

# Where parameters belong, by the names that libraries give them; the first that fits.
_NAMES = {
    "learned keys": r"(^|\.)bias_k$",
    "learned values": r"(^|\.)bias_v$",
    "W_Q, W_K, W_V": "in_proj|c_attn|qkv|query_key_value",
    "W_Q": r"(^|[._])(q|wq|query|q_proj|q_lin|to_q|query_projection|query_weight)[._]",
    "W_K": r"(^|[._])(k|wk|key|k_proj|k_lin|to_k|key_projection|key_weight)[._]",
    "W_V": r"(^|[._])(v|wv|value|v_proj|v_lin|to_v|value_projection)[._]",
    "feed-forward": r"mlp|ffn|feed_?forward|dense_?relu|fc\d|linear\d|intermediate|(?<!attention\.)output\.dense",
    "W_O": r"(^|[._])(o|wo|o_proj|out_proj|out_lin|to_out|output_projection)[._]|attn\.c_proj|attention\.output",
    "scores": r"(^|\.)score\.",
    "output layer": r"(^|\.)(lm_head|output|generator|classifier|head)\.",
}
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)
# Operations of torch's that hold no products, besides views and those that are tagged as element by element.
_CHEAP = frozenset(
    """softmax safe_softmax log_softmax logsumexp unsafe_view reshape_alias native_layer_norm
    native_group_norm native_batch_norm fused_rms_norm linalg_vector_norm embedding sum mean std var
    var_mean amax amin max min any all argmax argmin prod cumsum sort argsort topk cat stack split
    split_with_sizes unsafe_split unsafe_chunk repeat repeat_interleave roll flip tril triu constant_pad_nd
    copy clone to_copy lift_fresh detach contiguous fill zero masked_fill arange linspace eye empty
    empty_like empty_strided zeros zeros_like ones ones_like full full_like new_empty new_zeros new_ones
    new_full scalar_tensor set resize index index_select index_put gather scatter scatter_add nonzero unique
    unique2 unique_consecutive isin equal local_scalar_dense bernoulli rand randn randint uniform normal
    multinomial native_dropout fused_dropout bincount searchsorted bucketize nll_loss_forward
    linalg_check_errors max_pool1d_with_indices max_pool2d_with_indices avg_pool2d
    adaptive_avg_pool2d""".split()
)
# Products with a vector, which torch does not count: the argument whose numbers are each used once.
_WITH_VECTORS = {"aten::mv": 0, "aten::dot": 0, "aten::addmv": 1}
_FUSED = re.compile(
    r"aten::_scaled_dot_product_\w*attention(?!\w*backward)(_for_cpu|_overrideable)?$"
)


def parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The name of a part and a parameter, for each; one that is shared belongs to its first path.

    Raises:
        ModelError: a parameter has no shape yet.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    for path, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ModelError(f"{path} has no shape yet: call the model once, then count")
        yield _part_name(modules[path.rpartition(".")[0]], path, parameter), parameter


def _part_name(owner: nn.Module, path: str, parameter: Tensor) -> str:
    if isinstance(owner, nn.Embedding | nn.EmbeddingBag):
        return "embeddings"
    if isinstance(owner, _RECURRENT):
        return "recurrence"
    if parameter.ndim < 2 and not path.endswith("score.weight"):
        return ADDED
    names = (name for name, pattern in _NAMES.items() if re.search(pattern, path, re.IGNORECASE))
    return next(names, "other matrices")


class Products(TorchDispatchMode):
    """Counts products of matrices as they run, by the part of their weights.

    torch's counter has the formulas; those that it lacks on processors are here. `uncounted` has the
    other operations that are not known to be free of products, with the number of their calls.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parts: Parts = []
        self.uncounted: Counter[str] = Counter()
        self._owners = {
            parameter.untyped_storage()._cdata: part
            for part, parameter in parameters(model)
            if parameter.layout is torch.strided
        }

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, packet, kwargs = str(func.name()), func.overloadpacket, kwargs or {}
        counted = flop_registry.get(packet)
        if counted is None:
            with self:  # an operation made of others, which inference mode passes on whole
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        cheap = func.namespace in ("aten", "prims") and packet.__name__.strip("_") in _CHEAP
        dense = all(each.layout is torch.strided for each in args if isinstance(each, Tensor))
        if dense and _FUSED.match(name):
            query, key, value = (each.shape for each in args[:3])
            self.parts += scores_and_values(
                query[-2], key[-2], query[:-2].numel(), query[-1], value[-1]
            )
        elif dense and (counted is not None or name in _WITH_VECTORS):
            if counted is None:
                twice = 2 * args[_WITH_VECTORS[name]].numel()
            else:
                twice = counted(*args, **kwargs, out_val=result)
            out = result if isinstance(result, Tensor) else result[0]
            self.parts.append(Part(self._part_name(name, args), 0, twice // 2, out.numel()))
        elif not (torch.Tag.pointwise in func.tags or func.is_view or cheap):
            self.uncounted[name] += 1
        return result

    def _part_name(self, name: str, operands: Any) -> str:
        tensors = [each for each in operands if isinstance(each, Tensor)]
        owners = [self._owners.get(each.untyped_storage()._cdata) for each in tensors]
        for owner in owners:
            if owner not in (None, ADDED):
                return "output layer" if owner == "embeddings" else str(owner)
        return "scores and values" if "bmm" in name else "other products"


@contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    """Run a model as in use: without dropout, and with the running means of batch norms left as they are."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def plain() -> Iterator[None]:
    """Run everything as products of torch's: no compiled kernels of ours, no whole layers in one operation."""
    heads, layers = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        with kernel("reference"):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(heads)
        torch.backends.mkldnn.enabled = layers


def count(model: nn.Module, run: Callable[[], Any] | None) -> tuple[Parts, tuple[str, ...]]:
    """The parts of a model, and the operations left out. Without `run`, which calls the model, only its parameters."""
    costs = [Part(name, each.numel()) for name, each in parameters(model)]
    uncounted = tuple(
        f"the packed weights of {path or 'the module'}"
        for path, each in model.named_modules()
        if hasattr(each, "_packed_params") and not path.endswith("_packed_params")
    )
    if run is None:
        return costs, (*uncounted, "multiply-adds and activations: pass the inputs of a call too")
    products = Products(model)
    with evaluated(model), torch.no_grad(), plain(), products:
        run()
    calls = (f"{name}, {count} calls" for name, count in products.uncounted.items())
    return costs + products.parts, (*uncounted, *calls)


def heads(module: MultiHeadAttention) -> Callable[[int, int], Parts] | None:
    """The formula of an attention of ours, by queries and keys; None where its score is the caller's own."""
    # A subclass may compute more, so only the class of a score itself counts its products.
    score = ScaledDot() if module.score is None else module.score
    counted = vars(type(score)).get("cost_options")
    options = counted and counted(score)
    if not options:
        return None
    norm = module.query_norm
    kind = None if norm is None else "layer" if isinstance(norm, nn.LayerNorm) else "rms"
    names = ("d_query", "heads", "d_key", "d_value", "d_head", "d_head_value", "d_output", "merge")
    options |= {name: getattr(module, name) for name in (*names, "key_heads")}
    bias = module.query_projection.bias is not None
    return partial(attention, bias=bias, qk_norm=kind, cached=True, **options)
