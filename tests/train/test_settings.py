"""One closed schema: an unknown name or an impossible value is told."""

import pytest
from pydantic import ValidationError

from softlook.train.settings import FREE, Optim, Training, lasting


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"accumulate": 0},
        {"average": 1.0},
        {"minutes": 0},
        {"precision": "int8"},
        {"keep": 0},
        {"seed": 10**23},
        {"steps": 2**63},
        {"stps": 1},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_told(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Training(**wrong)  # pyright: ignore[reportArgumentType]


def test_every_setting_says_what_it_is() -> None:
    for schema in (Training, Optim):
        for name, field in schema.model_fields.items():
            assert field.description, name


def test_what_lasts_is_all_but_what_may_change() -> None:
    kept = lasting(Training(), Optim())
    assert set(kept["training"]) == set(Training.model_fields) - FREE
    assert set(kept["optim"]) == set(Optim.model_fields)
    assert set(Training.model_fields) >= FREE
