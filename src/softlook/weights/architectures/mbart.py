"""mBART, Pegasus, M2M-100 (NLLB) and Marian.

All but Marian are BART with pre-norm and a final norm per stack. Marian is BART with sinusoidal positions and without
an embedding norm.
"""

from dataclasses import replace
from typing import Any

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.transformer import Transformer
from softlook.weights.architectures import bart
from softlook.weights.architectures.bart import (
    EMBEDDINGS,
    LOGITS_BIAS,
    HFBartConfig,
    HFBartLikeConfig,
    drop,
    embedding_rules,
    shared_fields,
    shared_rules,
    transformer_config,
)
from softlook.weights.architectures.base import HFArchitecture
from softlook.weights.tensor_map import TensorRule, Tensors


class HFPegasusConfig(HFBartLikeConfig):
    """Hugging Face's PegasusConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 50265
    normalize_embedding: bool = False
    static_position_embeddings: bool = True


class HFM2M100Config(HFBartLikeConfig):
    """Hugging Face's M2M100Config: the fields that affect the output."""

    vocab_size: PositiveInt = 128112
    activation_function: str = "relu"
    scale_embedding: bool = True
    pad_token_id: NonNegativeInt = 1
    decoder_start_token_id: NonNegativeInt | None = 2


def build_mbart(hf_config: HFBartConfig, head: str) -> Transformer:
    if not hf_config.normalize_embedding or hf_config.static_position_embeddings:
        raise WeightsError(
            "normalize_embedding must be true and static_position_embeddings false, as in Hugging Face's code for mBART"
        )
    return _build(hf_config, positions="learned", position_offset=2, embedding_norm=True)


def build_pegasus(hf_config: HFPegasusConfig, head: str) -> Transformer:
    if hf_config.normalize_embedding or not hf_config.static_position_embeddings:
        raise WeightsError(
            "normalize_embedding must be false and static_position_embeddings true, as in Hugging Face's Pegasus"
        )
    return _build(hf_config, positions="sinusoidal_half")


def build_m2m(hf_config: HFM2M100Config, head: str) -> Transformer:
    if hf_config.decoder_start_token_id == hf_config.pad_token_id:
        raise WeightsError(
            f"decoder_start_token_id must differ from pad_token_id, got {hf_config.pad_token_id} for both: "
            "Hugging Face's M2M-100 gives padding no position"
        )
    offset = hf_config.pad_token_id + 1  # positions up to the padding id are unused
    return _build(hf_config, positions="sinusoidal_tensor2tensor", position_offset=offset, head_bias=False)


def _build(hf_config: HFBartLikeConfig, **changes: Any) -> Transformer:
    target = None if hf_config.share_encoder_decoder_embeddings else hf_config.vocab_size
    return Transformer(transformer_config(hf_config, norm="pre", target_vocab_size=target, **changes))


def resolve_tying_pegasus(config: HFPegasusConfig, tensors: Tensors) -> tuple[Any, Tensors]:
    bart.check_sinusoidal_positions(config.d_model, tensors)
    return bart.resolve_tying(config, tensors)


def resolve_tying_m2m(config: HFM2M100Config, tensors: Tensors) -> tuple[Any, Tensors]:
    """As for BART, without the logits bias, which M2M-100 does not have."""
    config, tensors = bart.resolve_tying(config, tensors)
    return config, drop(tensors, LOGITS_BIAS)


def tensor_map(model: Transformer) -> list[TensorRule]:
    return [*embedding_rules(model).values(), *shared_rules(model)]


def tensor_map_mbart(model: Transformer) -> list[TensorRule]:
    return [*tensor_map(model), *bart.position_rules()]


def _to_config(model: Transformer, name: str) -> dict[str, Any]:
    return {**bart.to_config(model), "architectures": [f"{name}ForConditionalGeneration"]}


def to_m2m_config(model: Transformer) -> dict[str, Any]:
    return {**_to_config(model, "M2M100"), "pad_token_id": model.config.position_offset - 1}


def _matches(model: nn.Module, positions: str) -> bool:
    if not isinstance(model, Transformer) or not bart.is_seq2seq(model, "pre"):
        return False
    return model.config.positions == positions and model.config.target_vocab_size in (None, model.config.vocab_size)


def can_export_mbart(model: nn.Module) -> bool:
    return _matches(model, "learned") and model.config.position_offset == 2 and model.config.embedding_norm  # pyright: ignore


def can_export_pegasus(model: nn.Module) -> bool:
    if not isinstance(model, Transformer) or not _matches(model, "sinusoidal_half"):
        return False
    return not model.config.embedding_norm and not model.config.position_offset


def can_export_m2m(model: nn.Module) -> bool:
    if not isinstance(model, Transformer) or not _matches(model, "sinusoidal_tensor2tensor"):
        return False
    return not model.config.embedding_norm and not model.config.head_bias and model.config.position_offset > 0


MBART = HFArchitecture(
    name="mBART",
    model_type="mbart",
    config_class=HFBartConfig,
    ignored_fields=bart.IGNORED_FIELDS,
    head_by_class={"MBartForConditionalGeneration": "seq2seq_lm", "MBartModel": "seq2seq_lm"},
    base_model_prefix=bart.PREFIX,
    resolve_tying=bart.resolve_tying,
    build=build_mbart,
    tensor_map=tensor_map_mbart,
    ignored_tensors=bart.ARCHITECTURE.ignored_tensors,
    can_export=can_export_mbart,
    to_config=lambda model: _to_config(model, "MBart"),
)
PEGASUS = replace(
    MBART,
    name="Pegasus",
    model_type="pegasus",
    config_class=HFPegasusConfig,
    head_by_class={"PegasusForConditionalGeneration": "seq2seq_lm", "PegasusModel": "seq2seq_lm"},
    resolve_tying=resolve_tying_pegasus,
    build=build_pegasus,
    tensor_map=tensor_map,
    ignored_tensors=lambda model: (bart.POSITION_TABLES,),
    can_export=can_export_pegasus,
    to_config=lambda model: _to_config(model, "Pegasus"),
)
M2M100 = replace(
    MBART,
    name="M2M-100",
    model_type="m2m_100",
    config_class=HFM2M100Config,
    head_by_class={"M2M100ForConditionalGeneration": "seq2seq_lm", "M2M100Model": "seq2seq_lm"},
    resolve_tying=resolve_tying_m2m,
    build=build_m2m,
    tensor_map=tensor_map,
    ignored_tensors=lambda model: (bart.POSITION_TABLES, r"(model\.)?(encoder|decoder)\.version"),
    can_export=can_export_m2m,
    to_config=to_m2m_config,
)


class HFMarianConfig(HFBartLikeConfig):
    """Hugging Face's MarianConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 58101
    decoder_vocab_size: PositiveInt | None = None
    normalize_embedding: bool = False
    static_position_embeddings: bool = True


def build_marian(hf_config: HFMarianConfig, head: str) -> Transformer:
    if hf_config.normalize_embedding or not hf_config.static_position_embeddings:
        raise WeightsError(
            "normalize_embedding must be false and static_position_embeddings true, as in Hugging Face's Marian"
        )
    target = hf_config.decoder_vocab_size or hf_config.vocab_size
    if hf_config.share_encoder_decoder_embeddings:
        return Transformer(transformer_config(hf_config, positions="sinusoidal_half"))
    return Transformer(transformer_config(hf_config, target_vocab_size=target, positions="sinusoidal_half"))


def resolve_tying_marian(config: HFMarianConfig, tensors: Tensors) -> tuple[Any, Tensors]:
    bart.check_sinusoidal_positions(config.d_model, tensors)
    if config.share_encoder_decoder_embeddings:
        config = config.model_copy(update={"decoder_vocab_size": config.vocab_size})  # decoder_vocab_size is not used
    config, tensors, tables = bart.detect_shared_tables(config, tensors)
    if config.share_encoder_decoder_embeddings and config.tie_word_embeddings:
        return config, bart.merge_tables(tensors, tables)
    return config, drop(tensors, tables.shared)


def tensor_map_marian(model: Transformer) -> list[TensorRule]:
    tables = embedding_rules(model)
    if len(tables) > 1:
        tables.pop(EMBEDDINGS.shared)  # only present if all are tied
    return [*tables.values(), *shared_rules(model)]


def to_marian_config(model: Transformer) -> dict[str, Any]:
    c = model.config
    words = c.vocab_size if c.target_vocab_size is None else c.target_vocab_size
    last = min(c.vocab_size, words) - 1
    return {
        "architectures": ["MarianMTModel"],
        **shared_fields(model),
        "decoder_vocab_size": words,
        "share_encoder_decoder_embeddings": len(embedding_rules(model)) == 1,
        "tie_word_embeddings": c.tie_embeddings,
        # By convention the last token is padding and decoder start, and the first one EOS.
        "pad_token_id": last,
        "decoder_start_token_id": last,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    }


def can_export_marian(model: nn.Module) -> bool:
    if not isinstance(model, Transformer) or not bart.is_seq2seq(model):
        return False
    return (
        model.config.positions == "sinusoidal_half"
        and not model.config.embedding_norm
        and not model.config.position_offset
    )


MARIAN = HFArchitecture(
    name="Marian",
    model_type="marian",
    config_class=HFMarianConfig,
    ignored_fields=bart.IGNORED_FIELDS,
    head_by_class={"MarianMTModel": "seq2seq_lm", "MarianModel": "seq2seq_lm"},
    base_model_prefix=bart.PREFIX,
    resolve_tying=resolve_tying_marian,
    build=build_marian,
    tensor_map=tensor_map_marian,
    ignored_tensors=lambda model: (bart.POSITION_TABLES,),
    can_export=can_export_marian,
    to_config=to_marian_config,
)
