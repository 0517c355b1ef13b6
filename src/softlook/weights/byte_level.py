"""Byte-level tokenizers, put together from their parts: words, which pieces join first, and where text is cut."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from softlook.base.errors import WeightsError

CONTROL, WHOLE = 3, 4
"""Kinds of tokens: those that steer a model, and words that are never cut. All others are found by joining pieces."""


def _words(digits: int) -> pre_tokenizers.PreTokenizer:
    """Cut into words and the sign before, numbers of so many digits, signs and the line ends behind, and space."""
    parts = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        rf"\p{{N}}{{1,{digits}}}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
    cut = pre_tokenizers.Split(Regex("|".join(parts)), behavior="isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


AS_GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
CUTS: Mapping[str, pre_tokenizers.PreTokenizer] = {
    "default": AS_GPT2,
    "gpt-2": AS_GPT2,
    "llama-bpe": _words(digits=3),
    "qwen2": _words(digits=1),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), AS_GPT2]),
}
"""How text is cut before pieces are joined, by the name that llama.cpp gives it."""


@dataclass(frozen=True)
class Parts:
    """What a byte-level tokenizer is made of."""

    tokens: Sequence[str]
    """The words, by their ids."""
    merges: Sequence[str]
    """Pairs of pieces that are joined, the most urgent first."""
    kinds: Sequence[int] = ()
    """What kind of token each is."""
    cut: str = "default"
    """How text is cut first."""
    first: int | None = None
    """A token to put before every text."""


def put_together(parts: Parts) -> Tokenizer:
    """A tokenizer made of its parts, and tried.

    >>> made = put_together(Parts(tokens=["a", "b", "ab", "<end>"], merges=["a b"], kinds=[1, 1, 1, 3]))
    >>> made.encode("aab<end>").ids
    [0, 2, 3]
    """
    if parts.cut not in CUTS:
        raise WeightsError(f"this tokenizer cuts text as {parts.cut!r:.40}; known are {', '.join(CUTS)}")
    if parts.kinds and len(parts.kinds) != len(parts.tokens):
        raise WeightsError(f"this tokenizer has {len(parts.tokens)} tokens, and kinds for {len(parts.kinds)}")
    if parts.first is not None and parts.first not in range(len(parts.tokens)):
        raise WeightsError(
            f"this tokenizer puts token {parts.first!r} before a text, and has {len(parts.tokens)} tokens"
        )
    try:
        made = _made(parts)
        made.decode(made.encode("a few words").ids)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:  # the library behind it panics, and a panic is no Exception
        raise WeightsError(f"this tokenizer cannot be put together: {str(fault):.200}") from None
    return made


def _made(parts: Parts) -> Tokenizer:
    vocab = {token: number for number, token in enumerate(parts.tokens)}
    merges = [(one, other) for one, other in (merge.split(" ") for merge in parts.merges)]
    as_a_whole = parts.cut == "llama-bpe"  # where a word is a token, that is it, whichever way its pieces would join
    made = Tokenizer(BPE(vocab, merges, ignore_merges=as_a_whole))
    made.pre_tokenizer = CUTS[parts.cut]  # pyright: ignore[reportAttributeAccessIssue]  (its stub knows no setters)
    made.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    kept = [(token, kind) for token, kind in zip(parts.tokens, parts.kinds, strict=False) if kind in (CONTROL, WHOLE)]
    made.add_special_tokens([AddedToken(token, normalized=False) for token, kind in kept if kind == CONTROL])
    made.add_tokens([AddedToken(token, normalized=False) for token, kind in kept if kind == WHOLE])
    if parts.first is not None:
        token = parts.tokens[parts.first]
        template = processors.TemplateProcessing(single=[token, "$A"], special_tokens=[(token, parts.first)])
        made.post_processor = template  # pyright: ignore[reportAttributeAccessIssue]
    return made
