"""What a tokenizer of softlook's says of itself in a folder for other people's programs: its signs, and where they go.

softlook puts signs around a text where it is read; other programs leave that to the tokenizer.
"""

import json
from pathlib import Path

from tokenizers.processors import TemplateProcessing

from softlook.tokens.special import BEGIN, CLASS, END, MASK, PAD, SEPARATOR, SPECIAL, UNKNOWN
from softlook.tokens.special import is_own as is_own
from softlook.weights.tokenizer import NAME, read_tokenizer

SETTINGS = "tokenizer_config.json"
AROUND = {
    "decoder-only": (f"{BEGIN} $A", f"{BEGIN} $A $B:1"),
    "encoder-decoder": (f"$A {END}", f"$A {END} $B:1 {END}:1"),
    "encoder-only": (f"{CLASS} $A {SEPARATOR}", f"{CLASS} $A {SEPARATOR} $B:1 {SEPARATOR}:1"),
}
"""What stands around a text, and around a pair of texts."""
NAMES = {
    "bos_token": BEGIN,
    "eos_token": END,
    "unk_token": UNKNOWN,
    "pad_token": PAD,
    "mask_token": MASK,
    "cls_token": CLASS,
    "sep_token": SEPARATOR,
}
"""The signs by the names that Hugging Face has for them."""


def wrap(folder: Path, mode: str) -> dict[str, int]:
    """Let the tokenizer in a folder put the signs in their places by itself. What config.json is to say of them.

    Nothing is done to other people's: theirs do so already.
    """
    tokenizer = read_tokenizer(folder)
    if mode not in AROUND or not is_own(tokenizer):
        return {}
    single, pair = AROUND[mode]
    ids = {sign: id for id, sign in enumerate(SPECIAL)}
    tokenizer.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=list(ids.items()))
    tokenizer.save(str(folder / NAME))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **NAMES}
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    told = {"bos_token_id": ids[BEGIN], "eos_token_id": ids[END], "pad_token_id": ids[PAD]}
    if mode == "encoder-decoder":
        told |= {"decoder_start_token_id": ids[BEGIN], "forced_eos_token_id": ids[END]}
    return told
