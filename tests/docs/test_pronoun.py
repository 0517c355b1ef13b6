"""The models of the picture of one head and two learn what "it" refers to, and the stored numbers are theirs."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pronoun", ROOT / "examples/pronoun.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


def test_the_stored_numbers_have_the_settings_of_the_example(example: ModuleType) -> None:
    stored = json.loads(example.FILE.read_text(encoding="utf-8"))
    training, held_out = example.split()
    assert stored["settings"] == {
        "dim": example.DIM,
        "depth": example.DEPTH,
        "steps": example.STEPS,
        "training": len(training),
        "held_out": len(held_out),
    }
    assert not set(training) & set(held_out) and set(example.EXAMPLES) <= set(held_out)
    assert all(one["answers"] == ["animal", "road"] for one in stored["heads"].values())


@pytest.mark.slow
def test_both_models_learn_what_it_refers_to(example: ModuleType) -> None:
    for one in example.run_all()["heads"].values():
        assert one["accuracy"] > 0.95 and one["answers"] == ["animal", "road"]
