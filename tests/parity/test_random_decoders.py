"""Random configs of decoders give the logits of Hugging Face or are rejected."""

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.base.errors import WeightsError
from softlook.weights import from_hugging_face
from softlook.weights.schema import ConfigWarning
from tests.parity.comparison import close, saved
from tests.parity.decoders import FAMILIES, IDS, left_padded

WINDOWED, FULL = "sliding_attention", "full_attention"
NORMS, ACTIVATIONS = [1e-6, 1e-2], ["silu", "gelu", "relu", "gelu_pytorch_tanh", "gelu_new", "quick_gelu"]
ROPES: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 30.0},
    {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0},
    {"rope_type": "llama3", "factor": 4.0, "rope_theta": 90.0, "original_max_position_embeddings": 16,
     "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"rope_type": "yarn", "factor": 2.0, "rope_theta": 90.0, "original_max_position_embeddings": 16},
    {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 90.0},
]  # fmt: skip
LLAMA_LIKE: dict[str, list[Any]] = {
    "head_dim": [4, 6, 10],
    "num_key_value_heads": [1, 2, 4],
    "intermediate_size": [24, 40],
    "rms_norm_eps": NORMS,
    "tie_word_embeddings": [True, False],
    "is_causal": [True, True, True, False],
    "sliding_window": [1, 3, 20],
}
GEMMA: dict[str, list[Any]] = {
    **LLAMA_LIKE,
    "hidden_activation": ACTIVATIONS,
    "query_pre_attn_scalar": [1, 7, 64],
    "layer_types": [None, [WINDOWED] * 3, [FULL] * 3, [FULL, WINDOWED, FULL]],
    "final_logit_softcapping": [None, 1.5, 30.0],
    "use_bidirectional_attention": [False, False, False, True],
    "attention_bias": [False, False, False, True],
}
CHOICES: dict[str, dict[str, list[Any]]] = {
    "qwen3": {
        **LLAMA_LIKE,
        "hidden_act": ACTIVATIONS,
        "use_sliding_window": [True, False],
        "max_window_layers": [0, 1, 5],
        "attention_bias": [False, False, False, True],
        "rope_parameters": ROPES,
    },
    "gemma2": {**GEMMA, "attn_logit_softcapping": [None, 1.5, 50.0], "rope_parameters": ROPES},
    "gemma3": {
        **GEMMA,
        "sliding_window_pattern": [1, 2, 6],
        "rope_parameters": [{FULL: dict(one), WINDOWED: dict(ROPES[0])} for one in ROPES],
    },
    "phi3": {
        **LLAMA_LIKE,
        "head_dim": [8],
        "hidden_act": ACTIVATIONS,
        "rope_parameters": [{**ROPES[0], "partial_rotary_factor": part} for part in (0.25, 0.5, 1.0)],
    },
    "gpt_neox": {
        "hidden_act": ACTIVATIONS,
        "layer_norm_eps": NORMS,
        "tie_word_embeddings": [True, False],
        "use_parallel_residual": [True, False],
        "attention_bias": [True, True, True, False],
        "rope_parameters": [{**rope, "partial_rotary_factor": part} for rope in ROPES for part in (0.5, 0.75, 1.0)],
    },
    "opt": {
        "do_layer_norm_before": [True, False],
        "_remove_final_layer_norm": [False, False, True],
        "word_embed_proj_dim": [None, 12, 32, 48],
        "activation_function": ACTIVATIONS,
        "enable_bias": [True, True, True, False],
        "layer_norm_elementwise_affine": [True, True, True, False],
        "tie_word_embeddings": [True, False],
    },
    "bloom": {
        "n_head": [1, 2, 3, 6, 8, 12],
        "layer_norm_epsilon": NORMS,
        "apply_residual_connection_post_layernorm": [False, False, False, True],
        "tie_word_embeddings": [True, False],
        "slow_but_exact": [False, True],
        "pretraining_tp": [1, 2],
    },
}


def outcome(name: str, seed: int, folder: Path) -> str:
    """The outcome of one random config: "equal" or "rejected"; otherwise an assertion fails."""
    rng, family = random.Random(seed), FAMILIES[name]
    fields = {field: rng.choice(choices) for field, choices in CHOICES[name].items()}
    fields = {field: dict(value) if isinstance(value, dict) else value for field, value in fields.items()}
    torch.manual_seed(seed)
    config = family.config(**{**family.sizes, **fields})
    reference = family.causal_lm._from_config(config, attn_implementation="eager").eval()
    saved(reference, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConfigWarning)
        try:
            actual = from_hugging_face(folder)
        except WeightsError:
            return "rejected"
    padding_mask, positions = left_padded()
    more = {} if name == "bloom" else {"position_ids": positions}
    with torch.no_grad():
        close(actual(IDS), reference(IDS).logits)
        expected = reference(IDS, attention_mask=padding_mask.long(), **more).logits[padding_mask]
        close(actual(IDS, padding_mask=padding_mask, positions=positions)[padding_mask], expected)
    return "equal"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_random_config_matches_hugging_face_or_is_rejected(name: str, tmp_path: Path) -> None:
    found = [outcome(name, seed, tmp_path / str(seed)) for seed in range(8)]
    assert "equal" in found


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_many_random_configs_match_hugging_face_or_are_rejected(name: str, tmp_path: Path) -> None:
    found = [outcome(name, seed, tmp_path / str(seed)) for seed in range(100, 200)]
    assert found.count("equal") >= 20
