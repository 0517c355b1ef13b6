"""Attention of a text model for one text: labeled maps of every layer, and a summary of every head."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.base.tensors import supported_token_types
from softlook.blocks.alignment import AlignmentModel
from softlook.blocks.attention import CrossAttention
from softlook.decode.alignment import token_texts
from softlook.decode.cpu import FusedCrossAttention
from softlook.lens.figures.attention_map import MAX_SIDE
from softlook.lens.trace import attention_maps
from softlook.models import SkipGram, TextEncoder
from softlook.recipes.inference.encoding import tokenize
from softlook.recipes.inference.pipeline import Pipeline, TextInput
from softlook.recipes.inference.translation import search_translations
from softlook.tokens import TextTokenizer

AttentionType = Literal["self", "encoder", "decoder", "cross"]
"""Self-attention; of encoder-decoders, self-attention of the encoder and of the decoder, and cross-attention."""
TITLES: dict[AttentionType, str] = {
    "self": "self-attention",
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
OFFSETS = {0: "the same token", -1: "the previous token", 1: "the next token"}


@dataclass(frozen=True)
class HeadSummary:
    """Statistics of one attention map."""

    entropy: float
    """Mean over the queries, in nats: 0 for one key, log n for n equal weights."""
    attends_to: str
    """The key, or the relative position, with the largest weight on average."""
    weight: float
    """That weight: the mean over the queries."""


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """Attention weights of one layer for one text."""

    path: str
    """The path of the attention module in the model."""
    type: AttentionType
    layer: int
    queries: list[str]
    """Text of the token of each row; in cross-attention, of the token that is predicted."""
    keys: list[str]
    weights: Float[Tensor, "H T S"]

    def summary(self, head: int | None = None) -> HeadSummary:
        """Statistics of one head, or of the mean over heads."""
        weights = (self.weights.mean(0) if head is None else self.weights[head]).double()
        candidates = [(weight, self._key_name(index)) for index, weight in enumerate(weights.mean(0).tolist())]
        if self.type != "cross":
            diagonals = ((weights.diagonal(offset), name) for offset, name in OFFSETS.items())
            candidates += [(diagonal.mean().item(), name) for diagonal, name in diagonals if len(diagonal)]
        weight, name = max(candidates, key=lambda candidate: candidate[0])
        return HeadSummary(-torch.xlogy(weights, weights).sum(-1).mean().item(), name, weight)

    def _key_name(self, index: int) -> str:
        """A key in quotes, with its index if there are several."""
        key = self.keys[index]
        return repr(key) if self.keys.count(key) == 1 else f"{key!r} (token {index})"


def inspect_attention(
    pipeline: Pipeline, text: str | TextInput, pair: str | None = None, *, target: str | None = None
) -> list[LayerAttention]:
    """The attention weights of every layer of a model for a text, in the order of the layers.

    - `pair`: a second text, for encoders that read two.
    - `target`: the target of an encoder-decoder; default: its own greedy translation.

    >>> from softlook.recipes.inference import load_pipeline
    >>> layers = inspect_attention(load_pipeline("dates", device="cpu"), "3 mars 2022")
    >>> cross = [layer for layer in layers if layer.type == "cross"][-1]
    >>> "".join(cross.keys[:-1]), "".join(cross.queries[:-1])
    ('3 mars 2022', '2022-03-03')
    """
    item = text if isinstance(text, TextInput) else TextInput(text, pair)
    mode = getattr(pipeline.model, "mode", "")
    if isinstance(pipeline.model, SkipGram):
        raise ConfigError(f"{pipeline.name} holds word vectors, which have no attention")
    if item.pair is not None and not isinstance(pipeline.model, TextEncoder):
        raise ConfigError(f"{pipeline.name} reads one text; only encoders read a second")
    if target is not None and mode != "encoder-decoder":
        raise ConfigError(f"{pipeline.name} is no encoder-decoder, so there is no target")
    if mode == "encoder-decoder":
        return _inspect_seq2seq(pipeline, item, target)
    if isinstance(pipeline.model, TextEncoder):
        (row,) = tokenize(pipeline, [item])
        types = torch.tensor([row.token_types], device=pipeline.device)
        inputs = {"token_types": supported_token_types(pipeline.model, types)}
        return _inspect_self(pipeline, item, row.ids, inputs)
    ids = [*pipeline.special_tokens.prefix, *pipeline.tokenizer.encode([item.text])[0]]
    return _inspect_self(pipeline, item, ids or list(pipeline.special_tokens.start), {})


def _inspect_self(
    pipeline: Pipeline, item: TextInput, ids: Sequence[int], inputs: dict[str, Any]
) -> list[LayerAttention]:
    _check_length(item, ids)
    maps = attention_maps(pipeline.model, torch.tensor([list(ids)], device=pipeline.device), **inputs)
    labels = token_labels(pipeline.tokenizer, ids)
    return [
        LayerAttention(path, "self", layer, labels, labels, weights[0].float().cpu())
        for layer, (path, weights) in enumerate(maps.items())
    ]


def _inspect_seq2seq(pipeline: Pipeline, item: TextInput, target: str | None) -> list[LayerAttention]:
    model, special, tokenizer = pipeline.model, pipeline.special_tokens, pipeline.tokenizer
    if not special.start or not special.eos:
        raise ConfigError(f"{pipeline.name} has no decoder start token or no EOS token")
    source = [*special.prefix, *tokenizer.encode([item.text.strip()])[0], *special.suffix]
    _check_length(item, source)
    if target is None:
        found = search_translations(
            model, [source], bos_id=special.start[0], eos_ids=special.eos, config=pipeline.generation_config
        )
        target_ids = list(found[0][0].ids)
    else:
        forced = pipeline.generation_config.forced_bos_token_id
        target_ids = [*([] if forced is None else [forced]), *tokenizer.encode([target.strip()])[0]]
    _check_length(TextInput(target or tokenizer.decode(target_ids)), target_ids)
    read, predicted = [*special.start, *target_ids], [*target_ids, special.eos[0]]
    maps = attention_maps(model, *(torch.tensor([ids], device=pipeline.device) for ids in (source, read)))
    source_labels, read_labels = token_labels(tokenizer, source), token_labels(tokenizer, read)
    labels: dict[AttentionType, tuple[list[str], list[str]]] = {
        "encoder": (source_labels, source_labels),
        "decoder": (read_labels, read_labels),
        "cross": (token_labels(tokenizer, predicted), source_labels),
    }
    layers: list[LayerAttention] = []
    for path, weights in maps.items():
        kind = _attention_type(model, path)
        layer = sum(one.type == kind for one in layers)
        layers.append(LayerAttention(path, kind, layer, *labels[kind], weights[0].float().cpu()))
    return layers


def _attention_type(model: Any, path: str) -> AttentionType:
    if isinstance(model.get_submodule(path), CrossAttention | FusedCrossAttention | AlignmentModel):
        return "cross"
    return "encoder" if path.startswith("encoder") else "decoder"


def token_labels(tokenizer: TextTokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token without outer spaces; of a special token or a part of a character, its name."""
    texts = token_texts(tokenizer, ids)
    names = [tokenizer.tokenizer.id_to_token(id) or str(id) for id in ids]
    return [text.strip() or text or name for text, name in zip(texts, names, strict=True)]


def _check_length(item: TextInput, ids: Sequence[int]) -> None:
    if len(ids) >= MAX_SIDE:
        raise item.error(f"the text has {len(ids):,} tokens; at most {MAX_SIDE - 1} can be shown", "shorten it")
