"""mBART, Pegasus, M2M-100 (NLLB) and Marian.

All but Marian are BART with pre-norm and a final norm per stack. Marian is BART with sinusoidal positions and without
an embedding norm.
"""

from dataclasses import replace
from typing import Any, TypeGuard

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.transformer import Transformer
from softlook.weights.architectures.bart import (
    BART,
    EMBEDDINGS,
    LEARNED_POSITIONS,
    LOGITS_BIAS,
    POSITION_TABLES,
    SINUSOIDAL_LAYOUTS,
    HFBartConfig,
    HFBartLikeConfig,
    HFSinusoidalConfig,
    build_transformer,
    check_positions,
    detect_positions,
    detect_shared_tables,
    drop,
    embedding_rules,
    has_equal_vocabularies,
    is_bart_like,
    merge_tables,
    position_tables,
    resolve_tying,
    shared_fields,
    shared_rules,
    to_config,
    transformer_config,
)
from softlook.weights.tensor_map import TensorRule, Tensors


class HFPegasusConfig(HFSinusoidalConfig):
    """Hugging Face's PegasusConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 50265


class HFM2M100Config(HFBartLikeConfig):
    """Hugging Face's M2M100Config: the fields that affect the output."""

    vocab_size: PositiveInt = 128112
    activation_function: str = "relu"
    scale_embedding: bool = True
    pad_token_id: NonNegativeInt = 1
    decoder_start_token_id: NonNegativeInt | None = 2


def build_mbart(hf_config: HFBartConfig, head: str) -> Transformer:
    check_positions(hf_config, "mBART", learned=True)
    return build_transformer(hf_config, norm="pre", **LEARNED_POSITIONS)


def build_pegasus(hf_config: HFPegasusConfig, head: str) -> Transformer:
    check_positions(hf_config, "Pegasus", learned=False)
    return build_transformer(hf_config, norm="pre", positions=hf_config.positions)


def build_m2m(hf_config: HFM2M100Config, head: str) -> Transformer:
    if hf_config.decoder_start_token_id == hf_config.pad_token_id:
        raise WeightsError(
            f"decoder_start_token_id must differ from pad_token_id, got {hf_config.pad_token_id} for both: "
            "Hugging Face's M2M-100 gives padding no position"
        )
    offset = hf_config.pad_token_id + 1  # positions up to the padding id are unused
    positions = {"positions": "sinusoidal_tensor2tensor", "position_offset": offset}
    return build_transformer(hf_config, norm="pre", head_bias=False, **positions)


def resolve_tying_pegasus(config: HFPegasusConfig, tensors: Tensors) -> tuple[Any, Tensors]:
    return resolve_tying(detect_positions(config, tensors), tensors)


def resolve_tying_m2m(config: HFM2M100Config, tensors: Tensors) -> tuple[Any, Tensors]:
    """As for BART, without the logits bias, which M2M-100 does not have."""
    config, tensors = resolve_tying(config, tensors)
    return config, drop(tensors, LOGITS_BIAS)


def tensor_map(model: Transformer) -> list[TensorRule]:
    return [*embedding_rules(model).values(), *shared_rules(model)]


def can_export_mbart(model: nn.Module) -> bool:
    if not is_bart_like(model, "pre", "learned") or model.config.position_offset != 2:
        return False
    return has_equal_vocabularies(model)


def can_export_pegasus(model: nn.Module) -> bool:
    return has_computed_positions(model, "pre") and has_equal_vocabularies(model)


def has_computed_positions(model: nn.Module, norm: str) -> TypeGuard[Transformer]:
    """Whether a model is a Transformer with the positions of Marian and Pegasus, in either layout."""
    is_one = any(is_bart_like(model, norm, positions) for positions in SINUSOIDAL_LAYOUTS)
    return is_one and not model.config.position_offset  # pyright: ignore[reportAttributeAccessIssue, reportReturnType]


def can_export_m2m(model: nn.Module) -> bool:
    if not is_bart_like(model, "pre", "sinusoidal_tensor2tensor") or not has_equal_vocabularies(model):
        return False
    return not model.config.head_bias and model.config.position_offset > 0


def seq2seq_heads(name: str) -> dict[str, str]:
    """Hugging Face classes of an encoder-decoder -> head."""
    return {f"{name}ForConditionalGeneration": "seq2seq_lm", f"{name}Model": "seq2seq_lm"}


MBART = replace(
    BART,
    name="mBART",
    model_type="mbart",
    head_by_class=seq2seq_heads("MBart"),
    build=build_mbart,
    can_export=can_export_mbart,
)
PEGASUS = replace(
    BART,
    name="Pegasus",
    model_type="pegasus",
    config_class=HFPegasusConfig,
    head_by_class=seq2seq_heads("Pegasus"),
    resolve_tying=resolve_tying_pegasus,
    build=build_pegasus,
    tensor_map=tensor_map,
    ignored_tensors=lambda model: (POSITION_TABLES,),
    can_export=can_export_pegasus,
    extra_tensors=position_tables,
)
M2M100 = replace(
    BART,
    name="M2M-100",
    model_type="m2m_100",
    config_class=HFM2M100Config,
    head_by_class=seq2seq_heads("M2M100"),
    resolve_tying=resolve_tying_m2m,
    build=build_m2m,
    tensor_map=tensor_map,
    ignored_tensors=lambda model: (POSITION_TABLES, r"(model\.)?(encoder|decoder)\.version"),
    can_export=can_export_m2m,
    to_config=lambda model: to_config(model) | {"pad_token_id": model.config.position_offset - 1},
)


class HFMarianConfig(HFSinusoidalConfig):
    """Hugging Face's MarianConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 58101
    decoder_vocab_size: PositiveInt | None = None


def build_marian(hf_config: HFMarianConfig, head: str) -> Transformer:
    check_positions(hf_config, "Marian", learned=False)
    target = (
        None if hf_config.share_encoder_decoder_embeddings else hf_config.decoder_vocab_size or hf_config.vocab_size
    )
    return Transformer(transformer_config(hf_config, target_vocab_size=target, positions=hf_config.positions))


def resolve_tying_marian(config: HFMarianConfig, tensors: Tensors) -> tuple[Any, Tensors]:
    config = detect_positions(config, tensors)
    if config.share_encoder_decoder_embeddings:
        config = config.model_copy(update={"decoder_vocab_size": config.vocab_size})  # decoder_vocab_size is not used
    config, tensors, tables = detect_shared_tables(config, tensors)
    if config.share_encoder_decoder_embeddings and config.tie_word_embeddings:
        return config, merge_tables(tensors, tables)
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


MARIAN = replace(
    BART,
    name="Marian",
    model_type="marian",
    config_class=HFMarianConfig,
    head_by_class={"MarianMTModel": "seq2seq_lm", "MarianModel": "seq2seq_lm"},
    resolve_tying=resolve_tying_marian,
    build=build_marian,
    tensor_map=tensor_map_marian,
    ignored_tensors=lambda model: (POSITION_TABLES,),
    can_export=lambda model: has_computed_positions(model, "post"),
    to_config=to_marian_config,
    extra_tensors=position_tables,
)
