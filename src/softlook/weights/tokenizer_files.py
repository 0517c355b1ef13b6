"""Reading, copying and exporting tokenizer.json."""

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from softlook.base.errors import WeightsError
from softlook.tokens.loading import MAX_TOKENIZER_BYTES, load_tokenizer
from softlook.tokens.tokenizer import BOS, CLS, EOS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK
from softlook.tokens.tokenizer import is_softlook_tokenizer as is_softlook_tokenizer
from softlook.weights.atomic_folder import disk_errors

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
        if path.stat().st_size > MAX_TOKENIZER_BYTES:
            raise WeightsError(f"{path} has {path.stat().st_size:,} bytes; the maximum is {MAX_TOKENIZER_BYTES:,}")
        return path.read_bytes()


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
    (folder / TOKENIZER_CONFIG_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    token_ids = {"bos_token_id": ids[BOS], "eos_token_id": ids[EOS], "pad_token_id": ids[PAD]}
    if mode == "encoder-decoder":
        token_ids |= {"decoder_start_token_id": ids[BOS], "forced_eos_token_id": ids[EOS]}
    return token_ids
