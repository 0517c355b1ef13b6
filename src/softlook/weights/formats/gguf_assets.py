"""The tokenizer of a GGUF file, its special tokens and its chat template."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from softlook.base.errors import WeightsError
from softlook.weights.formats.gguf import open_gguf, read_metadata
from softlook.weights.hugging_face import GENERATION_FILE
from softlook.weights.tokenizer_files import CONTROL, TOKENIZER_CONFIG_FILE, BPEParts, build_bpe_tokenizer

END_OF_GENERATION = frozenset(
    [
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "<|end▁of▁sentence|>",
        "<end_of_utterance>",
    ]
)
"""Control tokens at which llama.cpp ends an answer, whether or not the file lists them as its end-of-sequence token."""
TOKEN_NAMES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
"""Hugging Face's names of special tokens -> GGUF's."""
Metadata = dict[str, Any]


def tokenizer_from_gguf(path: str | Path) -> Tokenizer:
    """Load the byte-level BPE tokenizer of a GGUF file."""
    path = Path(path)
    return _tokenizer(_read(path), path)


def assets_from_gguf(path: str | Path) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer, and the files of a Hugging Face folder that name special tokens and the chat template.

    The second is by file name: generation_config.json with every end-of-sequence token, and tokenizer_config.json.
    """
    path = Path(path)
    metadata = _read(path)
    tokenizer, tokens = _tokenizer(metadata, path), metadata["tokens"]
    ids = {name: _token_id(metadata, f"{name}_token_id", path) for name in ("bos", "eos", "eot", "eom", "padding")}
    types = metadata.get("token_type", [])
    control = (id for id, token_type in enumerate(types) if token_type == CONTROL and tokens[id] in END_OF_GENERATION)
    eos = dict.fromkeys(id for id in (ids["eos"], ids["eot"], ids["eom"], *control) if id is not None)
    special = {"bos_token_id": ids["bos"], "eos_token_id": list(eos), "pad_token_id": ids["padding"]}
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name, own in TOKEN_NAMES.items():
        id = _token_id(metadata, f"{own}_token_id", path)
        config |= {} if id is None else {name: tokens[id]}
    template = read_metadata(open_gguf(path), "tokenizer.", path).get("chat_template")
    config |= {"chat_template": template} if isinstance(template, str) else {}
    files = {GENERATION_FILE: {name: value for name, value in special.items() if value not in (None, [])}}
    return tokenizer, files | {TOKENIZER_CONFIG_FILE: config}


def _read(path: Path) -> Metadata:
    return read_metadata(open_gguf(path), "tokenizer.ggml.", path)


def _tokenizer(metadata: Metadata, path: Path) -> Tokenizer:
    if metadata.get("model") != "gpt2":
        raise WeightsError(f"{path} has tokenizer model {metadata.get('model')!r:.40}; supported: 'gpt2'")
    pre_tokenizer = metadata.get("pre", "default")
    bos_id = metadata.get("bos_token_id") if metadata.get("add_bos_token", pre_tokenizer == "llama-bpe") else None
    lists = {name: metadata.get(name, []) for name in ("tokens", "merges", "token_type")}
    if not all(isinstance(values, list) for values in lists.values()) or not isinstance(pre_tokenizer, str):
        raise WeightsError(f"{path}: tokens, merges and token_type of the tokenizer must be lists, and pre a string")
    return build_bpe_tokenizer(BPEParts(lists["tokens"], lists["merges"], lists["token_type"], pre_tokenizer, bos_id))


def _token_id(metadata: Metadata, name: str, path: Path) -> int | None:
    """A special token of the file, if it names one."""
    id = metadata.get(name)
    if id is not None and (type(id) is not int or id not in range(len(metadata["tokens"]))):
        raise WeightsError(f"{path}: {name} is {id!r:.40}, outside the vocabulary of {len(metadata['tokens'])} tokens")
    return id
