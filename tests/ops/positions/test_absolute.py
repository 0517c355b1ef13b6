"""Absolute position embeddings: sinusoidal and learned."""

import pytest
import torch

from softlook import ShapeError, positions


def test_sinusoidal_matches_the_formula() -> None:
    table = positions.sinusoidal(20, 8)
    for position in (0, 1, 19):
        for pair in range(4):
            angle = torch.tensor(position / 10_000 ** (2 * pair / 8))
            torch.testing.assert_close(table[position, 2 * pair], angle.sin())
            torch.testing.assert_close(table[position, 2 * pair + 1], angle.cos())


def test_both_layouts_hold_the_same_numbers() -> None:
    interleaved, halves = positions.sinusoidal(5, 6), positions.sinusoidal(5, 6, layout="half")
    torch.testing.assert_close(halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], -1))


def test_positions_may_be_given_as_indices() -> None:
    torch.testing.assert_close(positions.sinusoidal(torch.tensor([3, 1]), 4), positions.sinusoidal(4, 4)[[3, 1]])


def test_an_odd_dim_raises_an_error() -> None:
    with pytest.raises(ShapeError, match="even dim.*got 7"):
        positions.sinusoidal(3, 7)


def test_positions_beyond_a_learned_table_raise_an_error() -> None:
    table = torch.randn(4, 2)
    torch.testing.assert_close(positions.learned(table, 4), table)
    with pytest.raises(ShapeError, match=r"has positions 0 to 3, got 0 to 4"):
        positions.learned(table, 5)


def test_gradients_reach_a_learned_table() -> None:
    table = torch.randn(4, 2, requires_grad=True)
    positions.learned(table, torch.tensor([1, 1, 3])).sum().backward()
    assert table.grad is not None
    assert table.grad[:, 0].tolist() == [0, 2, 0, 1]
