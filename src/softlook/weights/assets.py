"""Tokenizer, special tokens, labels and generation config of a model.

softlook's own checkpoints use the special tokens of training. Hugging Face folders name theirs in config.json, in
generation_config.json and in the tokenizer's post-processor.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from softlook.base.errors import DataError, WeightsError
from softlook.tokens import TextTokenizer
from softlook.weights.hugging_face import CONFIG_FILE as HF_CONFIG_FILE
from softlook.weights.hugging_face import GENERATION_FILE as GENERATION_FILE
from softlook.weights.manifest import BEST_FILE, best_checkpoint
from softlook.weights.schema import MAX_CONFIG_BYTES, read_bounded, read_json
from softlook.weights.sentence_transformers import SENTENCE_FILE, SentenceConfig, add_lowercase, read_sentence_config
from softlook.weights.tokenizer_files import (
    TOKEN_NAMES,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    is_softlook_tokenizer,
    read_tokenizer,
)

LABELS_FILE = "labels.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_FIELDS = ("tokenizer_class", "chat_template", *TOKEN_NAMES)
"""Fields of tokenizer_config.json that a checkpoint keeps."""
SPECIAL_IDS = ("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id")
GENERATION_FIELDS = """
    bad_words_ids begin_suppress_tokens bos_token_id constraints decoder_start_token_id diversity_penalty do_sample
    early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty eos_token_id
    exponential_decay_length_penalty force_words_ids forced_bos_token_id forced_eos_token_id guidance_scale
    length_penalty max_length max_new_tokens max_time min_length min_new_tokens min_p no_repeat_ngram_size
    num_beam_groups num_beams pad_token_id penalty_alpha renormalize_logits repetition_penalty sequence_bias
    stop_strings suppress_tokens temperature top_k top_p typical_p
"""
"""Generation fields, which config.json may hold if there is no generation_config.json."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the special tokens around a text."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    """The first token of the output if there is no prompt: decoder start or BOS."""
    eos: tuple[int, ...] = ()
    """End-of-sequence tokens."""


@dataclass(frozen=True)
class ModelAssets:
    """What a model needs for text besides its weights."""

    tokenizer: TextTokenizer
    special_tokens: SpecialTokens
    labels: list[str] = field(default_factory=list)
    """Names of the classes of a classifier."""
    hf_config: dict[str, Any] = field(default_factory=dict)
    """config.json merged with generation_config.json, not validated; empty for runs."""
    sentence: SentenceConfig = SentenceConfig()


def load_assets(folder: Path, model: nn.Module) -> ModelAssets:
    """Load the assets of a run directory, a checkpoint or a Hugging Face folder."""
    hf_config = {} if (folder / BEST_FILE).is_file() else read_hf_config(folder)
    tokenizer = find_tokenizer(folder)
    special_tokens, labels = special_tokens_of(tokenizer, hf_config, model), read_labels(folder, hf_config, model)
    return ModelAssets(tokenizer, special_tokens, labels, hf_config, read_sentence_config(folder))


def find_tokenizer(folder: Path) -> TextTokenizer:
    """Load the tokenizer of a folder or of its best checkpoint."""
    home = next((home for home in (folder, best_checkpoint(folder)) if (home / TOKENIZER_FILE).is_file()), None)
    if home is None:
        raise WeightsError(
            f"{folder} holds no {TOKENIZER_FILE}, which text input needs. Copy the model's tokenizer into it."
        )
    return load_text_tokenizer(home)


def load_text_tokenizer(path: Path) -> TextTokenizer:
    """Load the tokenizer of a file or folder, lowercasing if the sentence config says so."""
    tokenizer = read_tokenizer(path)
    return TextTokenizer(add_lowercase(tokenizer) if read_sentence_config(path).lowercase else tokenizer)


def read_hf_config(folder: Path) -> dict[str, Any]:
    """config.json of a folder, overridden by generation_config.json."""
    found: dict[str, Any] = {}
    for name in (HF_CONFIG_FILE, GENERATION_FILE):
        if (folder / name).is_file():
            found |= {key: value for key, value in read_json(folder / name).items() if value is not None}
    return found


def special_tokens_of(tokenizer: TextTokenizer, hf_config: dict[str, Any], model: nn.Module) -> SpecialTokens:
    """The special tokens around texts: softlook's own, or those of the Hugging Face files."""
    is_seq2seq, own = getattr(model, "mode", "") == "encoder-decoder", is_softlook_tokenizer(tokenizer.tokenizer)
    eos = _ids(hf_config.get("eos_token_id")) or _optional_id(tokenizer, "eos_id")
    start = _ids(hf_config.get("decoder_start_token_id" if is_seq2seq else "bos_token_id"))
    start = start or _optional_id(tokenizer, "bos_id") or _optional_id(tokenizer, "pad_id")
    prefix, suffix = ((), ()) if own else special_tokens_around(tokenizer, eos)
    if own and not is_seq2seq:
        prefix = (tokenizer.bos_id,)
    if not prefix and not suffix and is_seq2seq:
        suffix = eos[:1]  # no post-processor: translation models are trained on sources that end with EOS
    return SpecialTokens(prefix, suffix, start[:1], eos)


def special_tokens_around(tokenizer: TextTokenizer, eos: Collection[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that the tokenizer adds before and after a text, such as the language codes of mBART.

    If the tokenizer drops the text itself, EOS tokens count as after it.
    """
    encoding = tokenizer.tokenizer.encode("a", add_special_tokens=True)
    columns = (encoding.ids, encoding.special_tokens_mask, encoding.attention_mask)
    added = [(id, bool(special)) for id, special, real in zip(*columns, strict=True) if real]  # not padding
    inside = [index for index, (_, special) in enumerate(added) if not special]
    if not inside:
        return tuple(id for id, _ in added if id not in eos), tuple(id for id, _ in added if id in eos)
    return tuple(id for id, _ in added[: inside[0]]), tuple(id for id, _ in added[inside[-1] + 1 :])


def read_labels(folder: Path, hf_config: dict[str, Any], model: nn.Module) -> list[str]:
    """Class names: from labels.json, from id2label, or defaults."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "head", None) not in ("classification", "token_classification"):
        return []
    count, id2label = config.classes, hf_config.get("id2label")
    prefix = "LABEL_" if hf_config else ""  # Hugging Face's default labels, or softlook's
    names: Any = [f"{prefix}{number}" for number in range(count)]
    if (folder / LABELS_FILE).is_file():
        names = read_json(folder / LABELS_FILE, 64 * MAX_CONFIG_BYTES).get("labels")
    elif isinstance(id2label, dict):
        names = [id2label.get(str(number)) for number in range(count)]
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise WeightsError(f"{folder} has labels that do not match the {count} classes of its model: {names!r:.80}")
    return names


def assets_to_keep(folder: Path, model: nn.Module) -> dict[str, Any]:
    """Files of a Hugging Face folder that a checkpoint keeps besides weights and tokenizer: name -> content."""
    labels, sentence = read_labels(folder, read_hf_config(folder), model), read_sentence_config(folder)
    found: dict[str, Any] = {LABELS_FILE: {"labels": labels}} if labels else {}
    if generation := read_generation_config(folder):
        found[GENERATION_FILE] = generation
    if tokenizer_config := read_tokenizer_config(folder):
        found[TOKENIZER_CONFIG_FILE] = tokenizer_config
    return found if sentence == SentenceConfig() else found | {SENTENCE_FILE: asdict(sentence)}


def read_generation_config(folder: Path) -> dict[str, Any]:
    """generation_config.json, with missing special token ids from config.json; or config.json's generation fields."""
    config = read_json(folder / HF_CONFIG_FILE) if (folder / HF_CONFIG_FILE).is_file() else {}
    known = {name: value for name, value in config.items() if name in GENERATION_FIELDS.split() and value is not None}
    if not (folder / GENERATION_FILE).is_file():
        return known
    found = read_json(folder / GENERATION_FILE)
    return found | {name: known[name] for name in SPECIAL_IDS if name in known and found.get(name) is None}


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """Chat template and special tokens of a folder: tokenizer_config.json and chat_template.jinja."""
    path, template = folder / TOKENIZER_CONFIG_FILE, folder / CHAT_TEMPLATE_FILE
    config = read_json(path, 16 * MAX_CONFIG_BYTES) if path.is_file() else {}
    found = {name: config[name] for name in TOKENIZER_FIELDS if config.get(name) is not None}
    if template.is_file():
        found["chat_template"] = read_bounded(template, MAX_CONFIG_BYTES).decode(errors="replace")
    return found


def _ids(value: Any) -> tuple[int, ...]:
    """One id or several; anything else is ignored."""
    return tuple(id for id in (value if isinstance(value, list) else [value]) if type(id) is int and id >= 0)


def _optional_id(tokenizer: TextTokenizer, name: str) -> tuple[int, ...]:
    try:
        return (getattr(tokenizer, name),)
    except DataError:
        return ()
