"""Rotary position embeddings, compared with Hugging Face."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from softlook import ShapeError, positions
from softlook.ops.positions.rotary import Layout, RotaryScaling

LAYOUTS: tuple[Layout, ...] = ("half", "interleaved")


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.sampled_from(LAYOUTS))
def test_a_dot_product_depends_on_the_distance_only(one: int, other: int, offset: int, layout: Layout) -> None:
    query, key = torch.randn(2, 1, 1, 1, 16)

    def score(query_position: int, key_position: int) -> torch.Tensor:
        rotated = [
            positions.rotary(x, positions.rotary_angles(torch.tensor([position]), 16), layout=layout)
            for x, position in ((query, query_position), (key, key_position))
        ]
        return (rotated[0] * rotated[1]).sum()

    torch.testing.assert_close(score(one, other), score(one + offset, other + offset), atol=2e-3, rtol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotation_preserves_norms(layout: Layout) -> None:
    x = torch.randn(2, 3, 7, 8)
    rotated = positions.rotary(x, positions.rotary_angles(7, 8), layout=layout)
    torch.testing.assert_close(rotated.norm(dim=-1), x.norm(dim=-1))


def test_the_layouts_are_one_rotation_of_permuted_elements() -> None:
    x, angles = torch.randn(1, 2, 5, 8), positions.rotary_angles(5, 8)
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    rotated = positions.rotary(x[..., order], angles, layout="interleaved")
    torch.testing.assert_close(rotated, positions.rotary(x, angles)[..., order])


def test_elements_beyond_the_pairs_are_unchanged() -> None:
    x = torch.randn(1, 1, 5, 10)
    rotated = positions.rotary(x, positions.rotary_angles(5, 4))
    assert torch.equal(rotated[..., 4:], x[..., 4:])
    torch.testing.assert_close(rotated[..., :4], positions.rotary(x[..., :4], positions.rotary_angles(5, 4)))


def test_every_sequence_may_have_its_own_positions() -> None:
    x = torch.randn(2, 1, 3, 4)
    both = positions.rotary(x, positions.rotary_angles(torch.tensor([[0, 1, 2], [5, 6, 7]]), 4))
    second = positions.rotary(x[1:], positions.rotary_angles(torch.tensor([5, 6, 7]), 4))
    torch.testing.assert_close(both[1:], second)


def test_half_precision_distinguishes_positions_beyond_256() -> None:
    x = torch.ones(1, 1, 2, 2, dtype=torch.bfloat16)
    rotated = positions.rotary(x, positions.rotary_angles(torch.tensor([1001, 1002]), 2))
    assert rotated.dtype == torch.bfloat16
    assert not torch.equal(rotated[0, 0, 0], rotated[0, 0, 1])


def test_rotary_matches_llama() -> None:
    query, key = torch.randn(2, 2, 4, 9, 16)
    angles = positions.rotary_angles(9, 16)
    cos, sin = (torch.cat([part, part], -1)[None] for part in (angles.cos, angles.sin))
    expected, _ = apply_rotary_pos_emb(query, key, cos, sin)
    torch.testing.assert_close(positions.rotary(query, angles), expected)


def _hugging_face(kind: str, **parameters: object) -> tuple[torch.Tensor, float]:
    config = LlamaConfig(
        hidden_size=128, num_attention_heads=4, max_position_embeddings=4096,
        rope_parameters={"rope_type": kind, "rope_theta": 10_000.0, **parameters},
    )  # fmt: skip
    return ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (positions.linear(4.0), _hugging_face("linear", factor=4.0)),
        (
            positions.llama3(8.0, context=1024),
            _hugging_face(
                "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=1024
            ),
        ),
        (
            positions.yarn(4.0, context=1024),
            _hugging_face("yarn", factor=4.0, original_max_position_embeddings=1024),
        ),
    ],
    ids=["linear", "llama3", "yarn"],
)
def test_scaled_frequencies_match_hugging_face(scaling: RotaryScaling, expected: tuple[torch.Tensor, float]) -> None:
    frequencies, attention_factor = expected
    indices = torch.arange(50)
    angles = positions.rotary_angles(indices, 32, scaling=scaling)
    torch.testing.assert_close(angles.cos, (indices[:, None] * frequencies).cos() * attention_factor, atol=1e-5, rtol=0)


def test_ntk_divides_the_lowest_frequency_by_the_factor() -> None:
    indices = torch.tensor([100])
    plain, scaled = (
        positions.rotary_angles(indices, 16),
        positions.rotary_angles(indices, 16, scaling=positions.ntk(4.0)),
    )
    torch.testing.assert_close(scaled.sin[0, -1].asin() * 4, plain.sin[0, -1].asin(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(scaled.cos[0, 0], plain.cos[0, 0])


def test_angles_of_another_size_raise_an_error() -> None:
    with pytest.raises(ShapeError, match=r"angles for batch 1 and 3 positions have shape \(3, pairs\)"):
        positions.rotary(torch.randn(1, 1, 3, 4), positions.rotary_angles(4, 4))
    with pytest.raises(ShapeError, match="3 pairs need a head dimension of 6, got 4"):
        positions.rotary(torch.randn(1, 1, 3, 4), positions.rotary_angles(3, 6))
    with pytest.raises(ShapeError, match="even dim, got 5"):
        positions.rotary_angles(3, 5)
