"""RNNSearch: recurrent translation with attention."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.blocks import AttentionCore, RecurrentCache
from softlook.models import RNNSearch, RNNSearchConfig
from softlook.weights import load, save
from tests.parity.comparison import maps, record_calls

DECODERS: list[dict[str, Any]] = [
    {"decoder": "bahdanau"},
    {"decoder": "luong"},
    {"decoder": "luong", "input_feeding": True},
]
SCORES: list[dict[str, Any]] = [{"score": "concat"}, {"score": "general"}, {"score": "dot", "bidirectional": False}]
WINDOWS: list[dict[str, Any]] = [{"window_type": "global"}, {"window_type": "local-m"}, {"window_type": "local-p"}]
EVERY = [decoder | score | window for decoder, score, window in product(DECODERS, SCORES, WINDOWS)]

SOURCE = torch.tensor([[5, 3, 8, 1, 9, 2], [4, 4, 7, 0, 0, 0]])
PADDING_MASK = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])
TARGET = torch.tensor([[1, 5, 3, 7, 2], [1, 6, 6, 0, 4]])


def small(**changes: Any) -> RNNSearch:
    sizes: dict[str, Any] = {
        "source_vocab_size": 10,
        "target_vocab_size": 9,
        "dim": 6,
        "hidden": 8,
        "readout": 5,
        "window": 2,
    }
    return RNNSearch(RNNSearchConfig(**sizes | changes)).double().eval()


def config_id(changes: dict[str, Any]) -> str:
    return " ".join(str(value) for value in changes.values())


@pytest.mark.parametrize("changes", EVERY, ids=config_id)
def test_padding_of_the_source_does_not_change_logits(changes: dict[str, Any]) -> None:
    model = small(**changes)
    padded = model(SOURCE, TARGET, source_padding_mask=PADDING_MASK)
    assert_close(padded[:1], model(SOURCE[:1], TARGET[:1]))
    assert_close(padded[1:], model(SOURCE[1:, :3], TARGET[1:]))


@pytest.mark.parametrize("changes", EVERY, ids=config_id)
def test_a_cache_does_not_change_logits(changes: dict[str, Any]) -> None:
    model, cache = small(**changes), RecurrentCache()
    with record_calls([model.encoder], lambda module, args, output: None) as encoder_calls:
        steps = [
            model(SOURCE, TARGET[:, start:stop], source_padding_mask=PADDING_MASK, cache=cache)
            for start, stop in ((0, 1), (1, 2), (2, 5))
        ]
    assert len(encoder_calls) == 1
    assert cache.length == 5
    assert_close(torch.cat(steps, 1), model(SOURCE, TARGET, source_padding_mask=PADDING_MASK))


@pytest.mark.parametrize("changes", EVERY, ids=config_id)
def test_rows_can_be_copied_dropped_and_reordered_while_decoding(changes: dict[str, Any]) -> None:
    model, cache, rows = small(**changes), RecurrentCache(), torch.tensor([1, 0, 1])
    model.decode(TARGET[:, :2], cache.encoded(lambda: model.encode(SOURCE, padding_mask=PADDING_MASK)), cache=cache)
    cache.reorder(rows)
    assert cache.source is not None
    after = model.decode(TARGET[rows, 2:], cache.source, cache=cache)
    assert_close(after, model(SOURCE, TARGET, source_padding_mask=PADDING_MASK)[rows, 2:])


@pytest.mark.parametrize("changes", EVERY, ids=config_id)
def test_changing_the_future_does_not_change_the_past(changes: dict[str, Any]) -> None:
    model, other = small(**changes), TARGET.clone()
    other[:, 3:] = 8 - other[:, 3:]
    one, two = model(SOURCE, TARGET), model(SOURCE, other)
    assert torch.equal(one[:, :3], two[:, :3])
    assert not torch.allclose(one[:, 3:], two[:, 3:])


@pytest.mark.parametrize("changes", EVERY, ids=config_id)
def test_gradients_reach_every_parameter(changes: dict[str, Any]) -> None:
    model = small(**changes)
    model(SOURCE, TARGET, source_padding_mask=PADDING_MASK).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_every_step_has_an_attention_map_without_weight_on_padding() -> None:
    model = small()
    assert sum(isinstance(module, AttentionCore) for module in model.modules()) == 1
    with maps(model) as attention_maps:
        model(SOURCE, TARGET, source_padding_mask=PADDING_MASK)
    weights = torch.cat(attention_maps, 2)
    assert weights.shape == (2, 1, 5, 6)
    assert_close(weights.sum(-1), torch.ones(2, 1, 5, dtype=torch.float64))
    assert weights[1, :, :, 3:].eq(0).all()


def test_it_learns_to_reverse_a_sequence_and_attends_to_the_aligned_tokens() -> None:
    torch.manual_seed(2)
    model = RNNSearch(RNNSearchConfig(source_vocab_size=6, target_vocab_size=7, dim=16, hidden=24, readout=16)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = torch.tensor(torch.inf)
    for _ in range(250):
        source = torch.randint(6, (32, 5))
        target = source.flip(1)
        logits = model(source, torch.cat([torch.full((32, 1), 6), target[:, :-1]], 1))
        loss = cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    source = torch.randint(6, (64, 5))
    with maps(model.eval()) as attention_maps, torch.no_grad():
        model(source, torch.cat([torch.full((64, 1), 6), source.flip(1)[:, :-1]], 1))
    strongest = torch.cat(attention_maps, 2)[:, 0].argmax(-1)
    assert (strongest == torch.tensor([4, 3, 2, 1, 0])).float().mean() > 0.5  # chance level is one fifth


def test_a_saved_model_is_loaded_unchanged(tmp_path: Path) -> None:
    model = small(decoder="luong", window_type="local-p", input_feeding=True)
    again = load(save(model, tmp_path / "rnn_search"))
    assert torch.equal(again(SOURCE, TARGET), model(SOURCE, TARGET))


def test_a_dot_product_of_different_widths_raises_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"the dot score requires states of equal width, got decoder 8 and encoder 16\. Use"
    ):
        small(score="dot")


def test_input_feeding_requires_the_luong_decoder() -> None:
    with pytest.raises(
        ConfigError, match="input_feeding requires decoder='luong'; Bahdanau's steps take the context anyway"
    ):
        small(input_feeding=True)
