"""`make same` notices a change, however small, and nothing else."""

import pytest

from tests.models.tiny import TINY
from tests.same import STEPS, compare, losses


@pytest.mark.parametrize("name", ["GPT", "Bert", "Transformer"])
def test_the_same_code_gives_the_same_losses_bit_for_bit(name: str) -> None:
    once, again = losses(TINY[name]), losses(TINY[name])
    assert compare({name: once}, {name: again}) == []
    assert len(set(once)) == STEPS  # something is learned


def test_a_last_bit_is_noticed_and_named() -> None:
    theirs = {"GPT": [(1.0).hex(), (2.0).hex()], "Bert": [(1.0).hex()]}
    ours = {"GPT": [(1.0).hex(), (2.0000000000000004).hex()], "Llama": [(1.0).hex()]}
    assert compare(ours, theirs) == [
        "GPT: from step 2 on, 2.0 then and 2.0000000000000004 now",
        "Llama: only now",
        "Bert: only then",
    ]
