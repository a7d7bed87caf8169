"""A plan written into the weights of a Transformer, and the model that answers as the program does."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.looks import Look
from regard.programs.language import ProgramError, Value
from regard.programs.model import SequenceModel
from regard.programs.planning import Plan, plan
from regard.programs.running import Program, check_tokens
from regard.programs.stream import HUGE, ONE, Row

_OTHER_TOKENS = (
    ": a program that works with any tokens can be compiled for others: `regard programs compile "
    "--alphabet`, in Python `compile(program.over(tokens))`"
)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A Transformer that computes a program, with its alphabet and answers.

    Attributes:
        name: of the program.
        model: the Transformer.
        alphabet: the tokens; ids count from 1.
        answers: what the outputs stand for; every number that it can be, for a numerical answer.
        numerical: whether the model's single output is the answer, rounded to the nearest of the answers.
        heads: for each block, what its heads compute.
        example: an input that shows the program.
    """

    name: str
    model: SequenceModel
    alphabet: tuple[Value, ...]
    answers: tuple[Any, ...]
    numerical: bool
    heads: list[list[str]]
    example: tuple[Value, ...] = ()

    @property
    def length(self) -> int:
        """The most tokens of an input."""
        return self.model.sizes.places - 1

    def __call__(self, tokens: Sequence[Value]) -> list[Any]:
        """The answers, one a position, as the Transformer computes them.

        Raises:
            ProgramError: there are more tokens than it was compiled for, or one is not in the alphabet.
        """
        return self.answered([tokens])[0]

    def answered(self, inputs: Iterable[Sequence[Value]], batch: int = 4096) -> list[list[Any]]:
        """The answers for many inputs, in batches of equal lengths."""
        answers = []
        for _, same in groupby(inputs, len):
            for ids in self.ids(*same).split(batch):
                with torch.no_grad():
                    answers += self.decoded(self.model(ids)[:, 1:])
        return answers

    def decoded(self, outputs: Tensor) -> list[list[Any]]:
        """The answers for outputs of the model, (inputs, positions, outputs)."""
        if self.numerical:
            numbers = outputs.new_tensor([float(each) for each in self.answers])
            borders = (numbers[1:] + numbers[:-1]) / 2
            nearest = torch.searchsorted(borders, outputs.squeeze(-1).contiguous())
        else:
            nearest = outputs.argmax(-1)
        return [[self.answers[at] for at in row] for row in nearest.tolist()]

    def looks(self, tokens: Sequence[Value]) -> list[Look]:
        """What each block reads for an input, (1, heads, 1 + tokens, 1 + tokens): the beginning comes first."""
        with torch.no_grad():
            return self.model.read(self.ids(tokens))[1]

    def ids(self, *inputs: Sequence[Value]) -> Tensor:
        """The ids of inputs of the same length, (inputs, 1 + tokens): the model's argument."""
        device = self.model.output.weight.device
        return torch.tensor([self._ids(each) for each in inputs], device=device)

    def _ids(self, tokens: Sequence[Value]) -> list[int]:
        if len(tokens) > self.length:
            raise ProgramError(
                f"the input has {len(tokens)} tokens, {self.name} was compiled for {self.length}: compile for more"
            )
        check_tokens(self.name, self.alphabet, tokens, _OTHER_TOKENS)
        return [0, *(1 + self.alphabet.index(token) for token in tokens)]


def compile(program: Program, length: int = 8) -> Compiled:
    """A Transformer whose answers are those of the program, for every input of at most `length` tokens.

    Raises:
        ProgramError: the program cannot be compiled for this length; says why.

    Example:
        >>> from regard.programs import PROGRAMS
        >>> reverse = compile(PROGRAMS["reverse"], length=4)
        >>> reverse("abc")
        ['c', 'b', 'a']
    """
    planned = plan(program, length)
    model = SequenceModel(planned.sizes, program.causal).eval().requires_grad_(False)
    _write(planned, model)
    heads = [[head.about for head in own] for own in planned.heads]
    alphabet = tuple(program.alphabet)
    fits = all(each in alphabet for each in program.example)
    example = (tuple(program.example) if fits else alphabet * length)[:length]
    return Compiled(
        program.name, model, alphabet, planned.answers, planned.numerical, heads, example
    )


def _write(plan: Plan, model: Any) -> None:
    sizes = plan.sizes
    for parameter in model.parameters():
        parameter.zero_()
    _fill(model.tokens.weight, plan.tokens)
    _fill(model.places.weight, plan.places)
    model.tokens.weight[:, ONE] = HUGE
    _fill(model.output.weight, plan.outputs)
    for block, heads, units in zip(model.blocks, plan.heads, plan.units, strict=True):
        attention = block.self_attention
        for number, head in enumerate(heads):
            start = number * sizes.head_width
            of_head = slice(start, start + sizes.head_width)
            # Scores are divided by the root of the head's width.
            _fill(attention.query_projection.weight[of_head], [q for q, _ in head.dims])
            attention.query_projection.weight[of_head] *= sizes.head_width**0.5
            _fill(attention.key_projection.weight[of_head], [k for _, k in head.dims])
            _fill(attention.value_projection.weight[of_head], [row for row, _ in head.reads])
            _fill(
                attention.output_projection.weight.T[of_head], [{at: 1.0} for _, at in head.reads]
            )
        _fill(block.feed_forward.inner.weight, [unit.inner for unit in units])
        _fill(block.feed_forward.outer.weight.T, [unit.outer for unit in units])
    for module in model.modules():
        if isinstance(module, nn.RMSNorm):  # the norm of every position is that of ONE
            module.weight.fill_(HUGE / sizes.width**0.5)


def _fill(weight: Tensor, rows: Sequence[Row]) -> None:
    for at, row in enumerate(rows):
        for column, factor in row.items():
            weight[at, column] = factor
