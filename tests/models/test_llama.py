"""Llama: how far it looks, where things stand, and what it is made of."""

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
PLACES = torch.arange(10)


def small(**changes: Any) -> Llama:
    sizes: dict[str, Any] = {"vocab_size": 11, "context": 32, "dim": 16, "depth": 2, "heads": 4, "kv_heads": 2}
    torch.manual_seed(0)
    model = Llama(LlamaConfig(**{**sizes, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def test_its_defaults_are_about_the_135_million_weights_of_smollm2() -> None:
    with torch.device("meta"):
        model = Llama(LlamaConfig(kv_heads=3))
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008


def first_seen(model: Llama, query: int = 9) -> int:
    """The earliest token that what is said at `query` depends on."""
    said = model(IDS)[0, query]
    for place in range(query):
        changed = IDS.clone()
        changed[0, place] = (changed[0, place] + 1) % 11
        if not torch.equal(model(changed)[0, query], said):
            return place
    return query


@pytest.mark.parametrize(
    ("window", "windowed", "first"),
    [(None, None, 0), (1, None, 9), (3, None, 5), (3, (0, 1), 5), (3, (1,), 0), (3, (), 0)],
)
def test_each_layer_with_a_window_looks_one_less_than_its_tokens_back(
    window: int | None, windowed: tuple[int, ...] | None, first: int
) -> None:
    assert first_seen(small(sliding_window=window, windowed_layers=windowed)) == first


def test_only_distances_count() -> None:
    model = small()
    assert_close(model(IDS, positions=PLACES + 1000), model(IDS), rtol=1e-3, atol=1e-3)
    assert (model(IDS, positions=PLACES * 2) - model(IDS)).abs().max() > 0.1


def test_positions_stretched_alike_are_closer_by_the_factor() -> None:
    plain, stretched = small(), small(rope_scaling=RopeScaling(rope_type="linear", factor=4.0))
    assert_close(stretched(IDS, positions=PLACES * 4), plain(IDS))


@pytest.mark.parametrize("kind", ["linear", "ntk", "llama3", "yarn"])
def test_every_stretch_changes_what_is_said_and_a_factor_of_one_changes_nothing(kind: Any) -> None:
    plain = small(rope_theta=100.0)(IDS)
    one, four = (
        small(rope_theta=100.0, rope_scaling=RopeScaling(rope_type=kind, factor=factor, original_context=8))
        for factor in (1.0, 4.0)
    )
    assert_close(one(IDS), plain)
    assert (four(IDS) - plain).abs().max() > 1e-3


def test_a_magnitude_sharpens_what_is_looked_at_as_a_larger_scale_would() -> None:
    sharper, plain = small(rope_scaling=RopeScaling(rope_type="linear", factor=1.0, attention_factor=1.5)), small()
    for module in plain.modules():
        if isinstance(module, AttentionCore):
            module.scale = 1.5**2 / 2.0  # both sides of the dot product are larger, and the heads are 4 wide
    assert_close(sharper(IDS), plain(IDS))


def test_the_phases_are_worked_out_once_and_in_single_precision() -> None:
    model, seen = small().bfloat16(), []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda module, args, rest: seen.append(rest["rotary"]), with_kwargs=True)
    model(IDS, positions=PLACES + 300)
    assert seen[0] is seen[1] and seen[0].cos.dtype == torch.float32
    assert len(seen[0].cos[:, 0].unique()) == 10  # in half precision some of these would be one position


def test_the_states_are_what_words_are_said_from() -> None:
    states, words = small(head="hidden_states"), small(tie_embeddings=False)
    states.load_state_dict({name: own for name, own in words.state_dict().items() if name != "lm_head.weight"})
    assert_close(words.lm_head(states(IDS)), words(IDS))


def biased(model: Llama) -> set[str]:
    return {name.split(".")[-2] for name, _ in model.named_parameters() if name.endswith("bias")}


def test_biases_are_in_the_projections_to_queries_keys_and_values_alone() -> None:
    assert biased(small()) == set()
    assert biased(small(qkv_bias=True)) == {"to_query", "to_key", "to_value"}


def test_while_training_looks_are_dropped_and_while_answering_none() -> None:
    model = small(dropout=0.5)
    assert_close(model(IDS), model(IDS))
    model.train()
    assert not torch.equal(model(IDS), model(IDS))


def test_a_config_with_a_config_inside_is_kept_and_read_again(tmp_path: Path) -> None:
    model = small(
        rope_scaling=RopeScaling(rope_type="yarn", factor=4.0, original_context=8, attention_factor=0.9),
        sliding_window=3,
        windowed_layers=(1,),
    )
    again = load(save(model, tmp_path / "llama"))
    assert again.config == model.config
    assert_close(again(IDS), model(IDS), rtol=0, atol=0)


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "odd heads": ({"head_dim": 3}, "RoPE rotates pairs of elements: 1 of head_dim 3 is not an even number"),
    "no room": ({"sliding_window": 0}, r"sliding_window must be at least 1 \(the token itself\), got 0"),
    "no such layer": ({"sliding_window": 3, "windowed_layers": (0, 2)}, "windowed_layers must be from 0 to 1, got 2"),
    "no first context": (
        {"rope_scaling": RopeScaling(rope_type="yarn", factor=2.0)},
        "RoPE scaling 'yarn' requires original_context",
    ),
    "no factor": (
        {"rope_scaling": RopeScaling(rope_type="linear", factor=0.0)},
        "RoPE scaling requires factor > 0 and 0 < low_freq_factor < high_freq_factor,",
    ),
    "low above high": (
        {"rope_scaling": RopeScaling(rope_type="llama3", factor=2.0, original_context=8, low_freq_factor=4.0)},
        "RoPE scaling requires factor > 0 and 0 < low_freq_factor < high_freq_factor,",
    ),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_sizes_that_do_not_go_together_are_refused(what: str) -> None:
    changes, message = IMPOSSIBLE[what]
    with pytest.raises(ConfigError, match=message):
        small(**changes)


def grown(model: Llama) -> Tensor:
    return torch.stack([block.attn.to_out.weight.std() for block in model.blocks])  # pyright: ignore


def test_what_is_added_up_starts_smaller_the_deeper_the_model() -> None:
    torch.manual_seed(0)
    model = Llama(LlamaConfig(vocab_size=11, dim=128, depth=8, heads=4))
    assert_close(grown(model), torch.full((8,), 0.02 / 4), rtol=0.05, atol=0)
