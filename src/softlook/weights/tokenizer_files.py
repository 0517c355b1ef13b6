"""Reading, copying and exporting tokenizer.json, and building byte-level BPE tokenizers from their parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from softlook.base.errors import WeightsError
from softlook.tokens.loading import MAX_TOKENIZER_BYTES, load_tokenizer
from softlook.tokens.special_tokens import BOS, CLS, EOS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK
from softlook.tokens.special_tokens import is_softlook_tokenizer as is_softlook_tokenizer
from softlook.weights.atomic_folder import disk_errors
from softlook.weights.schema import read_bounded, write_json

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
TEMPLATES = {
    "decoder-only": (f"{BOS} $A", f"{BOS} $A $B:1"),
    "encoder-decoder": (f"$A {EOS}", f"$A {EOS} $B:1 {EOS}:1"),
    "encoder-only": (f"{CLS} $A {SEP}", f"{CLS} $A {SEP} $B:1 {SEP}:1"),
}
"""Templates with special tokens for one text and for a pair."""
TOKEN_NAMES = {
    "bos_token": BOS,
    "eos_token": EOS,
    "unk_token": UNK,
    "pad_token": PAD,
    "mask_token": MASK,
    "cls_token": CLS,
    "sep_token": SEP,
}
"""Hugging Face's names of the special tokens."""


def read_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a file or a folder, after checking its size and settings.

    >>> read_tokenizer("no/such/folder")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder does not exist. Expected a tokenizer.json.
    """
    path = Path(path)
    return load_tokenizer(_read_bytes(path), str(path))


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy a valid tokenizer into a model's folder."""
    content = _read_bytes(source)
    load_tokenizer(content, str(source))
    (folder / TOKENIZER_FILE).write_bytes(content)


def _read_bytes(path: Path) -> bytes:
    with disk_errors("read", path):
        path = path / TOKENIZER_FILE if path.is_dir() else path
        if not path.is_file():
            raise WeightsError(f"{path} does not exist. Expected a {TOKENIZER_FILE}.")
        return read_bounded(path, MAX_TOKENIZER_BYTES)


def export_tokenizer(folder: Path, mode: str) -> dict[str, int]:
    """Let softlook's tokenizer in an exported folder add special tokens itself; returns their ids for config.json.

    softlook adds special tokens when it encodes; other programs leave that to the tokenizer. Other tokenizers are
    left unchanged.
    """
    tokenizer = read_tokenizer(folder)
    if mode not in TEMPLATES or not is_softlook_tokenizer(tokenizer):
        return {}
    single, pair = TEMPLATES[mode]
    ids = {token: id for id, token in enumerate(SPECIAL_TOKENS)}
    tokenizer.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=list(ids.items()))
    tokenizer.save(str(folder / TOKENIZER_FILE))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **TOKEN_NAMES}
    write_json(folder / TOKENIZER_CONFIG_FILE, settings)
    token_ids = {"bos_token_id": ids[BOS], "eos_token_id": ids[EOS], "pad_token_id": ids[PAD]}
    if mode == "encoder-decoder":
        token_ids |= {"decoder_start_token_id": ids[BOS], "forced_eos_token_id": ids[EOS]}
    return token_ids


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
        tokenizer = _build_bpe(parts)
        tokenizer.decode(tokenizer.encode("a few words").ids)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the Rust library panics, and a panic is not an Exception
        raise WeightsError(f"the tokenizer cannot be built: {str(error):.200}") from None
    return tokenizer


def _build_bpe(parts: BPEParts) -> Tokenizer:
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
        template = TemplateProcessing(single=[token, "$A"], special_tokens=[(token, parts.bos_id)])
        tokenizer.post_processor = template  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer
