"""Embeddings of table columns."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from softlook import DtypeError, ShapeError
from softlook.base.errors import ConfigError
from softlook.embed import CategoricalEmbedding, ColumnEmbedding, LinearFeatureEmbedding
from softlook.embed.features import check_table
from softlook.models.optimize import project_categorical, project_numeric

FEWER_EXAMPLES = settings(max_examples=40)
cardinality_lists = st.lists(st.integers(1, 4), max_size=4)


def test_a_number_scales_the_vector_of_its_column_only() -> None:
    tokens, numbers = LinearFeatureEmbedding(3, 8), torch.randn(5, 3)
    assert_close(tokens(torch.zeros(5, 3)), tokens.bias.expand(5, 3, 8))
    assert_close(tokens(numbers)[:, 1], numbers[:, 1:2] * tokens.weight[1] + tokens.bias[1])
    changed = numbers.clone()
    changed[:, 1] += 1
    assert_close(tokens(changed)[:, [0, 2]], tokens(numbers)[:, [0, 2]], rtol=0, atol=0)


@FEWER_EXAMPLES
@given(cardinality_lists)
def test_every_category_of_every_column_has_its_own_row(sizes: list[int]) -> None:
    tokens = CategoricalEmbedding(sizes, 8, bias=False)
    found = [
        tokens.weight.eq(tokens(torch.tensor([[0] * j + [value] + [0] * (len(sizes) - j - 1)]))[0, j]).all(1)
        for j, size in enumerate(sizes)
        for value in range(size)
    ]
    rows = [int(row.nonzero()) for row in found]
    assert rows == list(range(sum(sizes)))


def test_the_bias_of_a_column_does_not_depend_on_its_category() -> None:
    tokens = CategoricalEmbedding((2, 3), 8)
    assert tokens.bias is not None
    ids = torch.tensor([[0, 2], [1, 0]])
    assert_close(tokens(ids) - tokens.weight[ids + torch.tensor([0, 2])], tokens.bias.expand(2, 2, 8))


def test_categories_of_a_column_share_a_part_of_their_embedding() -> None:
    tokens = ColumnEmbedding((3, 3), 16)
    one, other = tokens(torch.tensor([[0, 0], [1, 2]]))
    assert_close(one[:, 14:], other[:, 14:], rtol=0, atol=0)
    assert (one[:, :14] != other[:, :14]).all()
    assert (one[0, 14:] != one[1, 14:]).all()


@pytest.mark.parametrize(("shared", "width"), [(None, 2), (0, 0), (5, 5)])
def test_the_width_of_the_shared_part_is_configurable(shared: int | None, width: int) -> None:
    tokens = ColumnEmbedding((3, 3), 16, shared=shared)
    assert tokens.columns.shape == (2, width)
    assert tokens(torch.zeros(4, 2, dtype=torch.long)).shape == (4, 2, 16)


def test_projected_tables_equal_projected_tokens() -> None:
    layer, numbers, categories = torch.nn.Linear(8, 5), torch.randn(6, 3), torch.tensor([[1, 4]] * 6)
    numeric = LinearFeatureEmbedding(3, 8)
    assert_close(project_numeric(numeric, numbers, layer.weight, layer.bias), layer(numeric(numbers)))
    for categorical in (CategoricalEmbedding((2, 5), 8), CategoricalEmbedding((2, 5), 8, bias=False)):
        projected = project_categorical(categorical, categories, layer.weight, layer.bias)
        assert_close(projected, layer(categorical(categories)))


def test_the_error_for_missing_numbers_names_the_column() -> None:
    numbers = torch.randn(5, 3)
    numbers[[1, 4], 2] = torch.nan
    with pytest.raises(
        DtypeError, match=r"numeric column 2 is missing \(NaN\) in 2 of 5 rows\. Impute it first, for example"
    ):
        LinearFeatureEmbedding(3, 8)(numbers)


@pytest.mark.parametrize(("value", "value_range"), [(3, "0 to 3"), (-1, "-1 to 0")])
def test_the_error_for_a_category_out_of_range_names_the_column(value: int, value_range: str) -> None:
    with pytest.raises(ShapeError, match=f"categories of column 1 must be from 0 to 2, got {value_range}"):
        CategoricalEmbedding((5, 3), 8)(torch.tensor([[4, 0], [4, value]]))


def test_a_wrong_number_of_columns_raises_an_error() -> None:
    with pytest.raises(ShapeError, match="expected 3 numeric columns, got 1"):
        LinearFeatureEmbedding(3, 8)(torch.randn(5, 1))
    with pytest.raises(ShapeError, match="expected 2 categorical columns, got 1"):
        CategoricalEmbedding((2, 3), 8)(torch.zeros(5, 1, dtype=torch.long))


def test_invalid_sizes_raise_an_error() -> None:
    with pytest.raises(ConfigError, match=r"cardinalities must be at least 1, got \(2, 0\)"):
        CategoricalEmbedding((2, 0), 8)
    with pytest.raises(ConfigError, match="the shared part of a column must be from 0 to 7 wide, got 8"):
        ColumnEmbedding((2,), 8, shared=8)


def test_a_table_requires_numbers_or_categories_with_equal_numbers_of_rows() -> None:
    numbers, categories = torch.randn(4, 2), torch.zeros(4, 3, dtype=torch.long)
    assert [part.shape for part in check_table(None, categories, numbers)] == [(4, 0), (4, 3)]
    assert [part.shape for part in check_table(numbers, None, numbers)] == [(4, 2), (4, 0)]
    with pytest.raises(
        ShapeError, match="expected numbers, categories or both, with the same number of rows; got neither"
    ):
        check_table(None, None, numbers)
    with pytest.raises(
        ShapeError, match="expected numbers, categories or both, with the same number of rows; got 3 and 4"
    ):
        check_table(numbers[:3], categories, numbers)


def test_numbers_of_a_different_dtype_than_the_model_raise_an_error() -> None:
    with pytest.raises(DtypeError, match=r"the numbers are torch\.float64, the model is torch\.float32\. Use"):
        check_table(torch.randn(2, 2).double(), None, torch.zeros(1))
