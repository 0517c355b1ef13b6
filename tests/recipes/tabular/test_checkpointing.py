"""The training loop of a table run."""

import pytest
import torch

from softlook.recipes.tabular.checkpointing import training_dtype
from softlook.tabular import Hyperparameters


@pytest.mark.parametrize(
    ("mixed_precision", "has_bf16", "expected"),
    [(True, True, "bfloat16"), (True, False, "float32"), (False, True, "float32")],
)
def test_the_training_dtype_on_a_cpu_is_the_one_that_is_used(
    mixed_precision: bool, has_bf16: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.recipes.tabular.checkpointing.cpu_has_bf16", lambda: has_bf16)
    assert training_dtype(Hyperparameters(mixed_precision=mixed_precision), torch.device("cpu")) == expected
