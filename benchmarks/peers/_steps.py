"""One training step of each project: the same shape of model, batches and optimiser."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.positions import sinusoidal
from regard.translation.models.building import build
from regard.translation.settings.configuration import Configuration
from regard.translation.text.batches import Batch
from regard.translation.text.tokenizer import BOS, EOS, PAD
from regard.translation.training.optimiser import optimiser_of
from regard.translation.training.processes import Processes
from regard.translation.training.step import Learner

LAYERS, WIDTH, HEADS, INNER, DROPOUT, SMOOTHING = 3, 256, 4, 1024, 0.1, 0.1
TRANSFORMER = {
    "type": "transformer", "num_layers": LAYERS, "num_heads": HEADS, "hidden_size": WIDTH,
    "ff_size": INNER, "dropout": DROPOUT, "layer_norm": "pre",
    "embeddings": {"embedding_dim": WIDTH, "scale": True, "dropout": 0.0},
}  # fmt: skip
Step = Callable[[Batch], float]


def ours(configuration: Configuration, vocabulary: int) -> Step:
    """The steps of `regard train`."""
    model = build(configuration, vocabulary, vocabulary).train()
    optimiser = optimiser_of(configuration.training, model)
    learner = Learner(model, optimiser, configuration.training, Processes())

    def step(batch: Batch) -> float:
        loss = learner.objective(batch) / batch.target_tokens
        loss.backward()
        learner.sum_and_clip()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step


class Plain(nn.Module):
    """nn.Transformer with embeddings and an output layer that share their weights."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)
        self.transformer = nn.Transformer(
            *(WIDTH, HEADS, LAYERS, LAYERS, INNER, DROPOUT), batch_first=True, norm_first=True
        )
        self.dropout = nn.Dropout(DROPOUT)
        self.register_buffer("places", sinusoidal(512, WIDTH))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        length = target.shape[1]
        hidden: Tensor = self.transformer(
            self._embed(source),
            self._embed(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(length),
            tgt_is_causal=True,
            src_key_padding_mask=source == PAD,
            memory_key_padding_mask=source == PAD,
        )
        return hidden @ self.embedding.weight.t()

    def _embed(self, words: Tensor) -> Tensor:
        x = self.embedding(words) * WIDTH**0.5 + self.places[: words.shape[1]]
        embedded: Tensor = self.dropout(x)
        return embedded


def plain(vocabulary: int) -> Step:
    model = Plain(vocabulary).train()
    return loop(model, lambda batch: model(batch.source, batch.target_in))


def marian_model(vocabulary: int) -> Any:
    """Hugging Face's Marian; its own layer norms come after the sublayers."""
    from transformers import MarianConfig, MarianMTModel

    shape = MarianConfig(
        vocab_size=vocabulary,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        dropout=DROPOUT,
        activation_function="relu",
        max_position_embeddings=512,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        use_cache=False,
    )
    return MarianMTModel(shape).train()


def marian_logits(model: Any, batch: Batch) -> Tensor:
    scores: Tensor = model(
        input_ids=batch.source,
        attention_mask=(batch.source != PAD).long(),
        decoder_input_ids=batch.target_in,
    ).logits
    return scores


def marian(vocabulary: int) -> Step:
    model = marian_model(vocabulary)
    return loop(model, lambda batch: marian_logits(model, batch))


def joeynmt(vocabulary: int, packages: Path, half: dict[str, Any] = TRANSFORMER) -> Step:
    """JoeyNMT's `_train_step` and what its loop does after it; `half` is its encoder and its decoder."""
    sys.path.append(str(packages))  # last: torch and numpy stay ours
    from joeynmt.batch import Batch as JoeyBatch
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None,
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None, lang_tags=[],
    )  # fmt: skip
    words = ["<unk>", "<pad>", "<s>", "</s>", *(f"w{i}" for i in range(vocabulary - 4))]
    word_list = Vocabulary(words, special)
    shape = {"encoder": half, "decoder": dict(half), "tied_embeddings": True, "tied_softmax": True}
    model = build_model(shape, word_list, word_list)
    model.loss_function = ("crossentropy", SMOOTHING)
    model.train()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, (0.9, 0.98))

    def theirs(ids: Tensor) -> Tensor:
        """Their padding is 1 and their unknown word 0; ours the other way round."""
        return torch.where(ids <= 1, 1 - ids, ids)

    def step(batch: Batch) -> float:
        target = theirs(torch.cat([batch.target_in[:, :1], batch.target_out], 1))
        batch_of_rows = JoeyBatch(
            src=theirs(batch.source), src_length=batch.source_lengths, src_prompt_mask=None, trg=target,
            trg_prompt_mask=None, indices=torch.arange(len(target)), device=torch.device("cpu"),
            pad_index=1, eos_index=3,
        )  # fmt: skip
        batch_of_rows.sort_by_src_length()
        loss, _, _, _ = model(return_type="loss", **vars(batch_of_rows))
        mean = batch_of_rows.normalize(loss, normalization="tokens", n_gpu=0, n_accumulation=1)
        mean.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        model.zero_grad()
        return float(mean.detach())

    return step


def parameters(step: Step) -> int:
    """How many numbers the model of a step learns."""
    contents = [cell.cell_contents for cell in step.__closure__ or ()]
    modules = [m.model if isinstance(m, Learner) else m for m in contents]
    return max(sum(p.numel() for p in m.parameters()) for m in modules if isinstance(m, nn.Module))


def loop(model: nn.Module, logits: Callable[[Batch], Tensor]) -> Step:
    """A step as a plain PyTorch program has it."""
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, (0.9, 0.98), 1e-9)
    entropy = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=SMOOTHING)

    def step(batch: Batch) -> float:
        loss: Tensor = entropy(logits(batch).flatten(0, 1), batch.target_out.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step
