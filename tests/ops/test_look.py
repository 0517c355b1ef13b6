"""Looks: the statistics that can be requested, and the errors of invalid requests."""

from typing import Any

import pytest
import torch

from softlook import Look, ShapeError, attention_and_look, look, masks
from tests.ops_cases import DEVICE, TensorRNG, close

RNG = TensorRNG(torch.Generator().manual_seed(9), torch.float32)
QUERY, KEY = RNG.normal(1, 4, 3, 8), RNG.normal(1, 2, 5, 8)


def test_a_look_holds_the_requested_statistics_only() -> None:
    seen = look(QUERY, KEY, stats=("received", "lse"))
    assert list(seen.values) == ["lse", "received"]
    assert repr(seen) == "Look(lse 1x4x3, received 1x4x5)"
    assert list(look(QUERY, KEY).values) == ["lse", "entropy", "max_weight", "received"]
    assert list(look(QUERY, KEY, stats="entropy").values) == ["entropy"]
    assert list(look(QUERY, KEY, stats=("top_indices",)).values) == ["top_indices"]


def test_a_statistic_that_was_not_requested_raises_an_error() -> None:
    seen = look(QUERY, KEY, stats=("lse",))
    with pytest.raises(AttributeError, match=r"'entropy' is not among stats=\('lse',\) of this look"):
        _ = seen.entropy
    assert not hasattr(seen, "pooled_max")


def test_an_unknown_statistic_suggests_the_closest_name() -> None:
    with pytest.raises(ValueError, match="unknown statistic 'entropie'. Did you mean 'entropy'?"):
        look(QUERY, KEY, stats=("entropie",))
    with pytest.raises(ValueError, match="unknown statistic 'xyz'. Choose from lse, entropy, .*pooled_max."):
        look(QUERY, KEY, stats=("lse", "xyz"))
    with pytest.raises(ValueError, match="Did you mean 'received'?"):
        attention_and_look(QUERY, KEY, KEY, stats=("recieved",))


@pytest.mark.parametrize("name", ["top_k", "bins"])
def test_counts_start_at_one(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=f"{name} expects an integer >= 1, got 0"):
        look(QUERY, KEY, **options)


def test_statistics_per_key_of_a_chunk_need_the_total_log_sum_exp() -> None:
    with pytest.raises(ValueError, match="pooled_mean, received of a chunk of the keys needs the log-sum-exp over all"):
        look(QUERY, KEY, part=(0, 9), stats=("lse", "received", "pooled_mean"))
    with pytest.raises(ValueError, match="with lse=, stats may hold received, pooled_mean, pooled_max, got entropy"):
        look(QUERY, KEY, part=(0, 9), stats=("entropy", "received"), lse=torch.zeros(1, 4, 3, device=DEVICE))


def test_a_sink_with_a_chunk_raises_an_error() -> None:
    with pytest.raises(ValueError, match="a sink belongs to all keys together: look at the chunks without it"):
        look(QUERY, KEY, part=(0, 9), stats=("lse",), sink=0.0)


@pytest.mark.usefixtures("no_shape_checks")
def test_lse_has_one_value_per_query() -> None:
    with pytest.raises(ShapeError, match=r"lse expects one value per query, \(1, 4, 3\), got \(4, 3\)"):
        look(QUERY, KEY, stats=("received",), lse=torch.zeros(4, 3, device=DEVICE))


@pytest.mark.usefixtures("no_shape_checks")
def test_mix_and_spread_check_their_arguments() -> None:
    seen = look(QUERY, KEY)
    with pytest.raises(
        ShapeError, match=r"value expects one vector for each key, \(1, 2, 5, 'value_dim'\), got \(1, 4, 5, 2\)"
    ):
        seen.mix(RNG.normal(1, 4, 5, 2))
    with pytest.raises(ShapeError, match=r"spread expects one vector per query, \(1, 4, 3, 'dim'\)"):
        seen.spread(RNG.normal(1, 2, 3, 2))
    with pytest.raises(ValueError, match="merged from chunks and holds no queries and keys"):
        Look({"lse": seen.lse}).mix(RNG.normal(1, 2, 5, 2))


def test_any_weight_comes_from_its_score_and_the_log_sum_exp() -> None:
    seen = look(QUERY, KEY, mask=masks.causal())
    score = QUERY[0, 3, 1] @ KEY[0, 1, 2] * 8**-0.5
    weight = (score - seen.lse[0, 3, 1]).exp()
    one_hot = torch.zeros(5, 1, device=DEVICE).index_fill_(0, torch.tensor(2, device=DEVICE), 1.0)
    close(weight, seen.mix(one_hot)[0, 3, 1, 0], 1e-6)


def test_statistics_of_a_fully_masked_query() -> None:
    mask = torch.zeros(3, 5, dtype=torch.bool, device=DEVICE)
    stats = (
        "lse",
        "entropy",
        "effective_keys",
        "max_weight",
        "mean_distance",
        "top_weights",
        "top_indices",
        "received",
    )
    seen = look(QUERY, KEY, mask=mask, stats=stats, top_k=2)
    assert seen.lse.eq(-torch.inf).all()
    assert seen.top_indices.eq(-1).all()
    for name in stats[1:-2]:
        assert getattr(seen, name).eq(0).all(), name
    assert seen.received.eq(0).all()


def test_n_equal_weights_count_as_n_effective_keys() -> None:
    seen = look(torch.zeros_like(QUERY), KEY, stats=("entropy", "effective_keys", "max_weight"))
    close(seen.effective_keys, torch.full((1, 4, 3), 5.0, device=DEVICE), 1e-5)
    close(seen.entropy, torch.full((1, 4, 3), 5.0, device=DEVICE).log(), 1e-5)
    close(seen.max_weight, torch.full((1, 4, 3), 0.2, device=DEVICE), 1e-6)


def test_attention_and_look_keeps_every_gradient() -> None:
    weight = RNG.normal(8, 8).requires_grad_()

    def score(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return query @ weight @ key.mT

    output, _ = attention_and_look(QUERY, KEY, KEY, score=score)
    assert output.requires_grad, "the score has parameters, but their gradient is lost"


@pytest.mark.parametrize("sink", [0.0, 60.0, 1000.0])
def test_a_sink_does_not_change_the_effective_keys(sink: float) -> None:
    query, key = torch.randn(1, 2, 3, 4, device=DEVICE), torch.randn(1, 2, 5, 4, device=DEVICE)
    mask = masks.dense(torch.tensor([[True] * 5, [False] * 5, [True] + [False] * 4], device=DEVICE))
    without = look(query, key, mask=mask, stats="effective_keys").effective_keys
    counted = look(query, key, mask=mask, sink=sink, stats="effective_keys").effective_keys
    torch.testing.assert_close(counted, without)
    assert counted[:, :, 0].gt(1).all() and counted[:, :, 1].eq(0).all() and counted[:, :, 2].eq(1).all()
