"""Greedy and beam search find what Hugging Face's `generate` finds, whatever the generation config says."""

from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.decode import NoTokenLeftError
from tests.parity.comparison import read
from tests.parity.random_settings import (
    differences,
    drawn_rows,
    drawn_settings,
    ours_continued,
    ours_translated,
    theirs_found,
)
from tests.parity.seq2seq import both
from tests.parity.test_beam import sharpened
from tests.parity.test_generate import DECODERS, TRANSLATORS

FEW, MANY = 12, 200
"""Settings for each of the five architectures."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """The same weights, read by softlook and by Hugging Face's."""
    made: dict[str, tuple[Any, Any]] = {}
    for number, (name, build) in enumerate({**TRANSLATORS, **DECODERS}.items()):
        torch.manual_seed(number)
        folder: Path = tmp_path_factory.mktemp("folder")
        if name in TRANSLATORS:
            made[name] = both(build() if name == "T5" else sharpened(build()), folder)  # a T5 begins sharp
        else:
            reference: Any = sharpened(build())
            made[name] = read(reference, folder), reference
    return made


def found_apart(pair: tuple[Any, Any], name: str, seed: int) -> list[str]:
    """Where the two answer something else under the settings of this seed."""
    actual, reference = pair
    encodes = name in TRANSLATORS
    settings = drawn_settings(seed, encodes=encodes)
    reads_source = any(field.startswith("encoder_") for field in settings)
    rows = drawn_rows(seed, alike=reads_source)  # theirs takes the filling of a source for words of it
    try:
        mine = (ours_translated if encodes else ours_continued)(actual, rows, settings)
    except NoTokenLeftError:  # settings that contradict each other: theirs goes on with a score of -inf or NaN
        return []
    expected = (
        theirs_found(reference, rows, settings)
        if encodes
        else [theirs_found(reference, [one], settings)[0] for one in rows]
    )
    return [
        f"{name} {seed} {settings}: {one}" for one in differences(mine, expected, searched=settings["num_beams"] > 1)
    ]


@pytest.mark.parametrize("name", [*TRANSLATORS, *DECODERS])
def test_random_generation_settings_match_hugging_face(name: str, pairs: dict[str, tuple[Any, Any]]) -> None:
    wrong = [one for seed in range(FEW) for one in found_apart(pairs[name], name, seed)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TRANSLATORS, *DECODERS])
def test_many_random_generation_settings_match_hugging_face(name: str, pairs: dict[str, tuple[Any, Any]]) -> None:
    wrong = [one for seed in range(1000, 1000 + MANY) for one in found_apart(pairs[name], name, seed)]
    assert not wrong, "\n".join(wrong)
