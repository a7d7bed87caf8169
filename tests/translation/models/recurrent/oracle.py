"""The papers' equations, one sentence and one word at a time, from a model's named weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.translation.models.recurrent.model import RecurrentModel
from regard.translation.settings.recurrent import RecurrentSettings

State = tuple[Tensor, ...]


@dataclass
class Oracle:
    """A slow twin of a `RecurrentModel`."""

    weights: dict[str, Tensor]
    settings: RecurrentSettings

    @classmethod
    def of(cls, model: RecurrentModel) -> Oracle:
        return cls({name: t.detach() for name, t in model.state_dict().items()}, model.settings)

    def linear(self, name: str, x: Tensor) -> Tensor:
        bias = self.weights.get(f"{name}.bias")
        return self.weights[f"{name}.weight"] @ x + (0 if bias is None else bias)

    def cell(self, name: str, x: Tensor, state: State, feed: Tensor | None = None) -> State:
        inputs, back = (
            self.linear(f"{name}.input_projection", x),
            self.linear(f"{name}.state_projection", state[0]),
        )
        if feed is not None:
            inputs = inputs + self.linear(f"{name}.feed_projection", feed)
        n = len(state[0])
        if self.settings.cell == "gru":
            r = torch.sigmoid(inputs[:n] + back[:n])
            z = torch.sigmoid(inputs[n : 2 * n] + back[n : 2 * n])
            candidate = torch.tanh(inputs[2 * n :] + r * back[2 * n :])
            return ((1 - z) * candidate + z * state[0],)
        i, f, g, o = (inputs + back).view(4, n)
        memory = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(memory), memory

    def nothing(self, width: int) -> State:
        state_parts = 1 if self.settings.cell == "gru" else 2
        return tuple(torch.zeros(width, dtype=torch.float64) for _ in range(state_parts))

    def encode(self, words: list[int]) -> tuple[Tensor, list[State]]:
        inputs = [self.weights["source_embedding.weight"][word] for word in words]
        if self.settings.positions == "sinusoidal":
            inputs = [self.place(at, len(x)) + x for at, x in enumerate(inputs)]
        ends = []
        for layer in range(self.settings.encoder_layers):
            ways, final = [], []
            for way in ("forwards", "backwards") if self.settings.bidirectional else ("forwards",):
                state, states = self.nothing(self.settings.encoder_width), []
                for x in inputs if way == "forwards" else inputs[::-1]:
                    state = self.cell(f"encoder.{way}.{layer}", x, state)
                    states.append(state[0])
                ways.append(states if way == "forwards" else states[::-1])
                final.append(state)
            inputs = [torch.cat(parts) for parts in zip(*ways, strict=True)]
            ends.append(tuple(torch.cat(parts) for parts in zip(*final, strict=True)))
        return torch.stack(inputs), ends

    def place(self, at: int, width: int) -> Tensor:
        angles = [at / 10000 ** (2 * pair / width) for pair in range(width // 2)]
        both = [(math.sin(angle), math.cos(angle)) for angle in angles]
        return torch.tensor(both, dtype=torch.float64).flatten()

    def initial(self, ends: list[State]) -> list[State]:
        layers = range(self.settings.decoder_layers)
        if self.settings.bridge == "copy":
            return ends
        if self.settings.bridge == "zero":
            return [self.nothing(self.settings.decoder_width) for _ in layers]
        names = ("state", "memory")[: len(ends[-1])]
        projected = [
            [self.linear(f"bridge.{name}.{i}", ends[-1][k]) for k, name in enumerate(names)]
            for i in layers
        ]
        return [(torch.tanh(state), *memory) for state, *memory in projected]

    def score(self, prefix: str, query: Tensor, key: Tensor, head: int | None = None) -> Tensor:
        def parameter(name: str) -> Tensor:
            weight = self.weights[f"{prefix}.{name}"]
            return weight if head is None else weight[head]

        match self.settings.score:
            case "dot":
                return query @ key
            case "scaled_dot":
                return query @ key / len(query) ** 0.5
            case "cosine":
                return query @ key / (query.norm() * key.norm())
            case "general":
                return query @ parameter("weight") @ key
            case "additive" | "concat":
                joint_tensor = torch.cat(
                    [parameter("query_weight"), parameter("key_weight")], dim=1
                )
                return parameter("weight") @ torch.tanh(joint_tensor @ torch.cat([query, key]))

    def normalised(self, scores: Tensor) -> Tensor:
        if self.settings.normaliser == "softmax":
            return scores.softmax(0)
        low, high = scores.min() - 1, scores.max()
        for _ in range(100):  # sparsemax: the threshold above which the scores sum to 1
            middle = (low + high) / 2
            enough = (scores - middle).clamp(min=0).sum() >= 1
            low, high = (middle, high) if enough else (low, middle)
        return (scores - low).clamp(min=0)

    def attend(self, query: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """The context, and the weights (heads, source)."""
        if self.settings.heads == 1:
            scores = [self.score("decoder.attention.score", query, state) for state in states]
            weights = self.normalised(torch.stack(scores))
            return weights @ states, weights[None]
        prefix, heads = "decoder.attention.heads", self.settings.heads
        projected = self.linear(f"{prefix}.query_projection", query).view(heads, -1)
        keys, values = (
            torch.stack([self.linear(f"{prefix}.{name}_projection", s) for s in states])
            for name in ("key", "value")
        )
        keys, values = keys.view(len(states), heads, -1), values.view(len(states), heads, -1)
        rows = [
            torch.stack([self.score(f"{prefix}.score", projected[h], key[h], h) for key in keys])
            for h in range(heads)
        ]
        weights = torch.stack([self.normalised(row) for row in rows])
        read = torch.cat([weights[h] @ values[:, h] for h in range(heads)])
        return self.linear(f"{prefix}.output_projection", read), weights

    def translate(self, source: list[int], target: list[int]) -> tuple[Tensor, Tensor | None]:
        """Logits (target, vocabulary), and weights (heads, target, source)."""
        states, ends = self.encode(source)
        layers, fed = self.initial(ends), torch.zeros(self.settings.decoder_width).double()
        logits, looks = [], []
        for word in target:
            y = self.weights["target_embedding.weight"][word]
            feed = None
            if self.settings.attention == "bahdanau":
                context, weights = self.attend(layers[-1][0], states)
                feed = context
            elif self.settings.attention == "luong" and self.settings.input_feeding:
                feed = fed
            below = y
            for index, state in enumerate(layers):
                name = f"decoder.cells.{index}"
                cell_after = self.cell(name, below, state, None if index else feed)
                layers = [*layers[:index], cell_after, *layers[index + 1 :]]
                below = cell_after[0]
            if self.settings.attention == "bahdanau":
                read = torch.cat([below, context, y])
                hidden = torch.tanh(self.linear("decoder.readout", read))
            elif self.settings.attention == "luong":
                context, weights = self.attend(below, states)
                fed = torch.tanh(self.linear("decoder.attentional", torch.cat([context, below])))
                hidden = self.narrowed(fed)
            else:
                hidden, weights = self.narrowed(below), torch.zeros(0)
            logits.append(self.linear("output", hidden))
            looks.append(weights)
        look = None if self.settings.attention == "none" else torch.stack(looks, dim=1)
        return torch.stack(logits), look

    def narrowed(self, hidden: Tensor) -> Tensor:
        if "decoder.output_projection.weight" in self.weights:
            return self.linear("decoder.output_projection", hidden)
        return hidden
