"""Building byte-level BPE tokenizers from their parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from softlook.base.errors import WeightsError

CONTROL, USER_DEFINED = 3, 4
"""Token types of GGUF: control tokens and user-defined tokens. All others result from merges."""


def _split_words(digits: int) -> pre_tokenizers.PreTokenizer:
    """Split into words with a leading character, numbers of up to `digits` digits, punctuation and whitespace."""
    parts = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        rf"\p{{N}}{{1,{digits}}}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
    split = pre_tokenizers.Split(Regex("|".join(parts)), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


GPT2_PRE_TOKENIZER = pre_tokenizers.ByteLevel(add_prefix_space=False)
PRE_TOKENIZERS: Mapping[str, pre_tokenizers.PreTokenizer] = {
    "default": GPT2_PRE_TOKENIZER,
    "gpt-2": GPT2_PRE_TOKENIZER,
    "llama-bpe": _split_words(digits=3),
    "qwen2": _split_words(digits=1),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2_PRE_TOKENIZER]),
}
"""llama.cpp's name -> pre-tokenizer."""


@dataclass(frozen=True)
class BPEParts:
    """The parts of a byte-level BPE tokenizer."""

    tokens: Sequence[str]
    """Tokens in the order of their ids."""
    merges: Sequence[str]
    """Merges by priority: two tokens separated by a space."""
    token_types: Sequence[int] = ()
    """GGUF token type of each token."""
    pre_tokenizer: str = "default"
    """A key of PRE_TOKENIZERS."""
    bos_id: int | None = None
    """A token to prepend to every text."""


def build_bpe_tokenizer(parts: BPEParts) -> Tokenizer:
    """Build and test a tokenizer.

    >>> parts = BPEParts(tokens=["a", "b", "ab", "<end>"], merges=["a b"], token_types=[1, 1, 1, 3])
    >>> build_bpe_tokenizer(parts).encode("aab<end>").ids
    [0, 2, 3]
    """
    if parts.pre_tokenizer not in PRE_TOKENIZERS:
        raise WeightsError(
            f"pre-tokenizer {parts.pre_tokenizer!r:.40} is not supported; supported: {', '.join(PRE_TOKENIZERS)}"
        )
    if parts.token_types and len(parts.token_types) != len(parts.tokens):
        raise WeightsError(f"the tokenizer has {len(parts.tokens)} tokens, but {len(parts.token_types)} token types")
    if parts.bos_id is not None and parts.bos_id not in range(len(parts.tokens)):
        raise WeightsError(f"the BOS id {parts.bos_id!r} is outside the vocabulary of {len(parts.tokens)} tokens")
    try:
        tokenizer = _build(parts)
        tokenizer.decode(tokenizer.encode("a few words").ids)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the Rust library panics, and a panic is not an Exception
        raise WeightsError(f"the tokenizer cannot be built: {str(error):.200}") from None
    return tokenizer


def _build(parts: BPEParts) -> Tokenizer:
    vocab = {token: number for number, token in enumerate(parts.tokens)}
    merges = [(one, other) for one, other in (merge.split(" ") for merge in parts.merges)]
    ignore_merges = parts.pre_tokenizer == "llama-bpe"  # a word in the vocabulary is one token
    tokenizer = Tokenizer(BPE(vocab, merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[parts.pre_tokenizer]  # pyright: ignore[reportAttributeAccessIssue]  (missing in its stub)
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    added = [
        (token, token_type)
        for token, token_type in zip(parts.tokens, parts.token_types, strict=False)
        if token_type in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token, token_type in added if token_type == CONTROL]
    )
    tokenizer.add_tokens(
        [AddedToken(token, normalized=False) for token, token_type in added if token_type == USER_DEFINED]
    )
    if parts.bos_id is not None:
        token = parts.tokens[parts.bos_id]
        template = processors.TemplateProcessing(single=[token, "$A"], special_tokens=[(token, parts.bos_id)])
        tokenizer.post_processor = template  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer
