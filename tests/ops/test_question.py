"""A question is checked before it is answered: what was wanted, what came, what to do."""

import re
from typing import Any

import pytest
import torch

from softlook import DtypeError, ShapeError, attention, attention_and_look, attention_weights, look, scores
from softlook.ops.question import ask
from tests.asking import DEVICE


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


QUERY, KEY, VALUE = zeros(2, 4, 3, 8), zeros(2, 2, 5, 8), zeros(2, 2, 5, 6)

WRONG: dict[str, tuple[dict[str, Any], type[ValueError], str]] = {
    "three axes": (
        {"query": zeros(2, 3, 8)},
        ShapeError,
        "query wants the axes (batch, heads, positions, width); (2, 3, 8) came. One head is tensor[:, None]; "
        "a packed width is tensor.unflatten(-1, (heads, -1)).transpose(1, 2).",
    ),
    "three axes of keys": ({"key": zeros(2, 5, 8)}, ShapeError, "key wants the axes"),
    "three axes of values": ({"value": zeros(2, 5, 8)}, ShapeError, "value wants the axes"),
    "batch": ({"key": zeros(1, 2, 5, 8)}, ShapeError, "query has a batch of 2, key one of 1"),
    "width": ({"key": zeros(2, 2, 5, 7)}, ShapeError, "query is 8 wide, key 7"),
    "heads": (
        {"key": zeros(2, 3, 5, 8)},
        ShapeError,
        "4 query heads cannot share 3 key heads: 4 is not a multiple of 3",
    ),
    "more key heads": ({"key": zeros(2, 8, 5, 8)}, ShapeError, "4 query heads cannot share 8 key heads"),
    "value length": (
        {"value": zeros(2, 2, 4, 6)},
        ShapeError,
        "value wants one vector for each key, (2, 2, 5, 'width'); (2, 2, 4, 6) came",
    ),
    "value heads": ({"value": zeros(2, 4, 5, 6)}, ShapeError, "(2, 4, 5, 6) came"),
    "value batch": ({"value": zeros(1, 2, 5, 6)}, ShapeError, "(1, 2, 5, 6) came"),
    "whole numbers": (
        {"query": zeros(2, 4, 3, 8, dtype=torch.long)},
        DtypeError,
        "query wants floating-point numbers; torch.int64 came. Use query.float().",
    ),
    "truths": ({"value": zeros(2, 2, 5, 6, dtype=torch.bool)}, DtypeError, "value wants floating-point numbers"),
    "complex": ({"query": zeros(2, 4, 3, 8, dtype=torch.complex64)}, DtypeError, "torch.complex64 came"),
    "mixed keys": (
        {"key": zeros(2, 2, 5, 8, dtype=torch.float64)},
        DtypeError,
        "key holds torch.float64 but query holds torch.float32. Use key.to(query.dtype).",
    ),
    "mixed values": ({"value": zeros(2, 2, 5, 6, dtype=torch.bfloat16)}, DtypeError, "value holds torch.bfloat16"),
    "another device": (
        {"key": torch.zeros(2, 2, 5, 8, device="meta")},
        DtypeError,
        f"key is on meta but query is on {QUERY.device}. Use key.to(query.device).",
    ),
    "no cap": ({"softcap": 0.0}, ValueError, "softcap wants a number above 0, or None for none; 0.0 came"),
    "negative cap": ({"softcap": -1.0}, ValueError, "softcap wants a number above 0"),
    "endless cap": (
        {"softcap": float("inf")},
        ValueError,
        "softcap wants a number above 0, or None for none; inf came",
    ),
    "scale": ({"scale": float("nan")}, ValueError, "scale wants a finite number; nan came"),
    "endless scale": ({"scale": float("inf")}, ValueError, "scale wants a finite number; inf came"),
    "sink": ({"sink": zeros(3)}, ShapeError, "sink wants one score, or one for each of the 4 heads; (3,) came"),
    "sink per group": ({"sink": zeros(2)}, ShapeError, "one for each of the 4 heads; (2,) came"),
    "all dropped": ({"dropout": 1.0}, ValueError, "dropout wants a share from 0 up to, not including, 1; 1.0 came"),
    "negative dropout": ({"dropout": -0.1}, ValueError, "dropout wants a share"),
    "dropout of nan": ({"dropout": float("nan")}, ValueError, "dropout wants a share"),
}


@pytest.mark.parametrize("call", [attention, attention_and_look], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.usefixtures("no_shape_checks")
def test_what_does_not_fit_is_refused_with_a_reason(name: str, call: Any) -> None:
    changes, error, message = WRONG[name]
    with pytest.raises(error, match=re.escape(message)):
        call(**({"query": QUERY, "key": KEY, "value": VALUE} | changes))


@pytest.mark.parametrize("name", [name for name, wrong in WRONG.items() if not wrong[0].keys() & {"value", "dropout"}])
@pytest.mark.parametrize("call", [attention_weights, look], ids=lambda f: f.__name__)
@pytest.mark.usefixtures("no_shape_checks")
def test_maps_and_looks_refuse_the_same(name: str, call: Any) -> None:
    changes, error, message = WRONG[name]
    with pytest.raises(error, match=re.escape(message)):
        call(**({"query": QUERY, "key": KEY} | changes))


def test_the_scale_is_one_over_the_root_of_the_width_unless_given() -> None:
    assert ask(QUERY, KEY).scale == 8**-0.5
    assert ask(QUERY, KEY, scale=3.0).scale == 3.0
    assert ask(QUERY, KEY, score=scores.scaled(4.0)).scale == 0.25
    assert ask(QUERY, KEY, score=lambda query, key: query @ key.mT).scale == 1.0


def test_a_question_knows_its_sizes() -> None:
    question = ask(QUERY, KEY)
    assert question.sizes == (2, 4, 3, 5)
    assert question.repeats == 2
    assert question.numbers == torch.float32
    assert ask(QUERY.bfloat16(), KEY.bfloat16()).numbers == torch.float32
    assert ask(QUERY.double(), KEY.double()).numbers == torch.float64


def test_a_question_knows_whether_a_gradient_is_wanted() -> None:
    leaf = zeros(4).requires_grad_()
    assert not ask(QUERY, KEY).needs_gradient
    assert ask(QUERY, KEY, sink=leaf).needs_gradient
    assert ask(QUERY, KEY, bias=zeros(3, 5).requires_grad_()).needs_gradient
    weight = zeros(8, 3).requires_grad_()
    assert ask(QUERY, KEY, score=scores.additive(weight, weight, zeros(3))).needs_gradient
    with torch.no_grad():
        assert not ask(QUERY, KEY, sink=leaf).needs_gradient


@pytest.mark.parametrize("elements", [1, 7, 30, 10**6])
@pytest.mark.parametrize("rows", [1, 2, 64])
def test_tiles_cover_the_map_once(elements: int, rows: int) -> None:
    covered = torch.zeros(2, 4, 3, 5)
    for strips in ask(QUERY, KEY).tiles(elements, rows):
        for tile in strips:
            covered[
                tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop, tile.rows.start : tile.rows.stop
            ] += 1
            assert tile.columns == range(5) and len(tile.rows) <= rows
            assert tile.heads.start % 2 == 0 and len(tile.heads) % 2 == 0, "a group is torn apart"
    assert covered.eq(1).all()


@pytest.mark.parametrize("part", [(-1, 9), (5, 9), (0, 4)])
def test_a_part_that_lies_outside_of_all_keys_is_refused(part: tuple[int, int]) -> None:
    with pytest.raises(ShapeError, match=rf"places 5 keys from {part[0]} on among {part[1]}: they do not fit"):
        look(QUERY, KEY, part=part, ask=("lse",))
