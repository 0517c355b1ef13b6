"""A table's learner in the folder of a run."""

import pytest
import torch

from softlook.recipes.tabular.checkpointing import training_dtype
from softlook.tabular import Hyperparameters


@pytest.mark.parametrize(
    ("half", "has_units", "wanted"),
    [(True, True, "bfloat16"), (True, False, "float32"), (False, True, "float32")],
)
def test_the_precision_of_products_on_a_cpu_is_told_as_it_is(
    half: bool, has_units: bool, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.recipes.tabular.checkpointing.cpu_has_units", lambda: has_units)
    assert training_dtype(Hyperparameters(half=half), torch.device("cpu")) == wanted
