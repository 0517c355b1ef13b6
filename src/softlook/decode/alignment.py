"""Word alignments of translations from cross-attention."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore, CrossAttention
from softlook.decode.cpu import FusedCrossAttention
from softlook.decode.detokenizer import IncrementalDetokenizer
from softlook.decode.sessions import model_device
from softlook.decode.token_tensors import pad_right
from softlook.models import RNNSearch
from softlook.tokens import TextTokenizer
from softlook.weights.assets import SpecialTokens

IndexPairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Alignment:
    """Cross-attention weights between the tokens of a translation and of its source: last layer, mean over heads."""

    source: list[str]
    """Text of each source token."""
    target: list[str]
    """Text of each target token."""
    weights: Float[Tensor, "T S"]

    def token_pairs(self) -> IndexPairs:
        """(source, target) indices: for each target token, the source token with the largest weight."""
        if not self.source:
            return []
        return sorted((source, target) for target, source in enumerate(self.weights.argmax(1).tolist()))

    def word_pairs(self) -> IndexPairs:
        """The same for words separated by whitespace; weights are summed over the tokens of a word."""
        source_words, target_words = _group_words(self.source), _group_words(self.target)
        if not source_words or not target_words:
            return []
        by_word = torch.stack([self.weights[:, tokens].sum(1) for tokens in source_words], 1)
        best = [int(by_word[tokens].sum(0).argmax()) for tokens in target_words]
        return sorted((source, target) for target, source in enumerate(best))


def format_pharaoh(pairs: IndexPairs) -> str:
    """Pairs in the Pharaoh format of word alignment tools, counted from 0.

    >>> format_pharaoh([(0, 1), (2, 0)])
    '0-1 2-0'
    """
    return " ".join(f"{source}-{target}" for source, target in pairs)


@torch.no_grad()
def cross_attention_maps(
    model: Any, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[Float[Tensor, "T S"]]:
    """Cross-attention weights of the last layer for pairs of source ids and decoder input ids, mean over heads.

    All pairs are computed in one forward pass; memory grows with the product of both lengths.
    """
    device = model_device(model)
    (source_ids, source_mask), (target_ids, _) = pad_right(sources, device), pad_right(targets, device)
    with record_weights(last_cross_attention(model)) as maps:
        model(source_ids, target_ids, source_padding_mask=source_mask)
    mean = torch.cat(maps, 2).mean(1).float().cpu()
    return [one[: len(target), : len(source)] for one, target, source in zip(mean, targets, sources, strict=True)]


def build_alignment(
    tokenizer: TextTokenizer,
    special_tokens: SpecialTokens,
    weights: Float[Tensor, "T S"],
    source: Sequence[int],
    target: Sequence[int],
) -> Alignment:
    """The alignment of a source and a target, as the model read them, without special tokens."""
    special = frozenset(tokenizer.special_ids) | {*special_tokens.prefix, *special_tokens.suffix}
    rows = [index for index, id in enumerate(target) if id not in special]
    columns = [index for index, id in enumerate(source) if id not in special]
    return Alignment(
        token_texts(tokenizer, [source[index] for index in columns]),
        token_texts(tokenizer, [target[index] for index in rows]),
        weights[rows][:, columns],
    )


def concat_alignments(
    alignments: Sequence[Alignment], source_separators: Sequence[str], target_separators: Sequence[str]
) -> Alignment:
    """The alignment of a text that was translated in parts: no token is aligned to another part.

    The separators are the whitespace before each part; it becomes part of the first token.

    >>> parts = [Alignment(["a"], ["A"], torch.ones(1, 1)), Alignment(["b"], ["B"], torch.ones(1, 1))]
    >>> concat_alignments(parts, ["", " "], ["", " "]).word_pairs()
    [(0, 0), (1, 1)]
    """
    source, target = list[str](), list[str]()
    for one, before_source, before_target in zip(alignments, source_separators, target_separators, strict=True):
        source += [before_source + "".join(one.source[:1]), *one.source[1:]] if one.source else []
        target += [before_target + "".join(one.target[:1]), *one.target[1:]] if one.target else []
    return Alignment(source, target, torch.block_diag(*(one.weights for one in alignments)))


def token_texts(tokenizer: TextTokenizer, ids: Sequence[int], after: Sequence[int] = ()) -> list[str]:
    """The text that each token adds; a token that completes a character adds all of it."""
    detokenizer = IncrementalDetokenizer(tokenizer, after)
    texts = [detokenizer.push(id) for id in ids]
    return [*texts[:-1], texts[-1] + detokenizer.finish()] if texts else []


def last_cross_attention(model: Any) -> AttentionCore:
    """The cross-attention of the last layer."""
    if isinstance(model, RNNSearch):
        return model.decoder.align.core
    layers = [module for module in model.modules() if isinstance(module, CrossAttention | FusedCrossAttention)]
    core = layers[-1].core if layers else None
    if not isinstance(core, AttentionCore):
        raise ConfigError(f"{type(model).__name__} has no cross-attention: expected an encoder-decoder")
    return core


@contextmanager
def record_weights(core: AttentionCore) -> Iterator[list[Float[Tensor, "B H T S"]]]:
    """Record the weights of an attention at each call: all target positions at once, or one after another in an RNN."""
    maps: list[Tensor] = []

    def record(module: AttentionCore, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, *rest = args
        maps.append(module.weights(query, key, *rest))

    hook = core.register_forward_hook(record)
    try:
        yield maps
    finally:
        hook.remove()


def _group_words(texts: Sequence[str]) -> list[list[int]]:
    """Indices of the tokens of each word; whitespace belongs to none."""
    words: list[list[int]] = []
    is_start = True
    for index, text in enumerate(texts):
        starts_word = is_start or text[:1].isspace()
        if text.strip():
            words = [*words, [index]] if starts_word or not words else [*words[:-1], [*words[-1], index]]
        is_start = text[-1:].isspace() if text.strip() or not text else True
    return words
