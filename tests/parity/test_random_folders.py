"""Random Hugging Face folders give the outputs of transformers or are rejected, and never give other outputs."""

import pytest

from softlook.weights.architectures import ARCHITECTURES
from softlook.weights.architectures.base import HFArchitecture
from tests.parity.random_folders import Folder, Rng, check_folders, counts, draw_folder

FEW, MANY = 60, 2000


def check(found: list[tuple[Folder, str]]) -> None:
    wrong = [f"{folder.kind} {folder.config}: {outcome}" for folder, outcome in found if outcome.startswith("wrong")]
    assert not wrong, "\n".join(wrong[:5])
    rejected = [outcome for _, outcome in found if outcome.startswith("rejected")]
    assert all(len(outcome) >= len("rejected: ") + 20 for outcome in rejected), "an error has no reason"


def test_a_random_folder_matches_hugging_face_or_is_refused() -> None:
    found = check_folders(FEW, seed=0)
    check(found)
    assert counts(found)["equal"] > FEW // 4


@pytest.mark.slow
def test_many_random_folders_match_hugging_face_or_are_refused() -> None:
    found = check_folders(MANY, seed=1)
    check(found)
    assert len(found) == MANY
    equal = {folder.architecture.name for folder, outcome in found if outcome == "equal"}
    assert equal == {architecture.name for architecture in ARCHITECTURES}, "an architecture was never imported"


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda architecture: architecture.model_type)
def test_the_same_seed_draws_the_same_config(architecture: HFArchitecture) -> None:
    one, other = (draw_folder(Rng(5), architecture) for _ in range(2))
    assert (one.kind, one.config, one.double) == (other.kind, other.config, other.double)
    assert any(draw_folder(Rng(seed), architecture).config != one.config for seed in range(3))
