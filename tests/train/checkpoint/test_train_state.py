"""The progress of a run and the states of the random number generators are saved and restored."""

import json

import pytest
import torch

from softlook.train.batching.batches import DataCursor
from softlook.train.checkpoint.train_state import Progress
from softlook.train.rng import get_rng_states, preserve_rng_states, set_rng_states
from tests.train.tiny import CPU


def test_progress_round_trips_through_json() -> None:
    progress = Progress(7, DataCursor(2, 3), 1.5, 0.1 + 0.2, 4, 6, 1, 2, 8)
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress


@pytest.mark.parametrize(
    ("best", "loss", "is_best"),
    [(None, 1.0, True), (1.0, 0.5, True), (1.0, 1.0, False), (1.0, float("nan"), False), (None, float("nan"), False)],
)
def test_the_best_evaluation_has_the_smallest_loss(best: float | None, loss: float, is_best: bool) -> None:
    after = Progress(step=9, best_loss=best, best_step=3, evals_since_best=2).record_evaluation(loss)
    assert after.last_eval_step == 9
    assert (after.best_step == 9, after.evals_since_best) == ((True, 0) if is_best else (False, 3))
    assert after.best_loss == (loss if is_best else best)


def test_rng_states_are_restored() -> None:
    state = get_rng_states(CPU)
    one = torch.rand(5)
    set_rng_states(state, CPU)
    assert torch.equal(torch.rand(5), one)


def test_preserve_rng_states_restores_after_an_error() -> None:
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    with pytest.raises(ZeroDivisionError), preserve_rng_states(CPU):
        torch.rand(100)
        raise ZeroDivisionError
    assert torch.equal(torch.rand(3), expected)
