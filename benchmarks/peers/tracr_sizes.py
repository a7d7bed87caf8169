"""The sizes of the Transformers that tracr compiles its own example programs into.

    python3 -m venv tracr && tracr/bin/pip install tracr-pypi
    tracr/bin/python benchmarks/peers/tracr_sizes.py > benchmarks/results/tracr-sizes.json

`benchmarks/programs.py` compiles the same tasks with Regard, over the same alphabets and lengths.
"""

import importlib.metadata
import json

import jax
from tracr.compiler import compiling, lib
from tracr.rasp import rasp

LENGTH = 8
ABC = {"a", "b", "c"}
EXAMPLES = {
    "length": (lib.make_length(), ABC),
    "frac_prevs": (lib.make_frac_prevs(rasp.tokens == "a"), ABC),
    "hist": (lib.make_hist(), ABC),
    "reverse": (lib.make_reverse(rasp.tokens), ABC),
    "shift_by": (lib.shift_by(1, rasp.tokens), ABC),
    "detect_pattern": (lib.detect_pattern(rasp.tokens, "aba"), ABC),
    "sort_unique": (lib.make_sort_unique(rasp.tokens, rasp.tokens), {1, 2, 3}),
    "sort": (
        lib.make_sort(rasp.tokens, rasp.tokens, max_seq_len=LENGTH, min_key=1),
        {1, 2, 3},
    ),
    "sort_freq": (lib.make_sort_freq(LENGTH), ABC),
    "count_less_freq": (lib.make_count_less_freq(2), ABC),
    "pair_balance": (lib.make_pair_balance(rasp.tokens, "(", ")"), {"(", ")"}),
    "shuffle_dyck": (lib.make_shuffle_dyck(["()"]), {"(", ")"}),
    "shuffle_dyck2": (lib.make_shuffle_dyck(["()", "[]"]), {"(", ")", "[", "]"}),
}


def sizes(program, vocabulary):
    """Layers, heads, widths and parameters of one compiled program."""
    model = compiling.compile_rasp_to_model(
        program, vocab=vocabulary, max_seq_len=LENGTH, compiler_bos="BOS"
    )
    config = model.model_config
    return {
        "layers": config.num_layers,
        "heads": config.num_heads,
        "head_width": config.key_size,
        "width": model.params["token_embed"]["embeddings"].shape[1],
        "feed_forward": config.mlp_hidden_size,
        "parameters": sum(leaf.size for leaf in jax.tree_util.tree_leaves(model.params)),
    }


if __name__ == "__main__":
    results = {}
    for name, (program, vocabulary) in EXAMPLES.items():
        try:
            results[name] = sizes(program, vocabulary)
        except Exception as fault:  # a refusal is part of the result
            results[name] = {"refused": f"{type(fault).__name__}: {fault}"}
    version = importlib.metadata.version("tracr-pypi")
    print(json.dumps({"tracr": version, "length": LENGTH, "examples": results}, indent=2))
