"""Small Hugging Face decoders: every architecture, with the config fields that change its outputs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    BloomForSequenceClassification,
    BloomModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma2ForSequenceClassification,
    Gemma2Model,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma3TextForSequenceClassification,
    Gemma3TextModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GPTNeoXForSequenceClassification,
    GPTNeoXModel,
    OPTConfig,
    OPTForCausalLM,
    OPTForSequenceClassification,
    OPTModel,
    Phi3Config,
    Phi3ForCausalLM,
    Phi3ForSequenceClassification,
    Phi3Model,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
    Qwen3Model,
)

VOCAB, END, PAD = 23, 2, 0
IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7, 7, 4], [4, 4, 10, 6, 1, 3, 2, 20, 5]])
LENGTHS = torch.tensor([9, 5])
TOKENS: dict[str, Any] = {"eos_token_id": END, "pad_token_id": PAD, "bos_token_id": 1}
LLAMA_LIKE: dict[str, Any] = {
    **TOKENS,
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}


@dataclass(frozen=True)
class Family:
    """The classes of one architecture, and the sizes of a small model of it."""

    config: Callable[..., PreTrainedConfig]
    causal_lm: Any
    hidden_states: Any
    classification: Any
    sizes: dict[str, Any]
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Configs with other outputs."""
    unsupported: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    """Config fields that softlook does not support, and the error."""


SOME_LAYERS = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
EVERY_OTHER = ["sliding_attention", "full_attention", "sliding_attention"]
YARN = {"rope_type": "yarn", "rope_theta": 50.0, "factor": 4.0, "original_max_position_embeddings": 8}

LAST_TWO = ["full_attention", "sliding_attention", "sliding_attention"]
THETAS = {
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 200.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
}
GEMMA = {**LLAMA_LIKE, "head_dim": 8, "query_pre_attn_scalar": 10}

HALF = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}}

GPT_LIKE: dict[str, Any] = {
    **TOKENS,
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
BLOOM = {**TOKENS, "vocab_size": VOCAB, "hidden_size": 24, "n_layer": 3, "n_head": 4}

FAMILIES: dict[str, Family] = {
    "qwen3": Family(
        Qwen3Config,
        Qwen3ForCausalLM,
        Qwen3Model,
        Qwen3ForSequenceClassification,
        {**LLAMA_LIKE, "head_dim": 8},
        {
            "plain": {},
            "tied, with wide heads": {"tie_word_embeddings": True, "head_dim": 10, "rms_norm_eps": 1e-3},
            "a window in some layers": SOME_LAYERS,
            "a window in every other": {**SOME_LAYERS, "layer_types": EVERY_OTHER},
            "yarn": {"rope_parameters": YARN},
            "another activation": {"hidden_act": "gelu"},
        },
        {
            "biases": ({"attention_bias": True}, "attention_bias: Input should be False, got True"),
            "bidirectional": ({"is_causal": False}, "is_causal: Input should be True, got False"),
            "too few layer types": ({"layer_types": ["full_attention"]}, "layer_types must have 3 entries, got 1"),
        },
    ),
    "gemma2": Family(
        Gemma2Config,
        Gemma2ForCausalLM,
        Gemma2Model,
        Gemma2ForSequenceClassification,
        GEMMA,
        {
            "plain": {"sliding_window": 3, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
            "without softcaps or windows": {
                "attn_logit_softcapping": None,
                "final_logit_softcapping": None,
                "layer_types": ["full_attention"] * 3,
            },
            "untied, windows elsewhere": {"tie_word_embeddings": False, "sliding_window": 2, "layer_types": LAST_TWO},
            "yarn and another activation": {"rope_parameters": YARN, "hidden_activation": "relu"},
        },
        {
            "biases": ({"attention_bias": True}, "attention_bias: Input should be False, got True"),
            "bidirectional": ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
            "no activation": ({"hidden_activation": None}, "hidden_activation must not be null"),
            "no window": ({"sliding_window": None}, "has sliding_attention, but sliding_window is not set"),
        },
    ),
    "gemma3": Family(
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        Gemma3TextModel,
        Gemma3TextForSequenceClassification,
        GEMMA,
        {
            "plain": {"sliding_window": 3, "layer_types": EVERY_OTHER},
            "final softcap": {"sliding_window": 4, "final_logit_softcapping": 3.0, "num_hidden_layers": 7},
            "other thetas": {"sliding_window": 3, "layer_types": EVERY_OTHER, "rope_parameters": THETAS},
            "untied, no windows": {"tie_word_embeddings": False, "layer_types": ["full_attention"] * 3},
        },
        {
            "attention softcap": (
                {"attn_logit_softcapping": 3.0},
                "attn_logit_softcapping: Input should be null, got 3.0",
            ),
            "bidirectional": ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
            "one RoPE for all layers": ({"rope_parameters": YARN}, "rope_parameters.rope_type: Extra inputs"),
            "RoPE scaling of windowed layers": (
                {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
                "rope_type must be 'default' .* in the sliding_attention layers",
            ),
        },
    ),
    "phi3": Family(
        Phi3Config,
        Phi3ForCausalLM,
        Phi3Model,
        Phi3ForSequenceClassification,
        {**LLAMA_LIKE, "hidden_size": 32},
        {
            "plain": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.75}},
            "a Llama": {"rms_norm_eps": 1e-3},
            "a Mistral": {"sliding_window": 3},
            "a window, tied": {**HALF, "sliding_window": 3, "tie_word_embeddings": True, "num_key_value_heads": 1},
        },
        {
            "longrope": (
                {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}},
                "rope_type 'longrope' is not supported for Phi-3",
            ),
            "older name of longrope": (
                {"rope_scaling": {"type": "su", "short_factor": [1.0], "long_factor": [2.0]}},
                "'su'",
            ),
            "odd rotary dimension": ({"rope_parameters": {"partial_rotary_factor": 0.4}}, "is not an even number"),
        },
    ),
    "gpt_neox": Family(
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        GPTNeoXModel,
        GPTNeoXForSequenceClassification,
        {**GPT_LIKE, "intermediate_size": 40, "max_position_embeddings": 32},
        {
            "plain": {},
            "sequential residuals, tied": {"use_parallel_residual": False, "tie_word_embeddings": True},
            "full rotary dimension": {"rope_parameters": {**YARN, "partial_rotary_factor": 1.0}, "hidden_act": "relu"},
            "half rotary dimension, scaled": {
                "rope_parameters": {
                    "rope_type": "linear",
                    "factor": 3.0,
                    "rope_theta": 50.0,
                    "partial_rotary_factor": 0.5,
                },
                "layer_norm_eps": 1e-3,
            },
        },
        {
            "no biases": ({"attention_bias": False}, "attention_bias: Input should be True, got False"),
            "bidirectional": ({"is_causal": False}, "is_causal: Input should be True, got False"),
            "odd rotary dimension": ({"rope_parameters": {"partial_rotary_factor": 0.4}}, "is not an even number"),
            "dynamic": ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic'"),
        },
    ),
    "opt": Family(
        OPTConfig,
        OPTForCausalLM,
        OPTModel,
        OPTForSequenceClassification,
        {**GPT_LIKE, "ffn_dim": 40, "max_position_embeddings": 32},
        {
            "plain": {},
            "untied, another activation": {"tie_word_embeddings": False, "activation_function": "gelu"},
            "post-norm, embedding projection": {"do_layer_norm_before": False, "word_embed_proj_dim": 12},
            "post-norm": {"do_layer_norm_before": False, "_remove_final_layer_norm": True},
            "wide embedding, untied": {"word_embed_proj_dim": 40, "tie_word_embeddings": False},
        },
        {
            "no biases": ({"enable_bias": False}, "enable_bias: Input should be True, got False"),
            "no weights in norms": ({"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine"),
            "no final norm": ({"_remove_final_layer_norm": True}, "_remove_final_layer_norm is not supported"),
        },
    ),
    "bloom": Family(
        BloomConfig,
        BloomForCausalLM,
        BloomModel,
        BloomForSequenceClassification,
        BLOOM,
        {
            "plain": {},
            "three heads, untied": {"n_head": 3, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
            "twelve heads": {"n_head": 12},
        },
        {
            "residuals after norms": (
                {"apply_residual_connection_post_layernorm": True},
                "apply_residual_connection_post_layernorm: Input should be False, got True",
            ),
            "without biases": ({"slow_but_exact": True, "pretraining_tp": 2}, "it skips biases"),
            "two sizes": ({"n_embed": 32}, "n_embed and hidden_size are the same size, got 32 and 24"),
        },
    ),
}
VARIANTS = [(name, variant) for name, family in FAMILIES.items() for variant in family.variants]
UNSUPPORTED = [(name, variant) for name, family in FAMILIES.items() for variant in family.unsupported]


def small(name: str, variant: str = "plain", kind: str = "causal_lm", **changes: Any) -> Any:
    """A small Hugging Face model with random weights."""
    family = FAMILIES[name]
    torch.manual_seed(0)
    config = family.config(**{**family.sizes, **family.variants[variant], **changes})
    model: PreTrainedModel = getattr(family, kind)._from_config(config, attn_implementation="eager").eval()
    return model


def left_padded() -> tuple[Tensor, Tensor]:
    """The padding mask and the positions of left-padded rows."""
    padding_mask = torch.arange(9) >= 9 - LENGTHS[:, None]
    return padding_mask, (padding_mask.cumsum(1) - 1).clamp(min=0)
