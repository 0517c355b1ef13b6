"""Biases: numbers added to the scores, written out or in symbols."""

from typing import Any

import pytest
import torch

from softlook import DtypeError, MaskError, attention, attention_scores, positions
from softlook.base.shapes import Tile
from softlook.ops.bias import DenseBias, as_bias
from tests.asking import DEVICE, Made, close

SIZES = (2, 4, 3, 5)


@pytest.fixture
def made() -> Made:
    return Made(torch.Generator().manual_seed(0), torch.float64)


def test_a_bias_is_added_after_scale_and_cap_and_before_the_mask(made: Made) -> None:
    query, key, bias = made.normal(2, 4, 3, 6), made.normal(2, 4, 5, 6), made.normal(*SIZES)
    mask = made.coin(3, 5)
    scores = attention_scores(query, key, bias=bias, mask=mask, softcap=2.0, scale=0.5)
    wanted = (2 * (query @ key.mT * 0.5 / 2).tanh() + bias).masked_fill(~mask, -torch.inf)
    close(scores, wanted)


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (2, 4, 3, 5), (1, 4, 1, 5), (2, 1, 1, 5)], ids=str)
def test_an_axis_written_as_one_holds_for_all(made: Made, shape: tuple[int, ...]) -> None:
    query, key, bias = made.normal(2, 4, 3, 6), made.normal(2, 4, 5, 6), made.normal(*shape)
    close(attention_scores(query, key, bias=bias), attention_scores(query, key) + bias)


def test_biases_add_up(made: Made) -> None:
    query, key, bias = made.normal(2, 4, 3, 6), made.normal(2, 4, 5, 6), made.normal(3, 5)
    alibi = positions.alibi(4)
    both = attention_scores(query, key, bias=alibi + bias)
    close(both, attention_scores(query, key, bias=alibi) + bias)
    close(both, attention_scores(query, key, bias=as_bias(bias) + alibi))
    assert str(alibi + bias) == "alibi + dense(1x1x3x5)"


def test_single_entries_and_tiles_of_a_bias_agree(made: Made) -> None:
    tile = Tile.whole(SIZES, DEVICE)
    key = made.normal(2, 4, 5, 6)
    table = made.normal(8, 4)
    alibi = positions.alibi(torch.tensor([0.5, 0.25, 0.125, 0.0625], device=DEVICE))
    for bias in (as_bias(made.normal(2, 1, 1, 5)), alibi, positions.t5(table), alibi + made.normal(3, 5)):
        at = bias.entry(3, 5)
        assert at is not None
        whole = bias.on(key[:, :, :3], key, 1.0, tile).expand(SIZES)
        close(at(*torch.broadcast_tensors(*tile.indices())).to(whole), whole)


def test_a_bias_that_meets_the_content_has_no_single_entries(made: Made) -> None:
    shaw = positions.shaw(made.normal(5, 6))
    assert shaw.entry(3, 5) is None
    assert (shaw + made.normal(3, 5)).entry(3, 5) is None


def test_a_bias_knows_whether_it_hides_learns_or_adds_to_the_values(made: Made) -> None:
    dense, alibi = as_bias(made.normal(3, 5)), positions.alibi(4)
    assert dense.may_hide and not alibi.may_hide and (alibi + dense).may_hide
    assert not dense.learned and as_bias(made.normal(3, 5).requires_grad_()).learned
    assert (alibi + made.normal(3, 5).requires_grad_()).learned
    assert positions.shaw(made.normal(5, 6), made.normal(5, 2)).adds_value
    assert not (alibi + positions.shaw(made.normal(5, 6))).adds_value


def test_two_biases_that_add_to_the_values_both_do(made: Made) -> None:
    query = made.normal(1, 1, 4, 6)
    one, other = (positions.shaw(made.normal(3, 6), made.normal(3, 2)) for _ in range(2))
    value = made.normal(1, 1, 4, 2)
    weights = attention_scores(query, query, bias=one + other, stage="softmaxed")
    tile = Tile.whole((1, 1, 4, 4), DEVICE)
    added = [bias.added_value(weights, tile) for bias in (one, other)]
    assert added[0] is not None and added[1] is not None
    close(attention(query, query, value, bias=one + other), weights @ value + added[0] + added[1])


@pytest.mark.parametrize("backend", ["reference", "sdpa", "blocks"])
def test_minus_infinity_hides_as_a_mask_does(made: Made, backend: Any) -> None:
    query, key, value = made.normal(1, 2, 3, 6), made.normal(1, 2, 5, 6), made.normal(1, 2, 5, 4)
    hidden = made.coin(3, 5)
    hidden[1] = True
    bias = torch.zeros(3, 5, dtype=torch.float64, device=DEVICE).masked_fill(hidden, -torch.inf)
    came = attention(query, key, value, bias=bias, backend=backend)
    close(came, attention(query, key, value, mask=~hidden, backend="reference"))
    assert came[:, :, 1].eq(0).all()


@pytest.mark.parametrize("backend", ["reference", "sdpa", "blocks"])
def test_a_row_hidden_by_a_bias_gets_zero_gradients(made: Made, backend: Any) -> None:
    query = made.normal(1, 2, 3, 6).requires_grad_()
    bias = torch.zeros(3, 3, dtype=torch.float64, device=DEVICE)
    bias[1] = -torch.inf
    bias.requires_grad_()
    (made.normal(1, 2, 3, 6) * attention(query, query, query, bias=bias, backend=backend)).sum().backward()
    assert query.grad is not None and query.grad.isfinite().all()
    assert bias.grad is not None and bias.grad.isfinite().all() and bias.grad[1].eq(0).all()


@pytest.mark.parametrize(
    ("bias", "error", "message"),
    [
        (torch.ones(3, 5, dtype=torch.bool), DtypeError, "holds torch.bool. True and False go in as mask="),
        (torch.ones(3, 5, dtype=torch.long), DtypeError, r"torch.int64.*become a bias with \.float\(\)"),
        (torch.ones(4, 3, 5), MaskError, r"\(4, 3, 5\) came.*bias\[:, None\].*bias\[None\]"),
        (torch.ones(5, 3), MaskError, r"a bias for 2 x 4 heads, 3 queries and 5 keys.*\(1, 1, 5, 3\) came"),
        (torch.ones(3, 1), MaskError, r"\(1, 1, 3, 1\) came"),
        (positions.alibi(3), MaskError, "for 3 heads, but the query has 4"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_a_bias_that_does_not_fit_says_why(bias: Any, error: type, message: str) -> None:
    query, key = torch.zeros(2, 4, 3, 8), torch.zeros(2, 2, 5, 8)
    with pytest.raises(error, match=f"(?s){message}"):
        attention(query, key, key, bias=bias)


def test_a_dense_bias_says_its_shape() -> None:
    assert str(DenseBias(torch.zeros(1, 2, 3, 4))) == "dense(1x2x3x4)"
