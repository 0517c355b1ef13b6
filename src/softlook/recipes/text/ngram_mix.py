"""The gate between attention and the n-grams of a language model, fitted on held-out text."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.heads.ngram_lm import GatedMix, NGramLM, mix_logprobs
from softlook.losses import IGNORE_INDEX
from softlook.recipes.text.baselines import ngram_order, sample_documents
from softlook.recipes.text.ngram_lm import KneserNeyModel
from softlook.train.batching.packed_stream import TokenizedDocuments

MAX_TOKENS = 2_000_000
"""Tokens that n-grams are counted in: more would make checkpoints of hundreds of megabytes."""
MAX_ITERATIONS, PENALTY = 50, 0.1
"""Of L-BFGS; and of the squares of the gate's weights, divided by the number of tokens."""


class HeldOutTokens(NamedTuple):
    """Log-probabilities of held-out tokens, and the features of the gate."""

    features: Float[Tensor, "N F"]
    attention: Float[Tensor, " N"]
    own: Float[Tensor, " N"]
    """Of the n-grams."""


def build_ngram_lm(train: TokenizedDocuments, *, vocab_size: int, characters: int) -> NGramLM:
    """The n-gram model of a training text, from a sample of a long one.

    >>> documents = TokenizedDocuments(torch.tensor([1, 2, 3] * 20), torch.tensor([0]))
    >>> build_ngram_lm(documents, vocab_size=4, characters=60).config.order
    8
    """
    order = ngram_order(characters, len(train.ids))
    return KneserNeyModel(sample_documents(train, MAX_TOKENS), vocab_size=vocab_size, order=order).to_module()


@torch.no_grad()
def predict_tokens(model: Any, batches: Iterable[tuple[Any, dict[str, Any]]]) -> HeldOutTokens:
    """The predictions of a model's attention and of its n-grams for the labels of batches.

    `batches` are pairs: a batch, and the arguments of the model beside its ids.
    """
    parts = []
    for batch, inputs in batches:
        with without_ngrams(model):
            attention = model(batch.ids, **inputs)
        positions = inputs.get("positions", torch.arange(batch.ids.shape[1], device=batch.ids.device))
        own, length = model.ngrams.logprobs(batch.ids, positions.expand(len(batch.ids), -1))
        is_used = batch.labels != IGNORE_INDEX
        attention = attention[is_used].float().log_softmax(-1)
        parts.append(held_out_tokens(model.ngrams, attention, own[is_used], length[is_used], batch.labels[is_used]))
    return HeldOutTokens(*(torch.cat(part) for part in zip(*parts, strict=True)))


def held_out_tokens(
    ngrams: GatedMix,
    attention: Float[Tensor, "N V"],
    own: Float[Tensor, "N V"],
    kind: Int[Tensor, " N"],
    labels: Int[Tensor, " N"],
) -> HeldOutTokens:
    """The log-probabilities of labels, and the features of the gate."""
    features, label = ngrams.gate_features(attention, own, kind), labels[:, None]
    return HeldOutTokens(features, attention.gather(-1, label)[:, 0], own.gather(-1, label)[:, 0])


@contextmanager
def without_ngrams(model: Any) -> Iterator[None]:
    """Attention alone, inside the context."""
    model.ngrams.enabled = False
    try:
        yield
    finally:
        model.ngrams.enabled = True


def fit_gate(tokens: HeldOutTokens) -> Float[Tensor, " F"]:
    """The gate's weights with the lowest loss on held-out tokens.

    >>> tokens = HeldOutTokens(torch.ones(50, 1), torch.full((50,), -0.1), torch.full((50,), -3.0))
    >>> mix_loss(tokens, fit_gate(tokens)) < 0.2
    True
    """
    features, attention, own = (part.double().cpu() for part in tokens)  # a GPU is slow for so few weights
    gate = features.new_zeros(features.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([gate], max_iter=MAX_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = PENALTY / len(own) * gate.square().sum() - mix_logprobs(features, gate, attention, own).mean()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    return gate.detach().float()


def mix_loss(tokens: HeldOutTokens, gate: Float[Tensor, " F"]) -> float:
    """The mean loss of the mix."""
    gate = gate.to(tokens.features.device)
    return -float(mix_logprobs(tokens.features, gate, tokens.attention, tokens.own).mean())


def has_ngrams(model: nn.Module) -> bool:
    """Whether a language model has an n-gram model beside its attention."""
    return getattr(model, "ngrams", None) is not None
