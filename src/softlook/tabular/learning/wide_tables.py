"""Steps on tables of very many columns, in what memory and time a CPU has for them."""

from dataclasses import replace

from softlook.tabular.defaults import Recipe
from softlook.tabular.learning.settling import LEARNING, Setting, products_a_row, rows_a_step

ROOM = 4 << 30
"""Bytes for all that a step holds until its gradient is there."""
PRODUCTS = 2e11
"""Of a step, at most: some seconds, in which nobody looks at the clock."""
TOKENS, MAPS = 10, 4
"""How often a block holds the tokens of a row, and its attention maps where weights of them are dropped, as measured.
Where none are dropped, maps are never written out; and in the last block of an FT-Transformer [CLS] alone looks."""


def narrowed(recipe: Recipe, setting: Setting, *, may_drop_less: bool) -> Recipe:
    """A settled recipe whose steps are not too large for a CPU: maps grow with the square of a table's columns.

    Where they fill its memory, no attention weights are dropped, if the recipe left that to the table. Where that does
    not help, a step takes fewer rows, unless it was told how many.

    >>> from softlook.tabular.defaults import RECIPES
    >>> from softlook.tabular.learning.settling import settled
    >>> wide = Setting(rows=1_000, tokens=3_001, device="cpu")
    >>> found = narrowed(settled(RECIPES["ft"]["ours"], wide), wide, may_drop_less=True)
    >>> found.attention_dropout, found.batch_size
    (0.0, 52)
    """
    if setting.device != "cpu":
        return recipe
    size = min(rows_a_step(recipe, setting.rows), setting.rows)
    if may_drop_less and size * bytes_a_row(recipe, setting.tokens) > ROOM:
        return narrowed(replace(recipe, attention_dropout=0.0), setting, may_drop_less=False)
    each = LEARNING * recipe.members * products_a_row(recipe, setting.tokens)
    fitting = max(1, int(min(ROOM // bytes_a_row(recipe, setting.tokens), PRODUCTS // each)))
    return recipe if recipe.batch_size or size <= fitting else replace(recipe, batch_size=fitting)


def bytes_a_row(recipe: Recipe, tokens: int) -> int:
    """What a step holds of each row, in single precision."""
    blocks = recipe.depth if recipe.model == "TabTransformer" else recipe.depth - 1
    maps = MAPS * blocks * recipe.heads * tokens if recipe.attention_dropout else 0
    return 4 * recipe.members * tokens * (TOKENS * recipe.depth * recipe.dim + maps)
