"""Greedy decoding and beam search match Hugging Face's `generate` for random generation configs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.decode import NoTokenLeftError
from tests.parity.comparison import import_model
from tests.parity.random_settings import (
    differences,
    draw_rows,
    draw_settings,
    run_generation,
    run_reference,
    run_translation,
)
from tests.parity.seq2seq import load_both
from tests.parity.test_beam import scale_weights
from tests.parity.test_generate import DECODERS, TRANSLATORS

FEW, MANY = 12, 200
"""Number of configs for each of the five architectures."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """The same weights, loaded by softlook and by transformers."""
    made: dict[str, tuple[Any, Any]] = {}
    for number, (name, build) in enumerate({**TRANSLATORS, **DECODERS}.items()):
        torch.manual_seed(number)
        folder: Path = tmp_path_factory.mktemp("folder")
        if name in TRANSLATORS:
            made[name] = load_both(
                build() if name == "T5" else scale_weights(build()), folder
            )  # the initial logits of T5 already differ enough
        else:
            reference: Any = scale_weights(build())
            made[name] = import_model(reference, folder), reference
    return made


def find_differences(pair: tuple[Any, Any], name: str, seed: int) -> list[str]:
    """The differences between softlook and transformers with the settings of this seed."""
    actual, reference = pair
    seq2seq = name in TRANSLATORS
    settings = draw_settings(seed, seq2seq=seq2seq)
    uses_source = any(field.startswith("encoder_") for field in settings)
    rows = draw_rows(seed, equal_lengths=uses_source)  # transformers takes the padding of a source for tokens
    try:
        found = (run_translation if seq2seq else run_generation)(actual, rows, settings)
    except NoTokenLeftError:  # contradictory settings: transformers continues with scores of -inf or NaN
        return []
    expected = (
        run_reference(reference, rows, settings)
        if seq2seq
        else [run_reference(reference, [one], settings)[0] for one in rows]
    )
    return [
        f"{name} {seed} {settings}: {one}" for one in differences(found, expected, searched=settings["num_beams"] > 1)
    ]


@pytest.mark.parametrize("name", [*TRANSLATORS, *DECODERS])
def test_random_generation_settings_match_hugging_face(name: str, pairs: dict[str, tuple[Any, Any]]) -> None:
    wrong = [one for seed in range(FEW) for one in find_differences(pairs[name], name, seed)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TRANSLATORS, *DECODERS])
def test_many_random_generation_settings_match_hugging_face(name: str, pairs: dict[str, tuple[Any, Any]]) -> None:
    wrong = [one for seed in range(1000, 1000 + MANY) for one in find_differences(pairs[name], name, seed)]
    assert not wrong, "\n".join(wrong)
