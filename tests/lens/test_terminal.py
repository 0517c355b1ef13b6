"""Heat maps in a terminal show every weight and stay within its width."""

import pytest
import torch
from rich.cells import cell_len
from torch import Tensor

from softlook.lens.terminal import RAMP, terminal_maps


def random_maps(count: int, tokens: int) -> dict[str, Tensor]:
    return {f"head {number}": torch.rand(tokens, tokens) for number in range(count)}


def labels(count: int) -> list[str]:
    return [f"token{number}" for number in range(count)]


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize(
    ("heads", "tokens", "width"), [(1, 3, 80), (4, 10, 80), (12, 20, 100), (2, 100, 60), (1, 5, 1)]
)
def test_no_line_is_longer_than_the_terminal_is_wide(heads: int, tokens: int, width: int, color: bool) -> None:
    text = terminal_maps(
        random_maps(heads, tokens), queries=labels(tokens), keys=labels(tokens), width=width, color=color
    )
    cells = [line for line in text.plain.splitlines() if "weight:" not in line]
    shortest = cell_len("token99 ") + cell_len("head 99")  # one block
    assert max(map(cell_len, cells)) <= max(width, shortest)


def test_every_cell_is_drawn_however_narrow_the_terminal() -> None:
    maps = random_maps(3, 17)
    for width in (30, 60, 300):
        text = terminal_maps(maps, queries=["q"] * 17, keys=["k"] * 17, width=width, color=False)
        rows = [line[2:] for line in text.plain.splitlines() if line.startswith("q ")]
        drawn = sum(len(row.replace("  ", "")) for row in rows) // 2
        assert drawn == 3 * 17 * 17


def test_larger_weights_are_denser_characters_and_zero_is_blank() -> None:
    weights = torch.tensor([[0.0, *(number + 0.5 for number in range(8)), 9.0]])
    text = terminal_maps({"": weights}, queries=["q"], keys=list("abcdefghij"), color=False).plain
    row = next(line for line in text.splitlines() if line.startswith("q"))
    assert row == "q " + "".join(2 * character for character in RAMP)


def test_a_small_weight_differs_from_a_masked_one() -> None:
    text = terminal_maps({"": torch.tensor([[1.0, 1e-6, 0.0, 1.0]])}, queries=["q"], keys=list("abcd"), color=False)
    assert "q @@..  @@" in text.plain


def test_colors_follow_the_weights() -> None:
    text = terminal_maps({"": torch.tensor([[1.0, 0.5, 0.5]])}, queries=["q"], keys=list("abc"), color=True)
    styles = [str(span.style) for span in text.spans if "on #" in str(span.style)][:3]
    assert styles[0] != styles[1] == styles[2]


def test_without_color_there_are_no_styles() -> None:
    assert not terminal_maps(random_maps(2, 3), queries=labels(3), keys=labels(3), color=False).spans


def test_wide_and_control_characters_keep_the_columns_aligned() -> None:
    keys = ["日本", "\x1b[31m", "é", "a\nb"]
    text = terminal_maps({"head": torch.ones(4, 4)}, queries=keys, keys=keys, color=False).plain
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.endswith("@" * 8)]
    assert len(rows) == 4 and len({cell_len(row) for row in rows}) == 1


def test_nan_and_all_zero_maps_are_drawn() -> None:
    assert "??" in terminal_maps({"": torch.tensor([[torch.nan, 0.5]])}, queries=["q"], keys=["a", "b"]).plain
    assert "0.000" in terminal_maps({"": torch.zeros(1, 2)}, queries=["q"], keys=["a", "b"]).plain
