"""A unit of its own in front of a sequence."""

import torch

from softlook.embed import GlobalUnit


def test_the_unit_stands_in_front_of_every_sequence_and_the_rest_is_untouched() -> None:
    unit, x = GlobalUnit(4), torch.randn(2, 3, 4)
    longer = unit(x)
    assert torch.equal(longer[:, 1:], x)
    assert torch.equal(longer[:, 0], unit.vector.expand(2, -1))


def test_the_unit_is_learned() -> None:
    unit = GlobalUnit(4)
    unit(torch.randn(2, 3, 4)).sum().backward()
    assert unit.vector.grad is not None
    torch.testing.assert_close(unit.vector.grad, torch.full((4,), 2.0))
