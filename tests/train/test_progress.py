"""Where a run stands can be written down, and the dice lie as they lay."""

import json

import pytest
import torch

from softlook.train.batches import Place
from softlook.train.progress import Progress, dice, dice_kept, set_dice
from tests.train.tiny import CPU


def test_what_is_written_down_is_read_again() -> None:
    progress = Progress(7, Place(2, 3), 1.5, 0.1 + 0.2, 4, 6, 1, 2, 8)
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress


@pytest.mark.parametrize(
    ("best", "loss", "is_best"),
    [(None, 1.0, True), (1.0, 0.5, True), (1.0, 1.0, False), (1.0, float("nan"), False), (None, float("nan"), False)],
)
def test_the_best_look_is_the_one_with_the_smallest_loss(best: float | None, loss: float, is_best: bool) -> None:
    after = Progress(step=9, best=best, best_step=3, waited=2).after_look(loss)
    assert after.looked == 9
    assert (after.best_step == 9, after.waited) == ((True, 0) if is_best else (False, 3))
    assert after.best == (loss if is_best else best)


def test_dice_roll_on_from_where_they_were() -> None:
    state = dice(CPU)
    one = torch.rand(5)
    set_dice(state, CPU)
    assert torch.equal(torch.rand(5), one)


def test_what_is_rolled_in_between_is_forgotten() -> None:
    torch.manual_seed(4)
    wanted = torch.rand(3)
    torch.manual_seed(4)
    with pytest.raises(ZeroDivisionError), dice_kept(CPU):
        torch.rand(100)
        raise ZeroDivisionError
    assert torch.equal(torch.rand(3), wanted)
