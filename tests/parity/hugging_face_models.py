"""Small Hugging Face models, one for each feature of their attention."""

from dataclasses import dataclass
from typing import Any

from transformers import (
    BartConfig,
    BartModel,
    BertConfig,
    BertModel,
    Gemma2Config,
    Gemma2Model,
    GPT2Config,
    GPT2Model,
    GPTNeoXConfig,
    GPTNeoXModel,
    GptOssConfig,
    GptOssModel,
    LlamaConfig,
    LlamaModel,
    MarianConfig,
    MarianModel,
    MistralConfig,
    MistralModel,
    ModernBertConfig,
    ModernBertModel,
    OPTConfig,
    OPTModel,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5Model,
)

VOCABULARY = 60
STD = 0.3
"""Standard deviation of the weights, large enough for attention weights to differ."""


@dataclass(frozen=True)
class Case:
    """A model, and its number of attention calls per forward pass."""

    model: type[PreTrainedModel]
    config: PreTrainedConfig
    layers: int

    @property
    def shape(self) -> str:
        """The kind of model: "decoder", "encoder", or "both"."""
        if self.config.is_encoder_decoder:
            return "both"
        return "encoder" if self.model in (BertModel, RobertaModel, ModernBertModel) else "decoder"


COMMON: dict[str, Any] = {"vocab_size": VOCABULARY, "initializer_range": STD}
MODERN: dict[str, Any] = {
    **COMMON,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
BERT: dict[str, Any] = {
    **COMMON,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GPT2: dict[str, Any] = {
    **COMMON,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SEQ2SEQ: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "init_std": STD,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
}
TOKENS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

CASES = {
    "gpt2": Case(GPT2Model, GPT2Config(**GPT2), 2),
    "gpt2, scaled by layer": Case(GPT2Model, GPT2Config(**GPT2, scale_attn_by_inverse_layer_idx=True), 2),
    "bert": Case(BertModel, BertConfig(**BERT), 2),
    "roberta": Case(RobertaModel, RobertaConfig(**BERT), 2),
    "llama, grouped": Case(LlamaModel, LlamaConfig(**MODERN), 2),
    "mistral, windowed": Case(MistralModel, MistralConfig(**MODERN, sliding_window=3), 2),
    "gemma2, with softcap and windows": Case(
        Gemma2Model,
        Gemma2Config(**MODERN, sliding_window=3, attn_logit_softcapping=2.0, query_pre_attn_scalar=16),
        2,
    ),
    "gpt-oss, with sinks": Case(
        GptOssModel, GptOssConfig(**MODERN, sliding_window=3, num_local_experts=2, num_experts_per_tok=1), 2
    ),
    "qwen3": Case(Qwen3Model, Qwen3Config(**MODERN), 2),
    "gpt-neox": Case(GPTNeoXModel, GPTNeoXConfig(**BERT), 2),
    "opt": Case(
        OPTModel,
        OPTConfig(
            vocab_size=VOCABULARY,
            init_std=STD,
            hidden_size=32,
            word_embed_proj_dim=32,
            ffn_dim=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
            **TOKENS,
        ),
        2,
    ),
    "t5, with a position bias": Case(
        T5Model,
        T5Config(
            vocab_size=VOCABULARY,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_heads=4,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=16,
            pad_token_id=0,
        ),
        6,
    ),
    "bart": Case(BartModel, BartConfig(**SEQ2SEQ), 6),
    "marian": Case(MarianModel, MarianConfig(**SEQ2SEQ), 6),
    "modernbert, windowed on both sides": Case(
        ModernBertModel,
        ModernBertConfig(
            vocab_size=VOCABULARY,
            initializer_range=STD,
            initializer_cutoff_factor=2.0,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            local_attention=4,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            max_position_embeddings=64,
            bos_token_id=1,
            cls_token_id=1,
            eos_token_id=2,
            sep_token_id=2,
            pad_token_id=0,
        ),
        3,
    ),
}
