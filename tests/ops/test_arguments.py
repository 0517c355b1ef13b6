"""Invalid arguments raise errors that state what was expected, what was given and what to do."""

import re
from typing import Any

import pytest
import torch

from softlook import DtypeError, ShapeError, attention, attention_and_look, attention_weights, look, scores
from softlook.ops.arguments import prepare_args
from tests.ops_cases import DEVICE


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


QUERY, KEY, VALUE = zeros(2, 4, 3, 8), zeros(2, 2, 5, 8), zeros(2, 2, 5, 6)

INVALID: dict[str, tuple[dict[str, Any], type[ValueError], str]] = {
    "three dimensions": (
        {"query": zeros(2, 3, 8)},
        ShapeError,
        "query expects the dimensions (batch, heads, positions, head_dim), got (2, 3, 8). One head is tensor[:, None]; "
        "split packed heads with tensor.unflatten(-1, (heads, -1)).transpose(1, 2).",
    ),
    "three dimensions of keys": ({"key": zeros(2, 5, 8)}, ShapeError, "key expects the dimensions"),
    "three dimensions of values": ({"value": zeros(2, 5, 8)}, ShapeError, "value expects the dimensions"),
    "batch": ({"key": zeros(1, 2, 5, 8)}, ShapeError, "query has batch size 2, key has 1"),
    "head_dim": ({"key": zeros(2, 2, 5, 7)}, ShapeError, "query has head_dim 8, key has 7"),
    "heads": (
        {"key": zeros(2, 3, 5, 8)},
        ShapeError,
        "4 query heads cannot share 3 key heads: 4 is not a multiple of 3",
    ),
    "more key heads": ({"key": zeros(2, 8, 5, 8)}, ShapeError, "4 query heads cannot share 8 key heads"),
    "value length": (
        {"value": zeros(2, 2, 4, 6)},
        ShapeError,
        "value expects one vector for each key, (2, 2, 5, 'value_dim'), got (2, 2, 4, 6)",
    ),
    "value heads": ({"value": zeros(2, 4, 5, 6)}, ShapeError, "got (2, 4, 5, 6)"),
    "value batch": ({"value": zeros(1, 2, 5, 6)}, ShapeError, "got (1, 2, 5, 6)"),
    "integers": (
        {"query": zeros(2, 4, 3, 8, dtype=torch.long)},
        DtypeError,
        "query expects a floating-point dtype, got torch.int64. Use query.float().",
    ),
    "booleans": ({"value": zeros(2, 2, 5, 6, dtype=torch.bool)}, DtypeError, "value expects a floating-point dtype"),
    "complex": ({"query": zeros(2, 4, 3, 8, dtype=torch.complex64)}, DtypeError, "got torch.complex64"),
    "mixed keys": (
        {"key": zeros(2, 2, 5, 8, dtype=torch.float64)},
        DtypeError,
        "key has dtype torch.float64 but query has torch.float32. Use key.to(query.dtype).",
    ),
    "mixed values": ({"value": zeros(2, 2, 5, 6, dtype=torch.bfloat16)}, DtypeError, "value has dtype torch.bfloat16"),
    "another device": (
        {"key": torch.zeros(2, 2, 5, 8, device="meta")},
        DtypeError,
        f"key is on meta but query is on {QUERY.device}. Use key.to(query.device).",
    ),
    "zero softcap": ({"softcap": 0.0}, ValueError, "softcap expects a number above 0 or None, got 0.0"),
    "negative softcap": ({"softcap": -1.0}, ValueError, "softcap expects a number above 0"),
    "infinite softcap": (
        {"softcap": float("inf")},
        ValueError,
        "softcap expects a number above 0 or None, got inf",
    ),
    "scale": ({"scale": float("nan")}, ValueError, "scale expects a finite number, got nan"),
    "infinite scale": ({"scale": float("inf")}, ValueError, "scale expects a finite number, got inf"),
    "sink": ({"sink": zeros(3)}, ShapeError, "sink expects one logit, or one for each of the 4 heads, got (3,)"),
    "sink per group": ({"sink": zeros(2)}, ShapeError, "one for each of the 4 heads, got (2,)"),
    "all dropped": ({"dropout": 1.0}, ValueError, "dropout expects a probability in [0, 1), got 1.0"),
    "negative dropout": ({"dropout": -0.1}, ValueError, "dropout expects a probability"),
    "dropout of nan": ({"dropout": float("nan")}, ValueError, "dropout expects a probability"),
}


@pytest.mark.parametrize("call", [attention, attention_and_look], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", INVALID)
@pytest.mark.usefixtures("no_shape_checks")
def test_invalid_arguments_raise_an_error(name: str, call: Any) -> None:
    changes, error, message = INVALID[name]
    with pytest.raises(error, match=re.escape(message)):
        call(**({"query": QUERY, "key": KEY, "value": VALUE} | changes))


@pytest.mark.parametrize("name", [name for name, case in INVALID.items() if not case[0].keys() & {"value", "dropout"}])
@pytest.mark.parametrize("call", [attention_weights, look], ids=lambda f: f.__name__)
@pytest.mark.usefixtures("no_shape_checks")
def test_weights_and_looks_raise_the_same_errors(name: str, call: Any) -> None:
    changes, error, message = INVALID[name]
    with pytest.raises(error, match=re.escape(message)):
        call(**({"query": QUERY, "key": KEY} | changes))


def test_the_default_scale_is_one_over_the_root_of_the_head_dim() -> None:
    assert prepare_args(QUERY, KEY).scale == 8**-0.5
    assert prepare_args(QUERY, KEY, scale=3.0).scale == 3.0
    assert prepare_args(QUERY, KEY, score=scores.scaled_dot(4.0)).scale == 0.25
    assert prepare_args(QUERY, KEY, score=lambda query, key: query @ key.mT).scale == 1.0


def test_sizes_group_size_and_compute_dtype() -> None:
    args = prepare_args(QUERY, KEY)
    assert args.sizes == (2, 4, 3, 5)
    assert args.group_size == 2
    assert args.compute_dtype == torch.float32
    assert prepare_args(QUERY.bfloat16(), KEY.bfloat16()).compute_dtype == torch.float32
    assert prepare_args(QUERY.double(), KEY.double()).compute_dtype == torch.float64


def test_requires_grad_covers_all_arguments() -> None:
    leaf = zeros(4).requires_grad_()
    assert not prepare_args(QUERY, KEY).requires_grad
    assert prepare_args(QUERY, KEY, sink=leaf).requires_grad
    assert prepare_args(QUERY, KEY, bias=zeros(3, 5).requires_grad_()).requires_grad
    weight = zeros(8, 3).requires_grad_()
    assert prepare_args(QUERY, KEY, score=scores.additive(weight, weight, zeros(3))).requires_grad
    with torch.no_grad():
        assert not prepare_args(QUERY, KEY, sink=leaf).requires_grad


@pytest.mark.parametrize("elements", [1, 7, 30, 10**6])
@pytest.mark.parametrize("rows", [1, 2, 64])
def test_tiles_cover_the_map_once(elements: int, rows: int) -> None:
    covered = torch.zeros(2, 4, 3, 5)
    for group in prepare_args(QUERY, KEY).tiles(elements, rows):
        for tile in group:
            covered[
                tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop, tile.rows.start : tile.rows.stop
            ] += 1
            assert tile.columns == range(5) and len(tile.rows) <= rows
            assert tile.heads.start % 2 == 0 and len(tile.heads) % 2 == 0, "a group of heads is split"
    assert covered.eq(1).all()


@pytest.mark.parametrize("part", [(-1, 9), (5, 9), (0, 4)])
def test_a_chunk_outside_the_range_of_keys_raises_an_error(part: tuple[int, int]) -> None:
    with pytest.raises(ShapeError, match=rf"part=\(first, total\)=\({part[0]}, {part[1]}\) does not hold 5 keys"):
        look(QUERY, KEY, part=part, stats=("lse",))
