"""Arguments of other libraries, answered with the name of ours; those misspelt; and those that were renamed."""

import warnings
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LENGTHS = "regard.masks.padding(lengths)"
ATTENTION = {
    "embed_dim": "pass d_query, the width of the queries",
    "num_heads": "pass heads",
    "kdim": "pass d_key",
    "vdim": "pass d_value",
    "add_bias_kv": "leave it out, because there is no such option",
    "add_zero_attn": "leave it out, because there is no such option",
}
BLOCK = {
    "d_model": "pass width",
    "embed_dim": "pass width",
    "num_heads": "pass heads",
    "nhead": "pass heads",
    "dim_feedforward": "pass feed_forward",
    "norm_first": 'pass norm, which is "pre" or "post"',
}
PLACES = {
    "batch_first": "leave it out, because the batch is always first",
    "device": "leave it out, and call .to(device)",
    "dtype": "leave it out, and call .to(dtype)",
}
READING = {
    "attn_mask": "pass mask, in which True = may be read: ~attn_mask, or bias for numbers to add",
    "key_padding_mask": f"pass mask={LENGTHS}, or mask=~key_padding_mask[:, None]",
    "is_causal": 'pass mask="causal"',
    "need_weights": "call read(), which returns the output and a look at the weights",
    "average_attn_weights": "call read(), and mean_heads() of the look that it returns",
}
THROUGH = {
    "src": "pass x",
    "tgt": "pass x",
    "src_mask": "pass mask, in which True = may be read: ~src_mask",
    "tgt_mask": "pass mask, in which True = may be read: ~tgt_mask",
    "memory_mask": "pass context_mask, in which True = may be read: ~memory_mask",
    "src_key_padding_mask": f"pass mask={LENGTHS}, or mask=~src_key_padding_mask[:, None]",
    "tgt_key_padding_mask": f"pass mask={LENGTHS}, or mask=~tgt_key_padding_mask[:, None]",
    "memory_key_padding_mask": f"pass context_mask={LENGTHS}, or ~memory_key_padding_mask[:, None]",
    "is_causal": 'pass mask="causal"',
    "tgt_is_causal": 'pass mask="causal"',
}
FUSED = {
    "attn_mask": "pass mask for booleans, in which True = may be read, or bias for numbers to add",
    "dropout_p": "pass dropout",
    "is_causal": 'pass mask=regard.masks.causal(align="start")',
    "scale": "pass score=regard.scores.ScaledDot(scale)",
    "enable_gqa": "give keys and values of grouped heads an axis of size 1 for the group",
}
ELSEWHERE = {  # arguments of other libraries, and of ours those that mean the same
    "attention_mask": ("mask",),
    "attention_dropout": ("dropout",),
    "attn_dropout": ("dropout",),
    "causal": ("mask",),
    "dim": ("d_query", "width"),
    "head_dim": ("d_head",),
    "hidden_size": ("d_query", "width"),
    "intermediate_size": ("feed_forward",),
    "key_value_states": ("key", "context"),
    "encoder_hidden_states": ("key", "context"),
    "encoder_attention_mask": ("context_mask",),
    "hidden_states": ("query", "x"),
    "n_embd": ("d_query", "width"),
    "n_head": ("heads",),
    "n_heads": ("heads",),
    "num_attention_heads": ("heads",),
    "n_kv_heads": ("key_heads",),
    "num_key_value_heads": ("key_heads",),
    "num_kv_heads": ("key_heads",),
    "past_key_value": ("memory",),
    "past_key_values": ("memory",),
}
FORMS = {  # of those that have another form here
    "attention_mask": "=regard.masks.padding(attention_mask.sum(-1)), where its rows are ones and then zeros",
    "encoder_attention_mask": "=regard.masks.padding(encoder_attention_mask.sum(-1)), where its rows are ones and"
    " then zeros",
    "causal": '="causal"',
}


def answers(
    names: Mapping[str, str], renamed: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse arguments of others by naming ours, and pass on those that were renamed, with a warning.

    Args:
        names: what to do, for each argument of torch.
        renamed: the new name of each old one.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        called = function.__qualname__.removesuffix(".__init__").removesuffix(".forward")
        accepted = tuple(signature(function).parameters)
        accepts_all = frozenset(accepted).issuperset

        @wraps(function)
        def through(*arguments: P.args, **named: P.kwargs) -> R:
            try:  # Python refuses unknown names before the function begins
                return function(*arguments, **named)
            except TypeError:
                if accepts_all(named):
                    raise
            _rename(called, named, accepted, names, renamed or {})
            return function(*arguments, **named)

        return through

    return decorate


def _rename(
    called: str,
    named: dict[str, object],
    accepted: Collection[str],
    names: Mapping[str, str],
    renamed: Mapping[str, str],
) -> None:
    """Put arguments under their new names, and refuse those that there are not."""
    for name in [name for name in named if name not in accepted]:
        if name in names:
            raise TypeError(f"{called} has no argument {name}, which torch has: {names[name]}")
        if name not in renamed:
            raise TypeError(f"{called} has no argument {name}: {_advice(name, accepted)}")
        new = renamed[name]
        text = f"{name} of {called} is called {new} now"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
        if new in named:
            raise TypeError(f"{called} got {name} and {new}: pass {new} alone")
        named[new] = named.pop(name)


def _advice(name: str, accepted: Collection[str]) -> str:
    """What to pass for an argument that neither we nor torch have."""
    theirs = {
        other: f"pass {ours}{FORMS.get(other, '')}"
        for other, several in ELSEWHERE.items()
        for ours in several
        if ours in accepted
    }
    if name in theirs:
        return theirs[name]
    names = [each for each in accepted if each != "self"]
    nearest = next(iter(get_close_matches(name, [*names, *theirs], n=1)), None)
    if nearest in theirs:
        return theirs[nearest]
    hint = f"did you mean {nearest}? " if nearest else ""
    return f"{hint}The arguments are {', '.join(names)}"
