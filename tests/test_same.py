"""`make same` reports every change of a loss, however small, and nothing else."""

import pytest

from tests.models.tiny import TINY
from tests.same import STEPS, compare, losses


@pytest.mark.parametrize("name", ["GPT", "Bert", "Transformer"])
def test_equal_code_gives_equal_losses_bit_for_bit(name: str) -> None:
    once, again = losses(TINY[name]), losses(TINY[name])
    assert compare({name: once}, {name: again}) == []
    assert len(set(once)) == STEPS  # the model is trained


def test_a_difference_in_the_last_bit_is_reported() -> None:
    old = {"GPT": [(1.0).hex(), (2.0).hex()], "Bert": [(1.0).hex()]}
    new = {"GPT": [(1.0).hex(), (2.0000000000000004).hex()], "Llama": [(1.0).hex()]}
    assert compare(new, old) == [
        "GPT: from step 2 on, 2.0 (old), 2.0000000000000004 (new)",
        "Llama: only new",
        "Bert: only old",
    ]
