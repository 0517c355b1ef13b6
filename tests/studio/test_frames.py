"""Frames hold what was put in."""

import pytest
import torch

from softlook.base.errors import DataError, ShapeError
from softlook.studio.frames import HEADER, decode_frame, encode_frame, encode_weights


@pytest.mark.parametrize("shape", [(3,), (2, 5), (2, 3, 4), (1, 2, 3, 4)])
def test_numbers_and_shapes_survive(shape: tuple[int, ...]) -> None:
    values = torch.randn(shape)
    frame = decode_frame(encode_frame(values, "mean", offset=1.5))
    assert torch.equal(frame.values, values)
    assert (frame.statistic, frame.offset) == ("mean", 1.5)
    assert torch.equal(decode_frame(encode_frame(values.long())).values, values.int())


def test_the_header_has_32_bytes() -> None:
    assert HEADER.size == 32
    assert encode_frame(torch.zeros(2, 3))[:9] == b"SLFR\x01\x00\x00\x02\x02"


def test_weights_are_exact_to_3_percent_over_six_decades() -> None:
    weights = torch.logspace(-6, 0, 1000)
    found = decode_frame(encode_weights(weights)).values
    assert ((found / weights).log().abs() < 0.028).all()


def test_only_a_weight_of_0_is_0() -> None:
    codes = encode_weights(torch.tensor([0.0, 1e-30, 1e-7, 1.0]))[HEADER.size :]
    assert list(codes) == [0, 1, 1, 255]


def test_a_larger_weight_never_has_a_smaller_code() -> None:
    codes = list(encode_weights(torch.rand(1000).sort().values)[HEADER.size :])
    assert codes == sorted(codes)


def test_damaged_and_empty_frames_are_errors() -> None:
    with pytest.raises(DataError, match="expected a frame"):
        decode_frame(b"PNG")
    with pytest.raises(ShapeError, match="none of them empty"):
        encode_frame(torch.zeros(0))
