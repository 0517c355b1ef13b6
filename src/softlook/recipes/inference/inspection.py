"""Attention of a text model for one text: labeled maps of every layer, and a summary of every head."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ConfigError, DataError
from softlook.base.tensors import supported_token_types
from softlook.blocks.alignment import AlignmentModel
from softlook.blocks.attention import CrossAttention
from softlook.decode.alignment import token_texts
from softlook.decode.cpu import FusedCrossAttention
from softlook.lens.figures.attention_map import MAX_SIDE
from softlook.lens.head_scores import head_table
from softlook.lens.head_table import HeadTable
from softlook.lens.trace import Trace, trace
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


@dataclass(frozen=True, eq=False)
class EncodedText:
    """A text as the input of a model: token ids of each argument, further inputs, and the texts of the tokens."""

    ids: tuple[Sequence[int], ...]
    inputs: dict[str, Any]
    tokens: list[str]
    """Of the queries; of an encoder-decoder, those that the decoder reads."""
    source_tokens: list[str] | None = None
    predicted: list[str] | None = None
    """Of an encoder-decoder: the tokens that each query predicts."""


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
    encoded = encode_text(pipeline, text, pair, target=target)
    return layers_of(pipeline, encoded, trace_encoded(pipeline, encoded))


def trace_text(
    pipeline: Pipeline,
    text: str | TextInput,
    pair: str | None = None,
    *,
    target: str | None = None,
    values: bool = False,
) -> Trace:
    """The trace of a model reading a text; arguments as for `inspect_attention`, `values` as for `softlook.lens.trace`.

    >>> from softlook.recipes.inference import load_pipeline
    >>> recorded = trace_text(load_pipeline("dates", device="cpu"), "3 mars 2022")
    >>> recorded["decoder.blocks.1.cross_attn"].shape, recorded.source_tokens[:2]
    ((1, 4, 11, 12), ['3', ' '])
    """
    return trace_encoded(pipeline, encode_text(pipeline, text, pair, target=target), values=values)


def trace_encoded(pipeline: Pipeline, encoded: EncodedText, *, values: bool = False) -> Trace:
    """The trace of a forward pass."""
    with (
        torch.no_grad(),
        trace(pipeline.model, values=values, tokens=encoded.tokens, source_tokens=encoded.source_tokens) as recorded,
    ):
        pipeline.model(*map(pipeline.to_tensor, encoded.ids), **encoded.inputs)
    return recorded


def encode_text(
    pipeline: Pipeline, text: str | TextInput, pair: str | None = None, *, target: str | None = None
) -> EncodedText:
    """The input of a model for a text; arguments as for `inspect_attention`."""
    item = text if isinstance(text, TextInput) else TextInput(text, pair)
    mode = getattr(pipeline.model, "mode", "")
    if isinstance(pipeline.model, SkipGram):
        raise ConfigError(f"{pipeline.name} holds word vectors, which have no attention")
    if item.pair is not None and not isinstance(pipeline.model, TextEncoder):
        raise ConfigError(f"{pipeline.name} reads one text; only encoders read a second")
    if target is not None and mode != "encoder-decoder":
        raise ConfigError(f"{pipeline.name} is not an encoder-decoder: only these have a target")
    if mode == "encoder-decoder":
        return _encode_seq2seq(pipeline, item, target)
    ids, inputs = model_inputs(pipeline, item)
    return EncodedText((ids,), inputs, token_labels(pipeline.tokenizer, ids))


def layers_of(pipeline: Pipeline, encoded: EncodedText, recorded: Trace) -> list[LayerAttention]:
    """The maps of a trace with the texts of their queries and keys."""
    for labels in filter(None, (encoded.tokens, encoded.source_tokens)):
        if len(labels) >= MAX_SIDE:
            raise DataError(
                f"the text has {len(labels):,} tokens; at most {MAX_SIDE - 1} can be shown", help="shorten it"
            )
    layers: list[LayerAttention] = []
    for path, layer in recorded.items():
        kind, (queries, keys) = attention_labels(pipeline, encoded, path)
        number = sum(one.type == kind for one in layers)
        layers.append(LayerAttention(path, kind, number, queries, keys, layer.weights()[0].float().cpu()))
    return layers


def attention_labels(
    pipeline: Pipeline, encoded: EncodedText, path: str
) -> tuple[AttentionType, tuple[list[str], list[str]]]:
    """The type of the attention at a path, and the texts of its queries and keys."""
    source, read = encoded.source_tokens, encoded.tokens
    if source is None:
        return "self", (read, read)
    kind = _attention_type(pipeline.model, path)
    if kind == "cross":
        return kind, (encoded.predicted or read, source)
    return kind, (source, source) if kind == "encoder" else (read, read)


def inspect_heads(pipeline: Pipeline, text: str, pair: str | None = None) -> HeadTable:
    """Scores of every head of an encoder or a language model, on a text and on repeated random tokens."""
    if getattr(pipeline.model, "mode", "") == "encoder-decoder" or isinstance(pipeline.model, SkipGram):
        raise ConfigError(f"head scores need an encoder or a language model; {pipeline.name} is neither")
    ids, inputs = model_inputs(pipeline, TextInput(text, pair))
    return head_table(pipeline.model, torch.tensor([list(ids)], device=pipeline.device), **inputs)


def model_inputs(pipeline: Pipeline, item: TextInput) -> tuple[Sequence[int], dict[str, Any]]:
    """Token ids of a text for an encoder or a language model, and further inputs."""
    if isinstance(pipeline.model, TextEncoder):
        (row,) = tokenize(pipeline, [item])
        types = supported_token_types(pipeline.model, torch.tensor([row.token_types], device=pipeline.device))
        return row.ids, {} if types is None else {"token_types": types}
    ids = [*pipeline.special_tokens.prefix, *pipeline.tokenizer.encode([item.text])[0]]
    return ids or list(pipeline.special_tokens.start), {}


def _encode_seq2seq(pipeline: Pipeline, item: TextInput, target: str | None) -> EncodedText:
    model, special, tokenizer = pipeline.model, pipeline.special_tokens, pipeline.tokenizer
    if not special.start or not special.eos:
        raise ConfigError(f"{pipeline.name} has no decoder start token or no EOS token")
    source = [*special.prefix, *tokenizer.encode([item.text.strip()])[0], *special.suffix]
    if target is None:
        found = search_translations(
            model, [source], bos_id=special.start[0], eos_ids=special.eos, config=pipeline.generation_config
        )
        target_ids = list(found[0][0].ids)
    else:
        forced = pipeline.generation_config.forced_bos_token_id
        target_ids = [*([] if forced is None else [forced]), *tokenizer.encode([target.strip()])[0]]
    read, predicted = [*special.start, *target_ids], [*target_ids, special.eos[0]]
    return EncodedText((source, read), {}, *(token_labels(tokenizer, ids) for ids in (read, source, predicted)))


def _attention_type(model: Any, path: str) -> AttentionType:
    if isinstance(model.get_submodule(path), CrossAttention | FusedCrossAttention | AlignmentModel):
        return "cross"
    return "encoder" if path.startswith("encoder") else "decoder"


def token_labels(tokenizer: TextTokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token without outer spaces; of a special token or a part of a character, its name."""
    texts = token_texts(tokenizer, ids)
    names = [tokenizer.tokenizer.id_to_token(id) or str(id) for id in ids]
    return [text.strip() or text or name for text, name in zip(texts, names, strict=True)]
