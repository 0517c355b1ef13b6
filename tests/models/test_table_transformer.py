"""TableTransformer: nonlinear feature embeddings and ensemble members."""

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
def test_every_ensemble_member_has_its_own_output_for_every_row(shared: int) -> None:
    outputs = small(shared_blocks=shared)(*rows())
    assert outputs.shape == (6, 5, 3)
    assert all((outputs[:, one] != outputs[:, other]).all() for one in range(5) for other in range(one))


@pytest.mark.parametrize("shared", SHARED)
def test_rows_are_independent(shared: int) -> None:
    model, (numbers, categories) = small(shared_blocks=shared), rows()
    assert_close(model(numbers, categories)[2:4], model(numbers[2:4], categories[2:4]))


@pytest.mark.parametrize("shared", SHARED)
def test_equal_members_have_equal_outputs_and_members_are_independent(shared: int) -> None:
    model, table = small(shared_blocks=shared), rows()
    with torch.no_grad():
        for part in (model.member_scale, model.head_weight, model.head_bias):
            part.copy_(part[:1].expand_as(part))
    outputs = model(*table)
    assert_close(outputs, outputs[:, :1].expand_as(outputs))
    with torch.no_grad():
        model.member_scale[3].add_(1)
    others = [0, 1, 2, 4]
    assert_close(model(*table)[:, others], outputs[:, others])
    assert (model(*table)[:, 3] - outputs[:, 3]).abs().min() > 1e-6


def test_the_number_of_shared_blocks_does_not_matter_for_equal_member_scales() -> None:
    models, table = [small(shared_blocks=shared) for shared in SHARED], rows()
    for model in models:
        model.load_state_dict({**models[0].state_dict(), "member_scale": torch.ones_like(model.member_scale)})
    outputs = [model(*table) for model in models]
    for other in outputs[1:]:
        assert_close(other, outputs[0], rtol=1e-4, atol=1e-5)


def test_the_last_block_computes_the_member_tokens_only() -> None:
    model, seen = small(), []
    for block in model.blocks:
        block.attn.core.register_forward_hook(lambda core, args, out: seen.append((args[0].shape[2], args[1].shape[2])))
    model(*rows())
    assert seen == [(8, 8), (8, 8), (5, 8)]


def test_a_missing_number_changes_the_output_of_its_row_only() -> None:
    model, (numbers, categories) = small(), rows()
    expected = model(numbers, categories)
    numbers[1, 2] = torch.nan
    outputs = model(numbers, categories)
    assert outputs.isfinite().all()
    assert (outputs[1] != expected[1]).all()
    assert_close(outputs[[0, 2, 3, 4, 5]], expected[[0, 2, 3, 4, 5]])


def test_a_table_may_have_only_numbers_or_only_categories() -> None:
    numbers, categories = rows()
    assert small(cardinalities=())(numbers).shape == (6, 5, 3)
    assert small(n_numeric=0)(categories=categories).shape == (6, 5, 3)


def test_default_bins_are_quantiles_of_the_normal_distribution_and_given_edges_are_used() -> None:
    numbers = torch.randn(4000, 4)
    assert_close(
        small().numeric_embedding.embedding.edges[0, 1:-1],
        compute_bins(numbers, max_bins=8)[0, 2:-2],
        rtol=0,
        atol=0.15,
    )
    edges = compute_bins(numbers**3, max_bins=6)
    assert_close(TableTransformer(config(), edges=edges).numeric_embedding.embedding.edges, edges, rtol=0, atol=0)


@pytest.mark.parametrize("tokens", ["piecewise", "periodic"])
def test_it_learns_a_nonlinear_function(tokens: str) -> None:
    torch.manual_seed(0)
    numbers = torch.randn(512, 1)
    expected = (2 * numbers).cos()
    sizes = config(
        n_numeric=1, cardinalities=(), classes=1, depth=1, ensemble_size=2, bins=16, num_embeddings=tokens, sigma=0.5
    )
    model = TableTransformer(sizes, edges=compute_bins(numbers, max_bins=16) if tokens == "piecewise" else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss = torch.tensor(torch.inf)
    for _ in range(60):
        outputs = model.train()(numbers)
        loss = mse_loss(outputs, expected[:, None].expand_as(outputs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1 * expected.var()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ensemble_size": 0}, "expected ensemble_size >= 1 and shared_blocks from 0 to 2, got 0 and 2"),
        ({"shared_blocks": 3}, "expected ensemble_size >= 1 and shared_blocks from 0 to 2, got 5 and 3"),
    ],
    ids=["no member", "all shared"],
)
def test_invalid_sizes_raise_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small(**changes)


def test_edges_of_another_shape_raise_an_error_that_names_compute_bins() -> None:
    with pytest.raises(
        ConfigError, match=r"expected edges of shape \(4, 7\), got \(4, 3\)\. Use compute_bins\(numbers,"
    ):
        TableTransformer(config(), edges=compute_bins(torch.randn(9, 4), max_bins=2))
