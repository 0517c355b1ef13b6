"""The model that a recipe names, in the sizes of a table."""

from torch import Tensor, nn

from softlook.embed.numbers import bin_edges
from softlook.models.ft_transformer import FTTransformer, FTTransformerConfig
from softlook.models.tab_transformer import TabTransformer, TabTransformerConfig
from softlook.models.table_transformer import TableTransformer, TableTransformerConfig
from softlook.tabular.defaults import Recipe
from softlook.tabular.reading import Reading


def make_model(recipe: Recipe, reading: Reading, numbers: Tensor | None, outputs: int) -> nn.Module:
    """A new model by a settled recipe; `numbers` are those of the rows it is to learn from, by which bins are cut.

    They are None where weights are to come, which say where bins lie.
    """
    if recipe.model == "TableTransformer":
        return _table_transformer(recipe, reading, numbers, outputs)
    if recipe.model == "FTTransformer":
        return _ft_transformer(recipe, reading, outputs)
    return _tab_transformer(recipe, reading, outputs)


def _table_transformer(recipe: Recipe, reading: Reading, numbers: Tensor | None, outputs: int) -> nn.Module:
    config = TableTransformerConfig(
        numbers=reading.numbers,
        categories=reading.sizes,
        classes=outputs,
        members=recipe.members,
        number_tokens=recipe.number_tokens,
        bins=recipe.bins,
        sigma=recipe.sigma,
        shared=recipe.shared,
        dim=recipe.dim,
        depth=recipe.depth,
        heads=recipe.heads,
        hidden=recipe.hidden,
        attention_dropout=recipe.attention_dropout or 0.0,
        hidden_dropout=recipe.hidden_dropout or 0.0,
        dropout=recipe.dropout,
        beside=recipe.beside,
    )
    if numbers is None or recipe.number_tokens != "piecewise":
        return TableTransformer(config)
    return TableTransformer(config, edges=bin_edges(numbers, most=recipe.bins))


def _ft_transformer(recipe: Recipe, reading: Reading, outputs: int) -> nn.Module:
    config = FTTransformerConfig(
        numbers=reading.numbers,
        categories=reading.sizes,
        classes=outputs,
        dim=recipe.dim,
        depth=recipe.depth,
        heads=recipe.heads,
        hidden=recipe.hidden,
        attention_dropout=recipe.attention_dropout or 0.0,
        hidden_dropout=recipe.hidden_dropout or 0.0,
        dropout=recipe.dropout,
        beside=recipe.beside,
    )
    return FTTransformer(config)


def _tab_transformer(recipe: Recipe, reading: Reading, outputs: int) -> nn.Module:
    config = TabTransformerConfig(
        numbers=reading.numbers,
        categories=reading.sizes,
        classes=outputs,
        dim=recipe.dim,
        depth=recipe.depth if reading.sizes else 0,  # without categories nobody is left to look, and the rest is an MLP
        heads=recipe.heads,
        factors=_factors(recipe, len(reading.sizes) * recipe.dim + reading.numbers),
        dropout=recipe.dropout,
        beside=recipe.beside,
        normed=recipe.normed,
    )
    return TabTransformer(config)


def _factors(recipe: Recipe, width: int) -> tuple[int, int]:
    """The paper's 4 and 2 times the width of what goes in; more where that is narrow."""
    first = max(4, -(-recipe.narrowest // width))
    return first, first // 2
