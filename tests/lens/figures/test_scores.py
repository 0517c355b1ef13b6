"""Figures of scores and curves keep their numbers, and leave out what has no value."""

import pytest
import torch

from softlook.lens.figures.scores import curves_figure, head_scores_figure


def words(figure: object) -> list[str]:
    return [text.words for text in figure.texts]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_grid_without_any_value_is_left_out() -> None:
    grids = {"known": torch.tensor([[1.0, torch.nan]]), "unknown": torch.full((1, 2), torch.nan)}
    figure = head_scores_figure(grids)
    assert "known" in words(figure) and "unknown" not in words(figure)
    assert "known: layer 0, head 0" in figure.description
    with pytest.raises(ValueError, match="at least one grid with a number"):
        head_scores_figure({"unknown": grids["unknown"]})


def test_a_shared_scale_is_that_of_the_largest_score() -> None:
    grids = {"small": torch.tensor([[0.5]]), "large": torch.tensor([[-2.0]])}
    assert {"0.5", "2"} <= set(words(head_scores_figure(grids)))
    assert "0.5" not in words(head_scores_figure(grids, shared_scale=True))


def test_curves_end_with_their_names_and_a_description_of_their_ends() -> None:
    curves = {"training": [(0, 2.0), (10, 0.25)], "validation": [(0, 2.1), (10, 0.5)]}
    figure = curves_figure(curves, y_label="loss")
    assert {"training", "validation", "loss", "step"} <= set(words(figure))
    assert "training 0.25, validation 0.5" in figure.description and figure.numbers == curves


def test_more_curves_than_colors_differ_by_dashes() -> None:
    curves = {f"run {n}": [(0, 1.0 + n), (1, 2.0 + n)] for n in range(8)}
    assert curves_figure(curves).svg().count('stroke-dasharray="6 3"') == 2
