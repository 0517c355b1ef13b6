"""Translations of texts that are longer than a model reads: in parts, which are joined again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from softlook.decode.alignment import Alignment, concat_alignments
from softlook.decode.outputs import FinishReason
from softlook.decode.sentences import halve_to_fit, join_translations, part_separators, split_sentences, split_to_fit
from softlook.decode.sessions import max_target_length
from softlook.tokens import TextTokenizer
from softlook.tokens.tokenizer import MAX_TEXT_CHARS

MAX_SOURCE_LENGTH = 4096
"""Maximum number of source tokens of a model without a maximum of its own."""
MAX_CHARS_PER_TOKEN = 64
"""A text with more characters per token than this is split without being tokenized as a whole."""


@dataclass(frozen=True)
class ScoredTranslation:
    """One translation of a text."""

    text: str
    score: float
    """Log-probability divided by the length penalty; of a text translated in parts, the sum."""
    logprob: float
    alignment: Alignment | None = None
    finish_reason: FinishReason = "eos"


def max_source_length(model: Any, training_length: int | None = None) -> int:
    """Maximum number of source tokens, special tokens included: that of training if known, within the context.

    >>> from softlook.models import Transformer, TransformerConfig
    >>> model = Transformer(TransformerConfig(vocab_size=10, context=64, dim=8, depth=1, heads=1, positions="learned"))
    >>> max_source_length(model), max_source_length(model, training_length=32)
    (64, 32)
    """
    if training_length is None:
        return getattr(model.config, "context", MAX_SOURCE_LENGTH)
    return min(training_length, max_target_length(model) or training_length)


def split_source(
    tokenizer: TextTokenizer, text: str, max_tokens: int, *, split_all_sentences: bool = False
) -> list[str]:
    """A text in parts of at most `max_tokens` tokens, without special tokens: one part if it fits, else sentences.

    `split_all_sentences` also splits texts that fit. Joined, the parts are the text.
    """
    max_chars = min(MAX_CHARS_PER_TOKEN * max_tokens, MAX_TEXT_CHARS)

    def fits(part: str) -> bool:
        return len(part) <= max_chars and len(tokenizer.encode([part])[0]) <= max_tokens

    if split_all_sentences:
        return [part for sentence in split_sentences(text) for part in halve_to_fit(sentence, fits)]
    return split_to_fit(text, fits)


def merge_translations(
    parts: Sequence[str], candidates: Sequence[Sequence[ScoredTranslation]]
) -> list[ScoredTranslation]:
    """The candidates for a text, best first, from those of its parts: the n-th best of each part together."""
    if len(parts) == 1:
        return list(candidates[0])
    return [_merge(parts, chosen) for chosen in zip(*candidates, strict=False)]


def _merge(parts: Sequence[str], chosen: Sequence[ScoredTranslation]) -> ScoredTranslation:
    texts = [one.text for one in chosen]
    alignments = [one.alignment for one in chosen if one.alignment is not None]
    merged = None
    if alignments:
        merged = concat_alignments(alignments, part_separators(parts, parts), part_separators(parts, texts))
    return ScoredTranslation(
        join_translations(parts, texts),
        sum(one.score for one in chosen),
        sum(one.logprob for one in chosen),
        merged,
        "length" if any(one.finish_reason == "length" for one in chosen) else "eos",
    )
