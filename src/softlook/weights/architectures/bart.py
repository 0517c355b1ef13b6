"""BART; shared code of mBART, Pegasus, M2M-100 and Marian."""

import re
from typing import Any, Literal, TypeGuard

import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.models.transformer import Transformer, TransformerConfig
from softlook.ops.positions.absolute import sinusoidal
from softlook.ops.positions.rotary import Layout
from softlook.weights.architectures.base import (
    EmbeddingNames,
    HFArchitecture,
    fill_shared,
    from_hf_fields,
    same_tensor,
    to_hf_fields,
)
from softlook.weights.schema import HFConfigBase
from softlook.weights.tensor_map import Rename, TensorRule, Tensors, Unsqueeze, rename_blocks, rename_layer

PREFIX = "model."
EMBEDDINGS = EmbeddingNames(
    "model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
)
LOGITS_BIAS = "final_logits_bias"
POSITION_TABLES = r"(model\.)?(encoder|decoder)\.embed_positions\.weights?"
"""Sinusoidal positions, which some files hold although they are computed."""
FIELDS = {
    "vocab_size": "vocab_size",
    "context": "max_position_embeddings",
    "dim": "d_model",
    "depth": "encoder_layers",
    "decoder_depth": "decoder_layers",
    "heads": "encoder_attention_heads",
    "hidden": "encoder_ffn_dim",
    "activation": "activation_function",
    "dropout": "dropout",
    "scale_embeddings": "scale_embedding",
}
"""softlook's config fields -> Hugging Face's."""
ATTENTION_NAMES = {"to_query": "q_proj", "to_key": "k_proj", "to_value": "v_proj", "to_out": "out_proj"}
BLOCK_NAMES = {
    **{f"attn.{name}": f"self_attn.{hf_name}" for name, hf_name in ATTENTION_NAMES.items()},
    "attn_norm": "self_attn_layer_norm",
    "ffn.to_up": "fc1",
    "ffn.to_out": "fc2",
    "ffn_norm": "final_layer_norm",
}
CROSS_ATTENTION_NAMES = {
    **{f"cross_attn.{name}": f"encoder_attn.{hf_name}" for name, hf_name in ATTENTION_NAMES.items()},
    "cross_attn_norm": "encoder_attn_layer_norm",
}
IGNORED = """
    activation_dropout attention_dropout classif_dropout classifier_dropout decoder_layerdrop encoder_layerdrop
    extra_pos_embeddings force_bos_token_to_be_generated init_std
"""
IGNORED_FIELDS = frozenset(IGNORED.split())


class HFBartLikeConfig(HFConfigBase):
    """Fields shared by BART, mBART, Pegasus, M2M-100 and Marian."""

    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt = 1024
    d_model: PositiveInt = 1024
    encoder_layers: PositiveInt = 12
    decoder_layers: PositiveInt = 12
    num_hidden_layers: PositiveInt | None = None
    encoder_attention_heads: PositiveInt = 16
    decoder_attention_heads: PositiveInt = 16
    encoder_ffn_dim: PositiveInt = 4096
    decoder_ffn_dim: PositiveInt = 4096
    activation_function: str = "gelu"
    dropout: NonNegativeFloat = 0.1
    scale_embedding: bool = False
    tie_word_embeddings: bool = True
    share_encoder_decoder_embeddings: bool = True
    tie_encoder_decoder: bool = False
    is_causal: Literal[True] = True
    normalize_before: bool | None = None
    add_final_layer_norm: bool | None = None
    add_bias_logits: bool = False


class HFBartConfig(HFBartLikeConfig):
    """Hugging Face's BartConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 50265
    normalize_embedding: bool = True
    static_position_embeddings: bool = False


def check_supported(hf_config: HFBartLikeConfig, norm: str) -> None:
    """Raise WeightsError for configs that softlook's Transformer does not support."""
    pairs = {
        "attention_heads": (hf_config.encoder_attention_heads, hf_config.decoder_attention_heads),
        "ffn_dim": (hf_config.encoder_ffn_dim, hf_config.decoder_ffn_dim),
    }
    for field, (encoder, decoder) in pairs.items():
        if encoder != decoder:
            raise WeightsError(f"encoder_{field} and decoder_{field} must be equal, got {encoder} and {decoder}")
    if hf_config.num_hidden_layers not in (None, hf_config.encoder_layers):
        raise WeightsError(
            f"num_hidden_layers must equal encoder_layers {hf_config.encoder_layers}, got {hf_config.num_hidden_layers}"
        )
    is_pre_norm = norm == "pre"
    fixed = {"tie_encoder_decoder": False, "add_bias_logits": False}
    for field, value in (fixed | {"normalize_before": is_pre_norm, "add_final_layer_norm": is_pre_norm}).items():
        given = getattr(hf_config, field)
        if given not in (None, value):
            raise WeightsError(
                f"{field} must be {str(value).lower()}, as in Hugging Face's code for this architecture, "
                f"got {str(given).lower()}"
            )


def transformer_config(hf_config: HFBartLikeConfig, **changes: Any) -> TransformerConfig:
    """Convert a Hugging Face config to a TransformerConfig; `changes` override fields."""
    check_supported(hf_config, changes.get("norm", "post"))
    fields = from_hf_fields(hf_config, FIELDS)
    return TransformerConfig(**fields, tie_embeddings=hf_config.tie_word_embeddings, **{"head_bias": True, **changes})


LEARNED_POSITIONS = {"positions": "learned", "position_offset": 2, "embedding_norm": True}
"""Fields of TransformerConfig for BART and mBART."""


def check_positions(hf_config: Any, name: str, *, learned: bool) -> None:
    """Raise WeightsError unless positions are learned and embeddings normalized, or neither."""
    if (hf_config.normalize_embedding, hf_config.static_position_embeddings) != (learned, not learned):
        norm, static = str(learned).lower(), str(not learned).lower()
        raise WeightsError(
            f"normalize_embedding must be {norm} and static_position_embeddings {static}, as in Hugging Face's {name}"
        )


def build(hf_config: HFBartConfig, head: str) -> Transformer:
    check_positions(hf_config, "BART", learned=True)
    return build_transformer(hf_config, **LEARNED_POSITIONS)


def build_transformer(hf_config: HFBartLikeConfig, **changes: Any) -> Transformer:
    """A Transformer with one embedding, or with two of the same size."""
    target = None if hf_config.share_encoder_decoder_embeddings else hf_config.vocab_size
    return Transformer(transformer_config(hf_config, target_vocab_size=target, **changes))


def detect_shared_tables(config: HFBartLikeConfig, tensors: Tensors) -> tuple[Any, Tensors, EmbeddingNames]:
    """Detect which embeddings are tied, fill in their missing names, and add a zero logits bias if there is none."""
    is_base = not any(name.startswith(PREFIX) for name in tensors)
    tables = EMBEDDINGS.strip_prefix(PREFIX) if is_base else EMBEDDINGS
    if config.tie_word_embeddings:
        tensors = fill_shared(tensors, tables.shared, tables.target, tables.head)
    if config.share_encoder_decoder_embeddings:
        tensors = fill_shared(tensors, tables.shared, tables.source, tables.target)
    shared, tied = same_tensor(tensors, tables.source, tables.target), same_tensor(tensors, tables.target, tables.head)
    if tables.target in tensors:
        tensors = {LOGITS_BIAS: tensors[tables.target].new_zeros(1, *tensors[tables.target].shape[:1])} | tensors
    fields = {"share_encoder_decoder_embeddings": shared, "tie_word_embeddings": tied}
    return config.model_copy(update=fields), tensors, tables


def resolve_tying(config: HFBartLikeConfig, tensors: Tensors) -> tuple[Any, Tensors]:
    config, tensors, tables = detect_shared_tables(config, tensors)
    if config.share_encoder_decoder_embeddings and config.tie_word_embeddings:
        return config, merge_tables(tensors, tables)
    return config, fill_shared(drop(tensors, tables.shared), tables.source, tables.shared)


def merge_tables(tensors: Tensors, tables: EmbeddingNames) -> Tensors:
    """Keep only the shared embedding, under its own name."""
    rest = drop(tensors, tables.source, tables.target, tables.head)
    return rest | {tables.shared: tensors[tables.source]}


def drop(tensors: Tensors, *names: str) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def embedding_rules(model: Transformer) -> dict[str, TensorRule]:
    """Hugging Face name -> rule, for the embeddings and the LM head."""
    source = "encoder.embedding.token_embedding.weight"
    target = source if model.config.target_vocab_size is None else "decoder.embedding.token_embedding.weight"
    head = target if model.config.tie_embeddings else "lm_head.weight"
    if source == head:
        return {EMBEDDINGS.shared: Rename(source, EMBEDDINGS.shared)}
    names = {EMBEDDINGS.shared: source, EMBEDDINGS.source: source, EMBEDDINGS.target: target, EMBEDDINGS.head: head}
    return {hf_name: Rename(name, hf_name) for hf_name, name in names.items()}


def shared_rules(model: Transformer) -> list[TensorRule]:
    """Tensor rules of the blocks, the final norms and the logits bias."""
    found: list[TensorRule] = [Unsqueeze("lm_head.bias", LOGITS_BIAS)] if model.config.head_bias else []
    for stack, blocks in (("encoder", model.encoder.blocks), ("decoder", model.decoder.blocks)):
        if model.config.norm == "pre":
            found += rename_layer(f"{stack}.final_norm", f"{PREFIX}{stack}.layer_norm")
        names = BLOCK_NAMES if stack == "encoder" else BLOCK_NAMES | CROSS_ATTENTION_NAMES
        found += rename_blocks(len(blocks), f"{PREFIX}{stack}.layers", names, target=f"{stack}.blocks")
    return found


def position_rules() -> list[TensorRule]:
    """Tensor rules of learned positions and the embedding norm."""
    found: list[TensorRule] = []
    for stack in ("encoder", "decoder"):
        found += rename_layer(f"{stack}.embedding.position_embedding", f"{PREFIX}{stack}.embed_positions", "weight")
        found += rename_layer(f"{stack}.embedding.norm", f"{PREFIX}{stack}.layernorm_embedding")
    return found


def shared_fields(model: Transformer) -> dict[str, Any]:
    """Shared fields of config.json."""
    c, found = model.config, to_hf_fields(model.config, FIELDS)
    return found | {
        "decoder_layers": len(model.decoder.blocks),
        "decoder_attention_heads": c.heads,
        "decoder_ffn_dim": found["encoder_ffn_dim"],
        "attention_dropout": c.dropout,
        "is_encoder_decoder": True,
    }


def to_config(model: Transformer) -> dict[str, Any]:
    return {**shared_fields(model), "tie_word_embeddings": len(embedding_rules(model)) == 1}


def is_bart_like(model: nn.Module, norm: str, positions: str) -> TypeGuard[Transformer]:
    """Whether a model is a Transformer with pre- or post-norm, these positions, and an embedding norm if learned."""
    if not isinstance(model, Transformer) or model.config.num_class_labels:
        return False
    c = model.config
    return (c.norm, c.positions, c.embedding_norm) == (norm, positions, positions == "learned")


def has_equal_vocabularies(model: Transformer) -> bool:
    return model.config.target_vocab_size in (None, model.config.vocab_size)


SINUSOIDAL_LAYOUTS: dict[str, Layout] = {"sinusoidal_half": "half", "sinusoidal": "interleaved"}
"""Positions of TransformerConfig -> layout of sines and cosines: that of Marian and Pegasus, and that of the paper."""


class HFSinusoidalConfig(HFBartLikeConfig):
    """Fields of Marian and Pegasus, whose positions are a table of sines and cosines in the file."""

    normalize_embedding: bool = False
    static_position_embeddings: bool = True
    positions: Literal["sinusoidal_half", "sinusoidal"] = "sinusoidal_half"
    """Not part of config.json: detected from the table."""


def detect_positions(config: Any, tensors: Tensors) -> Any:
    """The config with the layout of its table of sinusoidal positions; raise WeightsError for any other table."""
    tables = {name: table for name, table in tensors.items() if re.fullmatch(POSITION_TABLES, name) and table.ndim == 2}
    for positions, layout in SINUSOIDAL_LAYOUTS.items():
        if all(_is_sinusoidal(table, config.d_model, layout) for table in tables.values()):
            return config.model_copy(update={"positions": positions})
    raise WeightsError(f"{next(iter(tables))} differs from the sinusoidal positions of this architecture")


def _is_sinusoidal(table: Tensor, width: int, layout: Layout) -> bool:
    expected = sinusoidal(len(table), width, layout=layout)
    return table.shape == expected.shape and torch.allclose(table.float(), expected, atol=1e-2)


def position_tables(model: Transformer) -> Tensors:
    """The tables of positions that are laid out as in the paper; Hugging Face computes its own layout itself."""
    c = model.config
    if c.positions != "sinusoidal":
        return {}
    table = sinusoidal(c.context, c.dim, layout="interleaved").to(next(model.parameters()).dtype)
    return {f"{PREFIX}{stack}.embed_positions.weight": table.clone() for stack in ("encoder", "decoder")}


def can_export(model: nn.Module) -> bool:
    if not is_bart_like(model, "post", "learned") or model.config.position_offset != 2:
        return False
    return has_equal_vocabularies(model)


BART = HFArchitecture(
    name="BART",
    model_type="bart",
    config_class=HFBartConfig,
    ignored_fields=IGNORED_FIELDS,
    head_by_class={"BartForConditionalGeneration": "seq2seq_lm", "BartModel": "seq2seq_lm"},
    base_model_prefix=PREFIX,
    resolve_tying=resolve_tying,
    build=build,
    tensor_map=lambda model: [*embedding_rules(model).values(), *shared_rules(model), *position_rules()],
    ignored_tensors=lambda model: (r"(model\.)?(encoder|decoder)\.version",),
    can_export=can_export,
    to_config=to_config,
)
