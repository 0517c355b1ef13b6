"""The model that a recipe names, in the sizes of a table."""

from typing import Any

from torch import Tensor, nn

from softlook.embed.numbers import bin_edges
from softlook.models.ft_transformer import FTTransformer, FTTransformerConfig
from softlook.models.tab_transformer import TabTransformer, TabTransformerConfig
from softlook.models.table_transformer import TableTransformer, TableTransformerConfig
from softlook.tabular.defaults import Recipe
from softlook.tabular.encoding.reading import Reading


def make_model(recipe: Recipe, reading: Reading, numbers: Tensor | None, outputs: int) -> nn.Module:
    """A new model by a settled recipe; `numbers` are those of the rows it is to learn from, by which bins are cut.

    They are None where weights are to come, which say where bins lie. It is in single precision, as rows are, also
    where other work in the same process has set torch to make all else in double.
    """
    return _made(recipe, reading, numbers, outputs).float()


def _made(recipe: Recipe, reading: Reading, numbers: Tensor | None, outputs: int) -> nn.Module:
    sizes: dict[str, Any] = {"numbers": reading.numbers, "categories": reading.sizes, "classes": outputs}
    sizes |= {name: getattr(recipe, name) for name in ("dim", "heads", "dropout", "beside")}
    if recipe.model == "TabTransformer":
        return _tab_transformer(recipe, sizes)
    sizes |= {"depth": recipe.depth, "hidden": recipe.hidden}
    sizes |= {name: getattr(recipe, name) or 0.0 for name in ("attention_dropout", "hidden_dropout")}
    if recipe.model == "FTTransformer":
        return FTTransformer(FTTransformerConfig(**sizes))
    names = ("members", "shared", "number_tokens", "bins", "sigma")
    config = TableTransformerConfig(**sizes, **{name: getattr(recipe, name) for name in names})
    if numbers is None or recipe.number_tokens != "piecewise":
        return TableTransformer(config)
    return TableTransformer(config, edges=bin_edges(numbers, most=recipe.bins))


def _tab_transformer(recipe: Recipe, sizes: dict[str, Any]) -> TabTransformer:
    """Without categories nobody is left to look, and the rest is a network of plain layers."""
    width = len(sizes["categories"]) * recipe.dim + sizes["numbers"]
    depth = recipe.depth if sizes["categories"] else 0
    config = TabTransformerConfig(**sizes, depth=depth, factors=_factors(recipe, width), normed=recipe.normed)
    return TabTransformer(config)


def _factors(recipe: Recipe, width: int) -> tuple[int, int]:
    """The paper's 4 and 2 times the width of what goes in; more where that is narrow."""
    first = max(4, -(-recipe.narrowest // width))
    return first, first // 2
