"""Answers of a form that is told beforehand: JSON by a schema, or text by a regular expression.

What may come next is worked out by llguidance, as an extra: `pip install softlook[constrained]`.
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
from softlook.decode.rules import ends_of
from softlook.decode.said import Said
from softlook.tokens import TextTokenizer

Ends = int | Collection[int]
"""The ids that end an answer."""


def json_schema(
    tokenizer: TextTokenizer,
    schema: Mapping[str, Any],
    *,
    end: Ends | None = None,
    limits: Mapping[str, int] | None = None,
) -> "Grammar":
    """The answer is JSON by this schema, without needless spaces, and then its end (the tokenizer's, where not told).

    It is whole where an end was said; where there was no more room it is only a beginning. `limits` are arguments of
    llguidance's LLParserLimits, for schemas that come from strangers.
    """
    matcher = _library().LLMatcher
    try:
        grammar = matcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_flexible": False})
    except ValueError as fault:
        raise ConfigError(f"this JSON schema cannot be followed: {str(fault):.300}") from None
    return Grammar(tokenizer, grammar, end, limits)


def regex(tokenizer: TextTokenizer, pattern: str, *, end: Ends | None = None) -> "Grammar":
    """The answer, as a whole, is as this regular expression says, and then its end."""
    return Grammar(tokenizer, _library().LLMatcher.grammar_from_regex(pattern), end)


class Grammar:
    """A rule: only what can still become an answer of the right form may be said.

    What it works out for a sequence it keeps for one word more. A sequence that it does not know is read anew, so that
    rows may leave, join, change places or be copied as they like.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        grammar: str,
        end: Ends | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        library = _library()
        self.words = _words(tokenizer, ends_of(tokenizer.end if end is None else end))
        bounds = library.LLParserLimits(**(limits or {}), verbose_errors=False)
        self.fresh = library.LLMatcher(self.words, grammar, log_level=0, limits=bounds)
        self.kept: dict[tuple[int, ...], Any] = {}
        if self.fresh.is_error():
            raise ConfigError(f"this form cannot be followed: {self.fresh.get_error():.300}")

    def __call__(self, scores: Float[Tensor, "N V"], said: Sequence[Said]) -> Float[Tensor, "N V"]:
        self.kept = {new: self._after(new) for new in {tuple(one.new) for one in said}}
        allowed = [self._allowed(self.kept[tuple(one.new)], scores.shape[-1]) for one in said]
        return scores.masked_fill(~torch.stack(allowed).to(scores.device), -torch.inf)

    def _after(self, new: tuple[int, ...]) -> Any:
        if new in self.kept:
            return self.kept[new]
        known = self.kept.get(new[:-1]) if new else None
        matcher = (self.fresh if known is None else known).deep_copy()
        if not matcher.consume_tokens(list(new if known is None else new[-1:])):
            raise ConfigError(f"{list(new)} is no beginning of the form that was told: {matcher.get_error()}")
        return matcher

    def _allowed(self, matcher: Any, vocab: int) -> Tensor:
        """Words that may come; a model may have more than its tokenizer knows, and those never do."""
        told = torch.frombuffer(bytearray(matcher.compute_logit_bias()), dtype=torch.uint8)[:vocab] > 0
        if matcher.is_error():  # it gave up: what comes next takes more work than its limits allow
            raise ConfigError(f"this form cannot be followed further: {matcher.get_error():.300}")
        return torch.cat([told, told.new_zeros(vocab - len(told))])


_KNOWN: WeakKeyDictionary[TextTokenizer, dict[frozenset[int], Any]] = WeakKeyDictionary()


def _words(tokenizer: TextTokenizer, ends: frozenset[int]) -> Any:
    """The tokens as bytes. For a large vocabulary this takes a second, so it is kept as long as the tokenizer is."""
    known = _KNOWN.setdefault(tokenizer, {})
    if ends not in known:
        try:
            known[ends] = _library().LLTokenizer(tokenizer.tokenizer.to_str(), eos_token=sorted(ends))
        except ValueError as fault:
            raise ConfigError(
                f"which bytes the tokens of this tokenizer stand for is not known ({fault}). "
                "Tokenizers of bytes, byte-level ones and those in the manner of sentencepiece can be told a form"
            ) from None
    return known[ends]


def _library() -> Any:
    try:
        return import_module("llguidance")
    except ImportError:
        raise ConfigError(
            "to tell the form of an answer, llguidance is needed: pip install softlook[constrained]"
        ) from None
