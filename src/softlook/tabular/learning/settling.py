"""What a recipe leaves open, settled for a table: sizes, dropout, rows a step and how often through all of them."""

from dataclasses import dataclass, replace

import torch

from softlook.tabular.defaults import Recipe
from softlook.tabular.learning.timing import quickest

EPOCHS, LEAST_STEPS, MOST_STEPS = 40, 300, 8_000
"""Times through the rows where a falling rate is not told how many; and bounds on the steps that they come to."""
SMALL_TABLE, LARGE_TABLE = 10_000, 100_000
"""Rows up to which a model is narrow, and from which on it is as large as the device allows."""
MANY_ROWS = 50_000
"""From so many rows on a step takes more of them."""
BUDGET_A_ROW, BUDGET = 7.5e8, 1e13
"""Products of a CPU that a row is worth, and all of them."""
LEARNING = 3
"""Times the products of an answer that learning from it takes: there, and back on two ways."""
USEFUL = 0.4
"""Of the products that a CPU could do, the share that comes to pass in learning: other work lies between them."""


@dataclass(frozen=True)
class Sizes:
    """What a recipe may leave open."""

    dim: int
    depth: int
    members: int
    bins: int
    attention_dropout: float
    hidden_dropout: float


@dataclass(frozen=True)
class Setting:
    """What sizes depend on."""

    rows: int
    """Rows to learn from."""
    tokens: int
    device: str
    amounts: bool = False
    """Whether numbers are wanted, and not classes."""
    seconds: float | None = None
    """Time that there is, where it is limited."""

    @property
    def is_large(self) -> bool:
        return self.rows >= LARGE_TABLE

    @property
    def budget(self) -> float:
        """Products of a CPU that the table is worth, or that there is time for."""
        worth = min(self.rows * BUDGET_A_ROW, BUDGET)
        return worth if self.seconds is None else min(worth, self.seconds * USEFUL * products_a_second())

    def sizes(self) -> Sizes:
        """As measured, see docs/log.md: a table of many rows needs no dropout, and numbers suffer from much of it."""
        attention, hidden = (0.0, 0.0) if self.is_large else (0.1, 0.0) if self.amounts else (0.2, 0.1)
        if self.is_large and self.device != "cpu":
            return Sizes(256, 3, 4, 256, attention, hidden)
        dim, bins = (64, 96) if self.rows < SMALL_TABLE else (96, 256)
        return Sizes(dim, 2, 8, bins, attention, hidden)


def settled(recipe: Recipe, setting: Setting) -> Recipe:
    """The recipe with nothing left open. On a CPU there are as many members as are worth their time.

    Members are powers of two there: as many as a budget of products allows, which grows with the rows up to some
    minutes of two cores. It counts nothing that differs from one CPU to another, unless time is limited: a few members
    that have learned all they can are better than many that were broken off.

    >>> from softlook.tabular.defaults import RECIPES
    >>> ours = RECIPES["ft"]["ours"]
    >>> [settled(ours, Setting(rows=13_209, tokens=9, device=device)).members for device in ("cuda", "cpu")]
    [8, 4]
    """
    open_ = setting.sizes()
    if setting.device == "cpu" and setting.rows < SMALL_TABLE:  # which is quick anyway, and may as well be exact
        recipe = replace(recipe, half=False)
    recipe = with_sizes(recipe, replace(open_, members=0) if setting.device == "cpu" else open_)
    if recipe.members:
        return recipe
    steps = -(-setting.rows // rows_a_step(recipe, setting.rows))
    epochs = recipe.epochs or enough_epochs(recipe, steps) or EPOCHS
    fitting = setting.budget // (LEARNING * setting.rows * epochs * products_a_row(recipe, setting.tokens))
    return replace(recipe, members=min(open_.members, 1 << max(0, int(fitting).bit_length() - 1)))


def products_a_row(recipe: Recipe, tokens: int) -> int:
    """What one member computes for a row, about: layers for each token, and in all blocks but the last each looks at
    all."""
    blocks, looking = (8 * recipe.depth - 6) * recipe.dim**2, 2 * (recipe.depth - 1) * tokens * recipe.dim
    return tokens * (blocks + looking)


def with_sizes(recipe: Recipe, sizes: Sizes | Recipe) -> Recipe:
    """The recipe, with these sizes where it has none."""
    return replace(
        recipe,
        dim=recipe.dim or sizes.dim,
        depth=recipe.depth or sizes.depth,
        members=recipe.members or sizes.members,
        bins=recipe.bins or sizes.bins,
        attention_dropout=_or(recipe.attention_dropout, sizes.attention_dropout),
        hidden_dropout=_or(recipe.hidden_dropout, sizes.hidden_dropout),
    )


def rows_a_step(recipe: Recipe, rows: int) -> int:
    """How many rows a step takes: 256 as in the paper, and 1,024 of a large table."""
    return recipe.batch_size or (256 if rows < MANY_ROWS else 1024)


def enough_epochs(recipe: Recipe, steps: int) -> int | None:
    """Epochs of so many steps each until a falling rate is at its end: more where they are short, fewer where long.

    >>> from softlook.tabular.defaults import RECIPES
    >>> [enough_epochs(RECIPES["ft"]["ours"], steps) for steps in (1, 50, 5_000)]
    [300, 40, 4]
    """
    return None if recipe.schedule == "constant" else max(min(EPOCHS, MOST_STEPS // steps), -(-LEAST_STEPS // steps), 4)


def products_a_second() -> float:
    """What the CPU does in matrices of a table's size, by a quick try."""
    rows, width = 4096, 128
    left, right = torch.ones(rows, width), torch.ones(width, width)
    return rows * width**2 / quickest(lambda: left @ right, tries=5)


def _or(told: float | None, else_: float | None) -> float | None:
    return else_ if told is None else told
