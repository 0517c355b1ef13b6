"""Other people's config.json, read through closed schemas: a file can set known fields to known kinds of values,
and can name no code."""

import json
import warnings
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from softlook.base.errors import WeightsError

LARGEST_CONFIG = 1 << 20
"""Bytes. A config is a page, not a book."""
ASIDE = """
    _name_or_path add_cross_attention architectures auto_map bad_words_ids begin_suppress_tokens bos_token_id
    chunk_size_feed_forward cls_token_id cross_attention_hidden_size decoder_start_token_id do_sample dtype
    early_stopping eos_token_id finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing
    id2label initializer_range is_decoder is_encoder_decoder label2id length_penalty mask_token_id max_length
    min_length model_type name_or_path no_repeat_ngram_size normalize_before normalize_embedding num_beams
    num_labels num_return_sequences output_attentions output_hidden_states output_past pad_token_id prefix
    problem_type pruned_heads repetition_penalty return_dict sep_token_id static_position_embeddings
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj suppress_tokens
    task_specific_params temperature tie_encoder_decoder tokenizer_class top_k top_p torch_dtype
    transformers_version unk_token_id use_cache
"""
HARMLESS = frozenset(ASIDE.split())
"""Fields that say where a model came from, how it was trained or how it is to be decoded, and change no number."""


class Closed(BaseModel):
    """The fields of a config that softlook understands. A subclass lists them, with Hugging Face's defaults."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


Schema = TypeVar("Schema", bound=Closed)


class ConfigWarning(UserWarning):
    """A config holds fields that softlook does not know and leaves out."""


def read_json(path: Path, largest: int = LARGEST_CONFIG) -> dict[str, Any]:
    """A JSON object from a file of reasonable size."""
    if not path.is_file():
        raise WeightsError(f"{path.parent} holds no {path.name}")
    if path.stat().st_size > largest:
        raise WeightsError(f"{path} has {path.stat().st_size:,} bytes; such a file has at most {largest:,}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as fault:
        raise WeightsError(f"{path} is not JSON: {fault}") from None
    if not isinstance(content, dict):
        raise WeightsError(f"{path} should hold one JSON object, and holds a {type(content).__name__}")
    return content


def validated(schema: type[Schema], content: dict[str, Any], harmless: frozenset[str], where: Path) -> Schema:
    """The fields of `content` that `schema` knows, checked; a warning names those it does not."""
    unknown = sorted(content.keys() - schema.model_fields.keys() - harmless - HARMLESS)
    if unknown:
        warnings.warn(f"{where}: left out, as softlook knows no such fields: {', '.join(unknown)}", ConfigWarning, 2)
    try:
        # Strict: "12" is no number and True is no 1. As JSON, where a list is what a tuple is written as.
        return schema.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as fault:
        raise WeightsError(f"{where}: {first_fault(fault)}") from None


def first_fault(fault: ValidationError) -> str:
    """The first thing that is wrong: which field, what was wanted, what came."""
    first = fault.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field}: {first['msg']}; {first['input']!r:.80} came"
