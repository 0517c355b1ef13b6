"""Random folders of Hugging Face's are read with its own answers or refused, and never read wrongly."""

import pytest

from softlook.weights.architectures import ARCHITECTURES
from tests.parity.random_folders import Folder, Rng, counts, drawn, verdicts

FEW, MANY = 60, 2000


def check(found: list[tuple[Folder, str]]) -> None:
    wrong = [f"{folder.kind} {folder.config}: {output}" for folder, output in found if output.startswith("wrong")]
    assert not wrong, "\n".join(wrong[:5])
    silent = [output for _, output in found if output.startswith("refused") and len(output) < len("refused: ") + 20]
    assert not silent, "a refusal says why"


def test_a_random_folder_matches_hugging_face_or_is_refused() -> None:
    found = verdicts(FEW, seed=0)
    check(found)
    assert counts(found)["right"] > FEW // 4


@pytest.mark.slow
def test_many_random_folders_match_hugging_face_or_are_refused() -> None:
    found = verdicts(MANY, seed=1)
    check(found)
    assert len(found) == MANY
    right = {folder.family.name for folder, output in found if output == "right"}
    assert right == {family.name for family in ARCHITECTURES}, "of every family, some are read"


@pytest.mark.parametrize("family", ARCHITECTURES, ids=lambda family: family.model_type)
def test_the_same_seed_draws_the_same_config(family: object) -> None:
    one, other = (drawn(Rng(5), family) for _ in range(2))  # pyright: ignore[reportArgumentType]
    assert (one.kind, one.config, one.double) == (other.kind, other.config, other.double)
    assert any(drawn(Rng(seed), family).config != one.config for seed in range(3))  # pyright: ignore[reportArgumentType]
