"""Positions as rotations."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from softlook import ShapeError, positions
from softlook.ops.positions.frequencies import Layout, Scaling

LAYOUTS: tuple[Layout, ...] = ("half", "interleaved")


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.sampled_from(LAYOUTS))
def test_a_dot_product_depends_on_the_distance_alone(one: int, other: int, moved: int, layout: Layout) -> None:
    query, key = torch.randn(2, 1, 1, 1, 16)

    def score(query_place: int, key_place: int) -> torch.Tensor:
        turned = [
            positions.rotary(x, positions.phases(torch.tensor([place]), 16), layout=layout)
            for x, place in ((query, query_place), (key, key_place))
        ]
        return (turned[0] * turned[1]).sum()

    torch.testing.assert_close(score(one, other), score(one + moved, other + moved), atol=2e-3, rtol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lengths_stay(layout: Layout) -> None:
    x = torch.randn(2, 3, 7, 8)
    turned = positions.rotary(x, positions.phases(7, 8), layout=layout)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


def test_the_two_layouts_are_one_rotation_of_reordered_numbers() -> None:
    x, phases = torch.randn(1, 2, 5, 8), positions.phases(5, 8)
    neighbours = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    turned = positions.rotary(x[..., neighbours], phases, layout="interleaved")
    torch.testing.assert_close(turned, positions.rotary(x, phases)[..., neighbours])


def test_numbers_beyond_the_phases_stay_as_they_are() -> None:
    x = torch.randn(1, 1, 5, 10)
    turned = positions.rotary(x, positions.phases(5, 4))
    assert torch.equal(turned[..., 4:], x[..., 4:])
    torch.testing.assert_close(turned[..., :4], positions.rotary(x[..., :4], positions.phases(5, 4)))


def test_each_sequence_may_have_positions_of_its_own() -> None:
    x = torch.randn(2, 1, 3, 4)
    both = positions.rotary(x, positions.phases(torch.tensor([[0, 1, 2], [5, 6, 7]]), 4))
    second = positions.rotary(x[1:], positions.phases(torch.tensor([5, 6, 7]), 4))
    torch.testing.assert_close(both[1:], second)


def test_half_precision_positions_beyond_256_are_told_apart() -> None:
    x = torch.ones(1, 1, 2, 2, dtype=torch.bfloat16)
    turned = positions.rotary(x, positions.phases(torch.tensor([1001, 1002]), 2))
    assert turned.dtype == torch.bfloat16
    assert not torch.equal(turned[0, 0, 0], turned[0, 0, 1])


def test_turning_is_that_of_llama() -> None:
    query, key = torch.randn(2, 2, 4, 9, 16)
    phases = positions.phases(9, 16)
    cos, sin = (torch.cat([part, part], -1)[None] for part in (phases.cos, phases.sin))
    theirs, _ = apply_rotary_pos_emb(query, key, cos, sin)
    torch.testing.assert_close(positions.rotary(query, phases), theirs)


def _theirs(kind: str, **parameters: object) -> tuple[torch.Tensor, float]:
    config = LlamaConfig(
        hidden_size=128, num_attention_heads=4, max_position_embeddings=4096,
        rope_parameters={"rope_type": kind, "rope_theta": 10_000.0, **parameters},
    )  # fmt: skip
    return ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))


@pytest.mark.parametrize(
    ("scaling", "theirs"),
    [
        (positions.linear(4.0), _theirs("linear", factor=4.0)),
        (
            positions.llama3(8.0, context=1024),
            _theirs(
                "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=1024
            ),
        ),
        (
            positions.yarn(4.0, context=1024),
            _theirs("yarn", factor=4.0, original_max_position_embeddings=1024),
        ),
    ],
    ids=["linear", "llama3", "yarn"],
)
def test_frequencies_are_stretched_as_elsewhere(scaling: Scaling, theirs: tuple[torch.Tensor, float]) -> None:
    frequencies, magnitude = theirs
    places = torch.arange(50)
    phases = positions.phases(places, 32, scaling=scaling)
    torch.testing.assert_close(phases.cos, (places[:, None] * frequencies).cos() * magnitude, atol=1e-5, rtol=0)


def test_a_larger_base_stretches_the_slowest_pair_by_the_factor() -> None:
    places = torch.tensor([100])
    plain, stretched = positions.phases(places, 16), positions.phases(places, 16, scaling=positions.ntk(4.0))
    torch.testing.assert_close(stretched.sin[0, -1].asin() * 4, plain.sin[0, -1].asin(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(stretched.cos[0, 0], plain.cos[0, 0])


def test_phases_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"phases for 1 x 3 positions are \(3, pairs\)"):
        positions.rotary(torch.randn(1, 1, 3, 4), positions.phases(4, 4))
    with pytest.raises(ShapeError, match="3 pairs need a width of 6; these heads are 4 wide"):
        positions.rotary(torch.randn(1, 1, 3, 4), positions.phases(3, 6))
    with pytest.raises(ShapeError, match="even width; 5 came"):
        positions.phases(3, 5)
