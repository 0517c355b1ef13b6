"""Llama: sliding windows, rotary positions, RoPE scaling and initialization."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.blocks import AttentionCore
from softlook.models import Llama, LlamaConfig, RopeScaling
from softlook.weights import load, save

IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7, 7, 0, 4]])
POSITIONS = torch.arange(10)


def small(**changes: Any) -> Llama:
    sizes: dict[str, Any] = {"vocab_size": 11, "context": 32, "dim": 16, "depth": 2, "heads": 4, "kv_heads": 2}
    torch.manual_seed(0)
    model = Llama(LlamaConfig(**{**sizes, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def test_the_defaults_have_the_135_million_parameters_of_smollm2() -> None:
    with torch.device("meta"):
        model = Llama(LlamaConfig(kv_heads=3))
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008


def first_visible(model: Llama, query: int = 9) -> int:
    """The earliest token on which the logits at `query` depend."""
    logits = model(IDS)[0, query]
    for position in range(query):
        changed = IDS.clone()
        changed[0, position] = (changed[0, position] + 1) % 11
        if not torch.equal(model(changed)[0, query], logits):
            return position
    return query


@pytest.mark.parametrize(
    ("window", "windowed", "first"),
    [(None, None, 0), (1, None, 9), (3, None, 5), (3, (0, 1), 5), (3, (1,), 0), (3, (), 0)],
)
def test_each_layer_with_a_window_attends_to_that_many_tokens(
    window: int | None, windowed: tuple[int, ...] | None, first: int
) -> None:
    assert first_visible(small(sliding_window=window, windowed_layers=windowed)) == first


def test_logits_depend_on_relative_positions_only() -> None:
    model = small()
    assert_close(model(IDS, positions=POSITIONS + 1000), model(IDS), rtol=1e-3, atol=1e-3)
    assert (model(IDS, positions=POSITIONS * 2) - model(IDS)).abs().max() > 0.1


def test_linear_scaling_divides_positions_by_the_factor() -> None:
    plain, scaled = small(), small(rope_scaling=RopeScaling(rope_type="linear", factor=4.0))
    assert_close(scaled(IDS, positions=POSITIONS * 4), plain(IDS))


@pytest.mark.parametrize("kind", ["linear", "ntk", "llama3", "yarn"])
def test_every_rope_scaling_changes_the_logits_except_with_a_factor_of_one(kind: Any) -> None:
    plain = small(rope_theta=100.0)(IDS)
    one, four = (
        small(rope_theta=100.0, rope_scaling=RopeScaling(rope_type=kind, factor=factor, original_context=8))
        for factor in (1.0, 4.0)
    )
    assert_close(one(IDS), plain)
    assert (four(IDS) - plain).abs().max() > 1e-3


def test_an_attention_factor_acts_like_a_larger_scale() -> None:
    sharper, plain = small(rope_scaling=RopeScaling(rope_type="linear", factor=1.0, attention_factor=1.5)), small()
    for module in plain.modules():
        if isinstance(module, AttentionCore):
            module.scale = 1.5**2 / 2.0  # both sides of the dot product are scaled; head_dim is 4
    assert_close(sharper(IDS), plain(IDS))


def test_rotary_angles_are_computed_once_and_in_float32() -> None:
    model, seen = small().bfloat16(), []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda module, args, rest: seen.append(rest["rotary"]), with_kwargs=True)
    model(IDS, positions=POSITIONS + 300)
    assert seen[0] is seen[1] and seen[0].cos.dtype == torch.float32
    assert len(seen[0].cos[:, 0].unique()) == 10  # in bfloat16 some of these would be equal


def test_logits_are_computed_from_the_hidden_states() -> None:
    states, logits = small(head="hidden_states"), small(tie_embeddings=False)
    states.load_state_dict({name: own for name, own in logits.state_dict().items() if name != "lm_head.weight"})
    assert_close(logits.lm_head(states(IDS)), logits(IDS))


def modules_with_bias(model: Llama) -> set[str]:
    return {name.split(".")[-2] for name, _ in model.named_parameters() if name.endswith("bias")}


def test_qkv_bias_adds_biases_to_the_projections_of_queries_keys_and_values_only() -> None:
    assert modules_with_bias(small()) == set()
    assert modules_with_bias(small(qkv_bias=True)) == {"to_query", "to_key", "to_value"}


def test_dropout_applies_in_training_only() -> None:
    model = small(dropout=0.5)
    assert_close(model(IDS), model(IDS))
    model.train()
    assert not torch.equal(model(IDS), model(IDS))


def test_a_nested_config_is_saved_and_loaded(tmp_path: Path) -> None:
    model = small(
        rope_scaling=RopeScaling(rope_type="yarn", factor=4.0, original_context=8, attention_factor=0.9),
        sliding_window=3,
        windowed_layers=(1,),
    )
    again = load(save(model, tmp_path / "llama"))
    assert again.config == model.config
    assert_close(again(IDS), model(IDS), rtol=0, atol=0)


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "odd heads": ({"head_dim": 3}, "RoPE rotates pairs of elements: 1 of head_dim 3 is not an even number"),
    "empty window": ({"sliding_window": 0}, r"sliding_window must be at least 1 \(the token itself\), got 0"),
    "no such layer": ({"sliding_window": 3, "windowed_layers": (0, 2)}, "windowed_layers must be from 0 to 1, got 2"),
    "no original context": (
        {"rope_scaling": RopeScaling(rope_type="yarn", factor=2.0)},
        "RoPE scaling 'yarn' requires original_context",
    ),
    "zero factor": (
        {"rope_scaling": RopeScaling(rope_type="linear", factor=0.0)},
        "RoPE scaling requires factor > 0 and 0 < low_freq_factor < high_freq_factor,",
    ),
    "low above high": (
        {"rope_scaling": RopeScaling(rope_type="llama3", factor=2.0, original_context=8, low_freq_factor=4.0)},
        "RoPE scaling requires factor > 0 and 0 < low_freq_factor < high_freq_factor,",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_configs_raise_an_error(name: str) -> None:
    changes, message = INVALID[name]
    with pytest.raises(ConfigError, match=message):
        small(**changes)


def residual_std(model: Llama) -> Tensor:
    return torch.stack([block.attn.to_out.weight.std() for block in model.blocks])  # pyright: ignore


def test_residual_projections_are_initialized_smaller_in_deeper_models() -> None:
    torch.manual_seed(0)
    model = Llama(LlamaConfig(vocab_size=11, dim=128, depth=8, heads=4))
    assert_close(residual_std(model), torch.full((8,), 0.02 / 4), rtol=0.05, atol=0)
