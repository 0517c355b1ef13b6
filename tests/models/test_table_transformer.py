"""TableTransformer: bending tokens, and members that answer together."""

from typing import Any

import pytest
import torch
from torch.nn.functional import mse_loss
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.embed import compute_bins
from softlook.models import TableTransformer, TableTransformerConfig

SIZES = (2, 5, 3)
SHARED = (0, 1, 2)


def config(**changes: Any) -> TableTransformerConfig:
    sizes: dict[str, Any] = {"n_numeric": 4, "cardinalities": SIZES, "classes": 3, "dim": 24, "depth": 3, "heads": 4}
    return TableTransformerConfig(**{**sizes, "ensemble_size": 5, "bins": 6, **changes})


def small(**changes: Any) -> Any:
    return TableTransformer(config(**changes)).eval()


def rows(count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 4), torch.stack([torch.randint(size, (count,)) for size in SIZES], 1)


@pytest.mark.parametrize("shared", SHARED)
def test_every_member_has_an_answer_of_its_own_to_every_row(shared: int) -> None:
    said = small(shared_blocks=shared)(*rows())
    assert said.shape == (6, 5, 3)
    assert all((said[:, one] != said[:, other]).all() for one in range(5) for other in range(one))


@pytest.mark.parametrize("shared", SHARED)
def test_rows_do_not_see_one_another(shared: int) -> None:
    model, (numbers, categories) = small(shared_blocks=shared), rows()
    assert_close(model(numbers, categories)[2:4], model(numbers[2:4], categories[2:4]))


@pytest.mark.parametrize("shared", SHARED)
def test_members_that_are_alike_say_alike_and_one_changes_nothing_for_the_others(shared: int) -> None:
    model, table = small(shared_blocks=shared), rows()
    with torch.no_grad():
        for part in (model.member_scale, model.head_weight, model.head_bias):
            part.copy_(part[:1].expand_as(part))
    said = model(*table)
    assert_close(said, said[:, :1].expand_as(said))
    with torch.no_grad():
        model.member_scale[3].add_(1)
    others = [0, 1, 2, 4]
    assert_close(model(*table)[:, others], said[:, others])
    assert (model(*table)[:, 3] - said[:, 3]).abs().min() > 1e-6


def test_where_members_part_does_not_matter_as_long_as_they_see_alike() -> None:
    models, table = [small(shared_blocks=shared) for shared in SHARED], rows()
    for model in models:
        model.load_state_dict({**models[0].state_dict(), "member_scale": torch.ones_like(model.member_scale)})
    said = [model(*table) for model in models]
    for other in said[1:]:
        assert_close(other, said[0], rtol=1e-4, atol=1e-5)


def test_the_last_block_is_worked_out_for_the_members_alone() -> None:
    model, seen = small(), []
    for block in model.blocks:
        block.attn.core.register_forward_hook(lambda mix, args, out: seen.append((args[0].shape[2], args[1].shape[2])))
    model(*rows())
    assert seen == [(8, 8), (8, 8), (5, 8)]


def test_a_missing_number_is_an_answer_too() -> None:
    model, (numbers, categories) = small(), rows()
    wanted = model(numbers, categories)
    numbers[1, 2] = torch.nan
    said = model(numbers, categories)
    assert said.isfinite().all()
    assert (said[1] != wanted[1]).all()
    assert_close(said[[0, 2, 3, 4, 5]], wanted[[0, 2, 3, 4, 5]])


def test_a_table_may_have_only_numbers_or_only_categories() -> None:
    numbers, categories = rows()
    assert small(cardinalities=())(numbers).shape == (6, 5, 3)
    assert small(n_numeric=0)(categories=categories).shape == (6, 5, 3)


def test_without_edges_the_bins_are_those_of_a_bell_and_with_them_those_that_were_given() -> None:
    numbers = torch.randn(4000, 4)
    assert_close(small().numeric_embedding.embedding.edges[0, 1:-1], compute_bins(numbers, max_bins=8)[0, 2:-2], rtol=0, atol=0.15)
    edges = compute_bins(numbers**3, max_bins=6)
    assert_close(TableTransformer(config(), edges=edges).numeric_embedding.embedding.edges, edges, rtol=0, atol=0)


@pytest.mark.parametrize("tokens", ["piecewise", "periodic"])
def test_it_learns_what_no_straight_line_says(tokens: str) -> None:
    torch.manual_seed(0)
    numbers = torch.randn(512, 1)
    wanted = (2 * numbers).cos()
    sizes = config(
        n_numeric=1, cardinalities=(), classes=1, depth=1, ensemble_size=2, bins=16, num_embeddings=tokens, sigma=0.5
    )
    model = TableTransformer(sizes, edges=compute_bins(numbers, max_bins=16) if tokens == "piecewise" else None)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss = torch.tensor(torch.inf)
    for _ in range(60):
        said = model.train()(numbers)
        loss = mse_loss(said, wanted[:, None].expand_as(said))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.1 * wanted.var()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ensemble_size": 0}, "expected ensemble_size >= 1 and shared_blocks from 0 to 2, got 0 and 2"),
        ({"shared_blocks": 3}, "expected ensemble_size >= 1 and shared_blocks from 0 to 2, got 5 and 3"),
    ],
    ids=["no member", "all shared"],
)
def test_sizes_that_make_no_sense_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        small(**changes)


def test_edges_of_other_columns_are_refused_and_how_to_make_them_is_said() -> None:
    with pytest.raises(ConfigError, match=r"expected edges of shape \(4, 7\), got \(4, 3\)\. Use compute_bins\(numbers,"):
        TableTransformer(config(), edges=compute_bins(torch.randn(9, 4), max_bins=2))
