"""Root mean square normalization."""

import pytest
import torch

from softlook import ShapeError
from softlook.blocks.norms import rms_norm
from tests.ops_cases import DEVICE


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_mean_square_over_the_last_axes_is_one(axes: int) -> None:
    normed = rms_norm(torch.randn(2, 3, 4, device=DEVICE), axes=axes, eps=0.0)
    mean_square = normed.square().mean(tuple(range(-axes, 0)))
    torch.testing.assert_close(mean_square, torch.ones_like(mean_square))


def test_rms_norm_matches_torch() -> None:
    x, weight = torch.randn(2, 5, 8, device=DEVICE), torch.randn(8, device=DEVICE)
    torch.testing.assert_close(rms_norm(x, weight, eps=1e-5), torch.nn.functional.rms_norm(x, (8,), weight, 1e-5))


def test_half_precision_does_not_overflow() -> None:
    x = torch.full((4,), 300.0, dtype=torch.float16, device=DEVICE)  # its square overflows float16
    torch.testing.assert_close(rms_norm(x), torch.ones_like(x))


def test_too_many_dimensions_raise_an_error() -> None:
    with pytest.raises(ShapeError, match="rms_norm over 3 dimensions expects at least as many"):
        rms_norm(torch.zeros(2, 2), axes=3)
