"""Llama: how far it looks, where things stand, and what it is made of."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.blocks import Mixing
from softlook.models import Llama, LlamaConfig, Stretch
from softlook.weights import load, save

IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7, 7, 0, 4]])
PLACES = torch.arange(10)


def small(**changes: Any) -> Llama:
    sizes: dict[str, Any] = {"vocab": 11, "context": 32, "dim": 16, "depth": 2, "heads": 4, "kv_heads": 2}
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
    assert first_seen(small(window=window, windowed=windowed)) == first


def test_only_distances_count() -> None:
    model = small()
    assert_close(model(IDS, positions=PLACES + 1000), model(IDS), rtol=1e-3, atol=1e-3)
    assert (model(IDS, positions=PLACES * 2) - model(IDS)).abs().max() > 0.1


def test_positions_stretched_alike_are_closer_by_the_factor() -> None:
    plain, stretched = small(), small(stretch=Stretch(kind="linear", factor=4.0))
    assert_close(stretched(IDS, positions=PLACES * 4), plain(IDS))


@pytest.mark.parametrize("kind", ["linear", "ntk", "llama3", "yarn"])
def test_every_stretch_changes_what_is_said_and_a_factor_of_one_changes_nothing(kind: Any) -> None:
    plain = small(base=100.0)(IDS)
    one, four = (small(base=100.0, stretch=Stretch(kind=kind, factor=factor, context=8)) for factor in (1.0, 4.0))
    assert_close(one(IDS), plain)
    assert (four(IDS) - plain).abs().max() > 1e-3


def test_a_magnitude_sharpens_what_is_looked_at_as_a_larger_scale_would() -> None:
    sharper, plain = small(stretch=Stretch(kind="linear", factor=1.0, magnitude=1.5)), small()
    for module in plain.modules():
        if isinstance(module, Mixing):
            module.scale = 1.5**2 / 2.0  # both sides of the dot product are larger, and the heads are 4 wide
    assert_close(sharper(IDS), plain(IDS))


def test_the_phases_are_worked_out_once_and_in_single_precision() -> None:
    model, seen = small().bfloat16(), []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda module, args, rest: seen.append(rest["phases"]), with_kwargs=True)
    model(IDS, positions=PLACES + 300)
    assert seen[0] is seen[1] and seen[0].cos.dtype == torch.float32
    assert len(seen[0].cos[:, 0].unique()) == 10  # in half precision some of these would be one position


def test_the_states_are_what_words_are_said_from() -> None:
    states, words = small(head="states"), small(tied=False)
    states.load_state_dict({name: own for name, own in words.state_dict().items() if name != "head.weight"})
    assert_close(words.head(states(IDS)), words(IDS))


def biased(model: Llama) -> set[str]:
    return {name.split(".")[-2] for name, _ in model.named_parameters() if name.endswith("bias")}


def test_biases_are_in_the_projections_to_queries_keys_and_values_alone() -> None:
    assert biased(small()) == set()
    assert biased(small(biases=True)) == {"to_query", "to_key", "to_value"}


def test_while_training_looks_are_dropped_and_while_answering_none() -> None:
    model = small(dropout=0.5)
    assert_close(model(IDS), model(IDS))
    model.train()
    assert not torch.equal(model(IDS), model(IDS))


def test_a_config_with_a_config_inside_is_kept_and_read_again(tmp_path: Path) -> None:
    model = small(stretch=Stretch(kind="yarn", factor=4.0, context=8, magnitude=0.9), window=3, windowed=(1,))
    again = load(save(model, tmp_path / "llama"))
    assert again.config == model.config
    assert_close(again(IDS), model(IDS), rtol=0, atol=0)


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "odd heads": ({"head_width": 3}, "a head 3 wide is not made of pairs"),
    "no room": ({"window": 0}, "a window of 0 tokens, oneself included, has no room for oneself"),
    "no such layer": ({"window": 3, "windowed": (0, 2)}, "there is no layer 2 .* layers are 0 to 1"),
    "no first context": ({"stretch": Stretch(kind="yarn", factor=2.0)}, "as 'yarn', say for which context"),
    "no factor": ({"stretch": Stretch(kind="linear", factor=0.0)}, "wants factor > 0"),
    "low above high": (
        {"stretch": Stretch(kind="llama3", factor=2.0, context=8, low=4.0)},
        "0 < low < high; .*low=4.0",
    ),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_sizes_that_do_not_go_together_are_refused(what: str) -> None:
    changes, message = IMPOSSIBLE[what]
    with pytest.raises(ConfigError, match=message):
        small(**changes)


def grown(model: Llama) -> Tensor:
    return torch.stack([block.attend.to_out.weight.std() for block in model.blocks])  # pyright: ignore


def test_what_is_added_up_starts_smaller_the_deeper_the_model() -> None:
    torch.manual_seed(0)
    model = Llama(LlamaConfig(vocab=11, dim=128, depth=8, heads=4))
    assert_close(grown(model), torch.full((8,), 0.02 / 4), rtol=0.05, atol=0)
