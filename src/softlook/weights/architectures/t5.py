"""T5 (v1.0 and v1.1), mT5 and their encoders."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from softlook.base.errors import WeightsError
from softlook.models.t5 import T5, T5Config, T5Encoder, T5EncoderConfig
from softlook.weights.architectures import encoders
from softlook.weights.architectures.base import (
    EmbeddingNames,
    HFArchitecture,
    fill_shared,
    from_hf_activation,
    from_hf_fields,
    same_tensor,
    to_hf_activation,
    to_hf_fields,
)
from softlook.weights.schema import HFConfigBase
from softlook.weights.tensor_map import Rename, TensorRule, Tensors, rename_layer, rename_layers

EMBEDDINGS = EmbeddingNames(
    "shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"
)
FIELDS = {
    "vocab_size": "vocab_size",
    "dim": "d_model",
    "depth": "num_layers",
    "heads": "num_heads",
    "head_dim": "d_kv",
    "hidden": "d_ff",
    "buckets": "relative_attention_num_buckets",
    "max_distance": "relative_attention_max_distance",
    "dropout": "dropout_rate",
    "eps": "layer_norm_epsilon",
}
"""softlook's config fields -> Hugging Face's."""


class HFT5Config(HFConfigBase):
    """Hugging Face's T5Config: the fields that affect the output."""

    vocab_size: PositiveInt = 32128
    d_model: PositiveInt = 512
    d_kv: PositiveInt = 64
    d_ff: PositiveInt = 2048
    num_layers: PositiveInt = 6
    num_decoder_layers: PositiveInt | None = None
    num_heads: PositiveInt = 8
    relative_attention_num_buckets: PositiveInt = 32
    relative_attention_max_distance: PositiveInt = 128
    dropout_rate: NonNegativeFloat = 0.1
    layer_norm_epsilon: PositiveFloat = 1e-6
    feed_forward_proj: str = "relu"
    dense_act_fn: str | None = None
    is_gated_act: bool | None = None
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    tie_encoder_decoder: bool = False
    is_causal: Literal[True] = True
    n_positions: PositiveInt = 512


class HFMT5Config(HFT5Config):
    """Hugging Face's MT5Config: the fields that affect the output."""

    vocab_size: PositiveInt = 250112
    d_ff: PositiveInt = 1024
    num_layers: PositiveInt = 8
    num_heads: PositiveInt = 6
    feed_forward_proj: str = "gated-gelu"


def resolve_tying(config: HFT5Config, tensors: Tensors) -> tuple[HFT5Config, Tensors]:
    """Decide tying by the tensors; `tie_word_embeddings` says whether decoder outputs are scaled.

    `tie_word_embeddings: false` requires the LM head to be in the file.
    """
    tensors = fill_shared(tensors, EMBEDDINGS.shared, EMBEDDINGS.source, EMBEDDINGS.target)
    if config.tie_word_embeddings:
        tensors = fill_shared(tensors, EMBEDDINGS.shared, EMBEDDINGS.head)
    if not (
        same_tensor(tensors, EMBEDDINGS.shared, EMBEDDINGS.source)
        and same_tensor(tensors, EMBEDDINGS.shared, EMBEDDINGS.target)
    ):
        if EMBEDDINGS.shared in tensors:
            raise WeightsError("encoder and decoder embeddings differ; softlook's T5 shares them")
        return config, tensors
    scaled = config.tie_word_embeddings if config.scale_decoder_outputs is None else config.scale_decoder_outputs
    tied = same_tensor(tensors, EMBEDDINGS.shared, EMBEDDINGS.head)
    config = config.model_copy(update={"tie_word_embeddings": tied, "scale_decoder_outputs": scaled})
    copies = {EMBEDDINGS.source, EMBEDDINGS.target, *((EMBEDDINGS.head,) if tied else ())}
    return config, {name: tensor for name, tensor in tensors.items() if name not in copies}


def build(hf_config: HFT5Config, head: str) -> T5 | T5Encoder:
    if hf_config.tie_encoder_decoder:
        raise WeightsError("tie_encoder_decoder is not supported")
    gated, activation = parse_feed_forward(hf_config)
    sizes = from_hf_fields(hf_config, FIELDS) | {"activation": from_hf_activation(activation), "gated": gated}
    if head != "seq2seq_lm":
        return T5Encoder(T5EncoderConfig(**sizes, context=hf_config.n_positions, **encoders.pooling_fields(head)))
    scaled, tied = hf_config.scale_decoder_outputs is not False, hf_config.tie_word_embeddings
    return T5(
        T5Config(**sizes, decoder_depth=hf_config.num_decoder_layers, tie_embeddings=tied, scale_decoder_outputs=scaled)
    )


def parse_feed_forward(hf_config: HFT5Config) -> tuple[bool, str]:
    """Whether the feed-forward layer is gated, and its activation; "gated-gelu" is the tanh approximation."""
    *gate, activation = hf_config.feed_forward_proj.split("-")
    if gate not in ([], ["gated"]):
        raise WeightsError(
            f"feed_forward_proj must be ACTIVATION or gated-ACTIVATION, got {hf_config.feed_forward_proj!r:.40}"
        )
    gated = bool(gate)
    activation = "gelu_new" if hf_config.feed_forward_proj == "gated-gelu" else activation
    if hf_config.is_gated_act not in (None, gated) or hf_config.dense_act_fn not in (None, activation):
        raise WeightsError(
            f"is_gated_act and dense_act_fn contradict feed_forward_proj {hf_config.feed_forward_proj!r:.40}"
        )
    return gated, activation


def tensor_map(model: T5 | T5Encoder) -> list[TensorRule]:
    found: list[TensorRule] = [Rename("token_embedding.weight", EMBEDDINGS.shared)]
    stacks = {"encoder": model.encoder.blocks}
    if isinstance(model, T5):
        stacks["decoder"] = model.decoder.blocks
        found += [] if model.config.tie_embeddings else rename_layer("lm_head", "lm_head", "weight")
    for stack, blocks in stacks.items():
        found.append(Rename(f"{stack}.final_norm.weight", f"{stack}.final_layer_norm.weight"))
        distances = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        found.append(Rename(f"{stack}.relative_bias.weight", distances))
        names = block_names(is_decoder=stack == "decoder", gated=model.config.gated)
        for i in range(len(blocks)):
            found += rename_layers(f"{stack}.blocks.{i}.", f"{stack}.block.{i}.layer.", names, "weight")
    return found


def block_names(*, is_decoder: bool, gated: bool) -> dict[str, str]:
    """Names of the layers of a block -> Hugging Face's."""
    names = {"attn_norm": "0.layer_norm", **attention_names("attn", "0.SelfAttention")}
    if is_decoder:
        names |= {"cross_attn_norm": "1.layer_norm", **attention_names("cross_attn", "1.EncDecAttention")}
    ffn = f"{2 if is_decoder else 1}.DenseReluDense"
    up = {"ffn.to_gate": f"{ffn}.wi_0", "ffn.to_up": f"{ffn}.wi_1"} if gated else {"ffn.to_up": f"{ffn}.wi"}
    return names | up | {"ffn_norm": ffn.replace("DenseReluDense", "layer_norm"), "ffn.to_out": f"{ffn}.wo"}


def attention_names(target: str, source: str) -> dict[str, str]:
    names = {"to_query": "q", "to_key": "k", "to_value": "v", "to_out": "o"}
    return {f"{target}.{name}": f"{source}.{hf_name}" for name, hf_name in names.items()}


def ignored_tensors(model: T5 | T5Encoder) -> tuple[str, ...]:
    if isinstance(model, T5Encoder):  # the encoder of a full T5
        return (r"decoder\..*", r"lm_head\.weight")
    return (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)


def to_config(model: T5 | T5Encoder) -> dict[str, Any]:
    c = model.config
    activation = to_hf_activation(c.activation)
    gate = "gelu" if activation == "gelu_new" else activation
    sizes = to_hf_fields(c, FIELDS) | {"feed_forward_proj": f"gated-{gate}" if c.gated else activation}
    if isinstance(c, T5EncoderConfig):
        return {**sizes, "n_positions": c.context, "is_encoder_decoder": False}
    return {
        **sizes,
        "num_decoder_layers": len(model.decoder.blocks) if isinstance(model, T5) else 0,
        "tie_word_embeddings": c.tie_embeddings,
        "scale_decoder_outputs": c.scale_decoder_outputs,
        "decoder_start_token_id": 0,
        "is_encoder_decoder": True,
    }


T5_MODEL = HFArchitecture(
    name="T5",
    model_type="t5",
    config_class=HFT5Config,
    ignored_fields=frozenset({"classifier_dropout", "initializer_factor"}),
    head_by_class={
        "T5ForConditionalGeneration": "seq2seq_lm",
        "T5WithLMHeadModel": "seq2seq_lm",
        "T5EncoderModel": "hidden_states",
    },
    detect_head=encoders.detect_sentence_head,
    resolve_tying=resolve_tying,
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    # Hugging Face's T5 has no gated layer with the exact GELU.
    can_export=lambda model: (
        isinstance(model, T5 | T5Encoder) and not (model.config.gated and model.config.activation == "gelu")
    ),
    to_config=to_config,
    extra_files=encoders.sentence_files_of,
)
MT5 = replace(
    T5_MODEL,
    name="mT5",
    model_type="mt5",
    config_class=HFMT5Config,
    head_by_class={"MT5ForConditionalGeneration": "seq2seq_lm", "MT5EncoderModel": "hidden_states"},
    # mT5 never scales the decoder outputs.
    resolve_tying=lambda config, tensors: resolve_tying(
        config.model_copy(update={"scale_decoder_outputs": False}), tensors
    ),
    can_export=lambda model: False,  # identical to T5, and exported as such
)
