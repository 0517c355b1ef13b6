"""Looks: what can be asked, and what is said when it cannot."""

from typing import Any

import pytest
import torch

from softlook import Look, ShapeError, attention_and_look, look, masks
from tests.asking import DEVICE, Made, close

MADE = Made(torch.Generator().manual_seed(9), torch.float32)
QUERY, KEY = MADE.normal(1, 4, 3, 8), MADE.normal(1, 2, 5, 8)


def test_a_look_holds_what_was_asked_for_and_nothing_else() -> None:
    seen = look(QUERY, KEY, ask=("received", "lse"))
    assert list(seen.found) == ["lse", "received"]
    assert repr(seen) == "Look(lse 1x4x3, received 1x4x5)"
    assert list(look(QUERY, KEY).found) == ["lse", "entropy", "strongest", "received"]
    assert list(look(QUERY, KEY, ask="entropy").found) == ["entropy"]
    assert list(look(QUERY, KEY, ask=("top_indices",)).found) == ["top_indices"]


def test_what_was_not_asked_for_is_named() -> None:
    seen = look(QUERY, KEY, ask=("lse",))
    with pytest.raises(AttributeError, match=r"not asked for 'entropy', only for lse: add it to ask=\(\.\.\.\)"):
        _ = seen.entropy
    assert not hasattr(seen, "heat_max")


def test_an_unknown_statistic_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="a look cannot tell 'entropie'. Did you mean 'entropy'?"):
        look(QUERY, KEY, ask=("entropie",))
    with pytest.raises(ValueError, match="a look cannot tell 'xyz'. There is lse, entropy, .*heat_max."):
        look(QUERY, KEY, ask=("lse", "xyz"))
    with pytest.raises(ValueError, match="Did you mean 'received'?"):
        attention_and_look(QUERY, KEY, KEY, ask=("recieved",))


@pytest.mark.parametrize("name", ["top", "bins"])
def test_counts_start_at_one(name: str) -> None:
    nothing: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=f"{name} wants a whole number from 1 up; 0 came"):
        look(QUERY, KEY, **nothing)


def test_what_adds_up_per_key_needs_the_whole_log_sum_exp() -> None:
    with pytest.raises(ValueError, match="heat_mean, received of a part of the keys needs the log-sum-exp over all"):
        look(QUERY, KEY, part=(0, 9), ask=("lse", "received", "heat_mean"))
    with pytest.raises(
        ValueError, match="entropy of all keys comes from merging the parts; with lse=, ask for received"
    ):
        look(QUERY, KEY, part=(0, 9), ask=("entropy", "received"), lse=torch.zeros(1, 4, 3, device=DEVICE))


def test_a_sink_does_not_belong_to_a_part() -> None:
    with pytest.raises(ValueError, match="a sink belongs to all keys together: look at the parts without it"):
        look(QUERY, KEY, part=(0, 9), ask=("lse",), sink=0.0)


@pytest.mark.usefixtures("no_shape_checks")
def test_a_log_sum_exp_is_one_number_per_query() -> None:
    with pytest.raises(ShapeError, match=r"lse wants one number per query, \(1, 4, 3\); \(4, 3\) came"):
        look(QUERY, KEY, ask=("received",), lse=torch.zeros(4, 3, device=DEVICE))


@pytest.mark.usefixtures("no_shape_checks")
def test_mix_and_spread_say_what_they_want() -> None:
    seen = look(QUERY, KEY)
    with pytest.raises(
        ShapeError, match=r"value wants one vector for each key, \(1, 2, 5, 'width'\); \(1, 4, 5, 2\) came"
    ):
        seen.mix(MADE.normal(1, 4, 5, 2))
    with pytest.raises(ShapeError, match=r"spread wants one amount for each query, \(1, 4, 3, 'width'\)"):
        seen.spread(MADE.normal(1, 2, 3, 2))
    with pytest.raises(ValueError, match="merged from parts and no longer has the queries and keys"):
        Look({"lse": seen.lse}).mix(MADE.normal(1, 2, 5, 2))


def test_any_weight_comes_from_its_score_and_the_log_sum_exp() -> None:
    seen = look(QUERY, KEY, mask=masks.causal())
    score = QUERY[0, 3, 1] @ KEY[0, 1, 2] * 8**-0.5
    weight = (score - seen.lse[0, 3, 1]).exp()
    unit = torch.zeros(5, 1, device=DEVICE).index_fill_(0, torch.tensor(2, device=DEVICE), 1.0)
    close(weight, seen.mix(unit)[0, 3, 1, 0], 1e-6)


def test_a_query_that_sees_nothing_has_nothing_to_tell() -> None:
    nothing = torch.zeros(3, 5, dtype=torch.bool, device=DEVICE)
    ask = ("lse", "entropy", "effective_keys", "strongest", "distance", "top_weights", "top_indices", "received")
    seen = look(QUERY, KEY, mask=nothing, ask=ask, top=2)
    assert seen.lse.eq(-torch.inf).all()
    assert seen.top_indices.eq(-1).all()
    for name in ask[1:-2]:
        assert getattr(seen, name).eq(0).all(), name
    assert seen.received.eq(0).all()


def test_n_keys_alike_count_as_n() -> None:
    seen = look(torch.zeros_like(QUERY), KEY, ask=("entropy", "effective_keys", "strongest"))
    close(seen.effective_keys, torch.full((1, 4, 3), 5.0, device=DEVICE), 1e-5)
    close(seen.entropy, torch.full((1, 4, 3), 5.0, device=DEVICE).log(), 1e-5)
    close(seen.strongest, torch.full((1, 4, 3), 0.2, device=DEVICE), 1e-6)


def test_looking_while_attending_keeps_every_gradient() -> None:
    weight = MADE.normal(8, 8).requires_grad_()

    def score(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return query @ weight @ key.mT

    output, _ = attention_and_look(QUERY, KEY, KEY, score=score)
    assert output.requires_grad, "the score learns, but its gradient is lost"


@pytest.mark.parametrize("sink", [0.0, 60.0, 1000.0])
def test_a_sink_does_not_change_how_many_keys_count(sink: float) -> None:
    query, key = torch.randn(1, 2, 3, 4, device=DEVICE), torch.randn(1, 2, 5, 4, device=DEVICE)
    mask = masks.dense(torch.tensor([[True] * 5, [False] * 5, [True] + [False] * 4], device=DEVICE))
    without = look(query, key, mask=mask, ask="effective_keys").effective_keys
    counted = look(query, key, mask=mask, sink=sink, ask="effective_keys").effective_keys
    torch.testing.assert_close(counted, without)
    assert counted[:, :, 0].gt(1).all() and counted[:, :, 1].eq(0).all() and counted[:, :, 2].eq(1).all()
