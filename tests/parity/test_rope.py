"""RoPE frequencies match Hugging Face for random parameters."""

import random
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from softlook.base.errors import ConfigError
from softlook.models.llama import frequency_scaling
from softlook.weights.architectures.rope import HFRotaryConfig, theta_and_scaling

COUNT = 150


def draw_parameters(kind: str, rng: random.Random) -> dict[str, Any]:
    """Random RoPE parameters, ordinary and extreme ones."""
    rope: dict[str, Any] = {
        "rope_type": kind,
        "rope_theta": rng.choice([2.0, 50.0, 10_000.0, 500_000.0]),
        "factor": rng.choice([0.5, 1.0, 1.5, 4.0, 40.0]),
    }
    if kind != "linear":
        rope["original_max_position_embeddings"] = rng.choice([1, 2, 5, 7, 16, 64, 2048, 8192])
    if kind == "llama3":
        rope |= {"low_freq_factor": rng.choice([0.5, 1.0, 2.0]), "high_freq_factor": rng.choice([2.5, 4.0, 32.0])}
    if kind == "yarn":
        optional = {
            "beta_fast": rng.choice([2.0, 32.0, 100.0]),
            "beta_slow": rng.choice([0.25, 1.0, 1.5]),
            "attention_factor": rng.choice([0.7, 1.2]),
            "mscale": rng.choice([0.5, 1.0]),
            "mscale_all_dim": rng.choice([0.8, 1.0]),
        }
        rope |= {name: value for name, value in optional.items() if rng.random() < 0.4}
    return rope


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
def test_frequencies_match_hugging_face_for_random_parameters(kind: str) -> None:
    rng, compared = random.Random(kind), 0
    for _ in range(COUNT):
        rope, heads, head_dim = draw_parameters(kind, rng), 2, rng.choice([2, 4, 8, 64, 128])
        length = rng.choice([16, 2048, 131072])
        reference: Any = LlamaConfig(
            hidden_size=heads * head_dim,
            num_attention_heads=heads,
            max_position_embeddings=length,
            rope_parameters=dict(rope),  # pyright: ignore[reportArgumentType]
        )
        expected, attention_factor = ROPE_INIT_FUNCTIONS[kind](reference, torch.device("cpu"))
        theta, rope_scaling = theta_and_scaling(HFRotaryConfig(max_position_embeddings=length, rope_parameters=rope))  # pyright: ignore
        try:
            scaling = frequency_scaling(rope_scaling)
        except ConfigError:  # unsupported parameters are rejected
            continue
        assert scaling is not None
        frequencies = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
        torch.testing.assert_close(
            scaling.scale_frequencies(frequencies, theta), expected, rtol=1e-5, atol=0, msg=f"{rope}"
        )
        assert scaling.attention_factor == pytest.approx(attention_factor), rope
        compared += 1
    assert compared > COUNT * 0.8


def test_an_empty_rope_scaling_counts_as_absent() -> None:
    rope: Any = {"rope_type": "linear", "rope_theta": 50.0, "factor": 2.0}
    expected = theta_and_scaling(HFRotaryConfig(rope_parameters=rope))
    assert theta_and_scaling(HFRotaryConfig(rope_parameters=rope, rope_scaling={})) == expected  # pyright: ignore
    assert expected[0] == 50.0
