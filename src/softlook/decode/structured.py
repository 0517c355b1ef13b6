"""Structured outputs: JSON schemas and regular expressions.

Allowed tokens are computed by llguidance, an optional dependency: `pip install softlook[constrained]`.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode.logits_processors import as_id_set
from softlook.decode.outputs import SequenceView
from softlook.tokens import TextTokenizer

EosIds = int | Collection[int]


def json_schema(
    tokenizer: TextTokenizer,
    schema: Mapping[str, Any],
    *,
    eos_ids: EosIds | None = None,
    limits: Mapping[str, int] | None = None,
) -> "GrammarConstraint":
    """The output is JSON that conforms to the schema, without optional whitespace, then an end-of-sequence token.

    The JSON is complete if generation ended with "eos"; at the length limit it may be cut off. `eos_ids` default to the
    tokenizer's. `limits` are arguments of llguidance's LLParserLimits, for untrusted schemas.
    """
    matcher = _llguidance().LLMatcher
    try:
        grammar = matcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_flexible": False})
    except ValueError as error:
        raise ConfigError(f"unsupported JSON schema: {str(error):.300}") from None
    return GrammarConstraint(tokenizer, grammar, eos_ids, limits)


def regex(tokenizer: TextTokenizer, pattern: str, *, eos_ids: EosIds | None = None) -> "GrammarConstraint":
    """The whole output matches the regular expression, then an end-of-sequence token."""
    return GrammarConstraint(tokenizer, _llguidance().LLMatcher.grammar_from_regex(pattern), eos_ids)


class GrammarConstraint:
    """A logits processor that masks tokens which the grammar does not allow.

    The parser state of each sequence is kept for one step. An unknown sequence is parsed from the start, so that rows
    may leave, join, change order or be copied.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        grammar: str,
        eos_ids: EosIds | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        llguidance = _llguidance()
        vocabulary = _vocabulary(tokenizer, as_id_set(tokenizer.eos_id if eos_ids is None else eos_ids))
        parser_limits = llguidance.LLParserLimits(**(limits or {}), verbose_errors=False)
        self.initial = llguidance.LLMatcher(vocabulary, grammar, log_level=0, limits=parser_limits)
        self.matchers: dict[tuple[int, ...], Any] = {}
        if self.initial.is_error():
            raise ConfigError(f"unsupported grammar: {self.initial.get_error():.300}")

    def __call__(self, logits: Float[Tensor, "N V"], sequences: Sequence[SequenceView]) -> Float[Tensor, "N V"]:
        self.matchers = {ids: self._matcher(ids) for ids in {tuple(one.generated) for one in sequences}}
        allowed = [self._allowed(self.matchers[tuple(one.generated)], logits.shape[-1]) for one in sequences]
        return logits.masked_fill(~torch.stack(allowed).to(logits.device), -torch.inf)

    def _matcher(self, generated: tuple[int, ...]) -> Any:
        if generated in self.matchers:
            return self.matchers[generated]
        known = self.matchers.get(generated[:-1]) if generated else None
        matcher = (self.initial if known is None else known).deep_copy()
        if not matcher.consume_tokens(list(generated if known is None else generated[-1:])):
            raise ConfigError(f"{list(generated)} violates the grammar: {matcher.get_error()}")
        return matcher

    def _allowed(self, matcher: Any, vocab_size: int) -> Tensor:
        """Tokens that may follow; ids beyond the tokenizer's vocabulary are never allowed."""
        allowed = torch.frombuffer(bytearray(matcher.compute_logit_bias()), dtype=torch.uint8)[:vocab_size] > 0
        if matcher.is_error():  # the next token exceeds the parser limits
            raise ConfigError(f"the grammar cannot be followed any further: {matcher.get_error():.300}")
        return torch.cat([allowed, allowed.new_zeros(vocab_size - len(allowed))])


_VOCABULARIES: WeakKeyDictionary[TextTokenizer, dict[frozenset[int], Any]] = WeakKeyDictionary()


def _vocabulary(tokenizer: TextTokenizer, eos_ids: frozenset[int]) -> Any:
    """The tokens as bytes, cached per tokenizer: a large vocabulary takes a second."""
    cached = _VOCABULARIES.setdefault(tokenizer, {})
    if eos_ids not in cached:
        try:
            cached[eos_ids] = _llguidance().LLTokenizer(tokenizer.tokenizer.to_str(), eos_token=sorted(eos_ids))
        except ValueError as error:
            raise ConfigError(
                f"the bytes of this tokenizer's tokens are unknown ({error}). "
                "Structured output supports byte, byte-level and SentencePiece-style tokenizers"
            ) from None
    return cached[eos_ids]


def _llguidance() -> Any:
    try:
        return import_module("llguidance")
    except ImportError:
        raise ConfigError("structured output needs llguidance: pip install softlook[constrained]") from None
