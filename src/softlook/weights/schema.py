"""Schema validation of Hugging Face config files.

A file can only set known fields to values of known types; it cannot name code.
"""

import json
import warnings
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from softlook.base.errors import WeightsError

MAX_CONFIG_BYTES = 1 << 20
_IGNORED = """
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
IGNORED_FIELDS = frozenset(_IGNORED.split())
"""Fields about provenance, training or generation, which do not change what a model computes."""


class HFConfigBase(BaseModel):
    """Base of the supported fields of a Hugging Face config; subclasses list them with Hugging Face's defaults."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


ConfigT = TypeVar("ConfigT", bound=HFConfigBase)


class ConfigWarning(UserWarning):
    """A config has unknown fields, which are ignored."""


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file. Not atomic: for files of an atomic folder."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_bounded(path: Path, max_bytes: int = MAX_CONFIG_BYTES) -> bytes:
    """Read a file of at most `max_bytes`."""
    if path.stat().st_size > max_bytes:
        raise WeightsError(f"{path} has {path.stat().st_size:,} bytes; the maximum is {max_bytes:,}")
    return path.read_bytes()


def read_json(path: Path, max_bytes: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Read a JSON object from a file of at most `max_bytes`."""
    if not path.is_file():
        raise WeightsError(f"{path.parent} holds no {path.name}")
    try:
        content = json.loads(read_bounded(path, max_bytes).decode())
    except WeightsError:
        raise
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise WeightsError(f"{path} must hold one JSON object, got {type(content).__name__}")
    return content


def validate_config(schema: type[ConfigT], content: dict[str, Any], ignored: frozenset[str], path: Path) -> ConfigT:
    """Validate `content` against a schema. Unknown fields are ignored with a ConfigWarning."""
    unknown = sorted(content.keys() - schema.model_fields.keys() - ignored - IGNORED_FIELDS)
    if unknown:
        warnings.warn(f"{path}: ignoring unknown fields: {', '.join(unknown)}", ConfigWarning, 2)
    try:
        # Strict: neither "12" nor True is an integer. From JSON, where tuples are lists.
        return schema.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        raise WeightsError(f"{path}: {format_validation_error(error)}") from None


def format_validation_error(error: ValidationError) -> str:
    """The first error: field, expected value, given value."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field}: {first['msg']}, got {first['input']!r:.80}"
