"""Every case of the table, its score made additive, against the float64 reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.agreement.cases import CASES, Case
from tests.agreement.comparing import TOLERANCE, compare
from tests.agreement.test_kernels import answer

from regard.attention import masks, normalisers, scores


def _additive(case: Case) -> Case:
    d_query, d_key = case.query[-1], case.key[-1]
    return replace(
        case,
        score=lambda: scores.Additive(d_query, d_key, 13, bias=True),
        slack=max(2.0, min(case.slack, 10.0)),
    )


SOFT = [c for c in CASES if c.normaliser is None or type(c.normaliser) is normalisers.Softmax]
FULL = [c for c in SOFT if all((*c.query, *c.key, c.d_value))]
TABLE = [_additive(case) for case in FULL if case.score is None or case.name == "temperature"]
TABLE += [
    Case(
        "capped",
        score=lambda: scores.SoftCap(scores.Additive(8, 8, 13), 0.5),
        bias=lambda: torch.randn(5, 7),
    ),
    Case(
        "capped float64",
        score=lambda: scores.SoftCap(scores.Additive(8, 8, 9), 0.5),
        dtype=torch.float64,
    ),
    Case("own heads", score=lambda: scores.Additive(8, 8, 9, heads=3, bias=True), slack=2.0),
    Case(
        "own grouped heads",
        query=(2, 3, 4, 5, 8),
        key=(2, 3, 1, 7, 8),
        score=lambda: scores.Additive(8, 8, 9, heads=(3, 4)),
        slack=2.0,
    ),
    Case(
        "several blocks",
        query=(2, 70, 8),
        key=(2, 530, 8),
        d_value=9,
        score=lambda: scores.Additive(8, 8, 21),
        mask=masks.band(300, 40) & masks.padding([530, 280]),
        slack=3.0,
    ),
    Case(
        "several blocks, documents",
        query=(1, 40, 8),
        key=(1, 300, 8),
        score=lambda: scores.Additive(8, 8, 21),
        mask=masks.documents(torch.arange(40) // 9, torch.arange(300) // 70),
        slack=3.0,
    ),
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_additive_scores_agree_with_the_exact_reference(case: Case) -> None:
    built = case.build()
    exact = answer("reference", built.arguments(torch.float64))
    actual = answer("cpu", built.arguments(case.dtype))
    assert actual["reading"].dtype == case.dtype
    for name in exact:
        compare(name, actual[name], exact[name], TOLERANCE[case.dtype] * case.slack)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_the_number_of_threads_changes_only_rounding(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.attention.kernels.additive.cpu import calls

    monkeypatch.setattr(calls, "_workers", lambda problem: threads)
    for name in (
        "several blocks",
        "own grouped heads",
        "shared keys",
        "shared queries",
        "grouped causal",
        "bias of heads",
    ):
        test_additive_scores_agree_with_the_exact_reference(
            next(c for c in TABLE if c.name == name)
        )
