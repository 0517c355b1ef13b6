"""Tagging: the entities of texts, with their character offsets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.tensors import supported_token_types
from softlook.data.tags import find_entities
from softlook.decode.token_tensors import pad_right
from softlook.recipes.inference.pipeline import Pipeline, TextInput, to_inputs
from softlook.tokens.words import Word, WordChunk, WordEncoder, split_words

MAX_BATCH_TOKENS = 1 << 13


@dataclass(frozen=True)
class Entity:
    """A tagged part of a text."""

    text: str
    label: str
    probability: float
    """The mean probability of the tags of its words."""
    start: int
    """The offset of its first character in the text."""
    end: int
    """The offset after its last character."""


@dataclass(frozen=True)
class TextEntities:
    """A text and its entities, in their order."""

    text: str
    entities: list[Entity]


def tag(
    pipeline: Pipeline, texts: Iterable[str | TextInput], *, is_split_into_words: bool = False
) -> list[TextEntities]:
    """Find the entities of texts. A text that is too long for the model is split at a word, if possible after a
    sentence.

    With `is_split_into_words` the texts have spaces between all words and punctuation marks, as in a CoNLL file.
    """
    inputs = to_inputs(texts)
    words = [split_words(one.text, is_split_into_words=is_split_into_words) for one in inputs]
    encoder = WordEncoder(pipeline.require("tag").tokenizer, pipeline.max_input_length)
    logits = word_logits(pipeline.model, encoder, [[word.text for word in row] for row in words])
    results = zip(inputs, words, logits, strict=True)
    return [TextEntities(one.text, entities_of(one.text, row, scores, pipeline.labels)) for one, row, scores in results]


def entities_of(text: str, words: Sequence[Word], logits: Float[Tensor, "W K"], labels: Sequence[str]) -> list[Entity]:
    """The entities in the most likely tags of the words of a text."""
    if not words:
        return []
    probabilities, best = logits.softmax(-1).max(-1)
    found: list[Entity] = []
    for label, first, after in find_entities([labels[int(number)] for number in best]):
        start, end = words[first].start, words[after - 1].end
        found.append(Entity(text[start:end], label, float(probabilities[first:after].mean()), start, end))
    return found


@torch.no_grad()
def word_logits(model: Any, encoder: WordEncoder, texts: Sequence[Sequence[str]]) -> list[Float[Tensor, "W K"]]:
    """Logits of the tags of each word, for each text, computed in batches of similar length."""
    chunks = encoder.encode(texts)
    flat = [chunk for text in chunks for chunk in text]
    order = sorted(range(len(flat)), key=lambda number: len(flat[number].ids))
    outputs: dict[int, Tensor] = {}
    batch: list[int] = []
    for number in [*order, None]:
        if batch and (number is None or (len(batch) + 1) * len(flat[number].ids) > MAX_BATCH_TOKENS):
            outputs |= zip(batch, _forward(model, [flat[item] for item in batch]), strict=True)
            batch = []
        batch += [] if number is None else [number]
    rows = (outputs[number] for number in range(len(flat)))
    return [torch.cat([next(rows) for _ in text] or [torch.empty(0, model.config.classes)]) for text in chunks]


def _forward(model: Any, chunks: Sequence[WordChunk]) -> list[Tensor]:
    """Logits at the first token of each word, for each chunk."""
    device = next(model.parameters()).device
    ids, padding_mask = pad_right([chunk.ids for chunk in chunks], device)
    token_types, _ = pad_right([chunk.token_types for chunk in chunks], device)
    types = supported_token_types(model, token_types)
    logits = model(ids, padding_mask=padding_mask, token_types=types).float().cpu()
    return [row[chunk.positions] for row, chunk in zip(logits, chunks, strict=True)]
