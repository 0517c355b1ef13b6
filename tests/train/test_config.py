"""Training configs reject unknown names and invalid values."""

import pytest
from pydantic import ValidationError

from softlook.train.config import MUTABLE_FIELDS, OptimizerConfig, TrainingConfig, fixed_settings


@pytest.mark.parametrize(
    "invalid",
    [
        {"max_steps": 0},
        {"gradient_accumulation_steps": 0},
        {"ema_decay": 1.0},
        {"max_minutes": 0},
        {"precision": "int8"},
        {"keep_checkpoints": 0},
        {"seed": 10**23},
        {"max_steps": 2**63},
        {"stps": 1},
    ],
    ids=str,
)
def test_invalid_values_raise(invalid: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(invalid))):
        TrainingConfig(**invalid)  # pyright: ignore[reportArgumentType]


def test_every_field_has_a_description() -> None:
    for schema in (TrainingConfig, OptimizerConfig):
        for name, field in schema.model_fields.items():
            assert field.description, name


def test_fixed_settings_are_all_but_the_mutable_fields() -> None:
    fixed = fixed_settings(TrainingConfig(), OptimizerConfig())
    assert set(fixed["training"]) == set(TrainingConfig.model_fields) - MUTABLE_FIELDS
    assert set(fixed["optim"]) == set(OptimizerConfig.model_fields) - {"optimizer"}  # only if it is not the default
    assert set(TrainingConfig.model_fields) >= MUTABLE_FIELDS
