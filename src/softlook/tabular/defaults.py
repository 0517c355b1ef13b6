"""Every default of the estimators in one place: a recipe says how a model is built and how it learns."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal, TypeGuard

from softlook.base.errors import ConfigError

Family = Literal["ft", "tab"]
"""FT-Transformer, where every column is a token, or TabTransformer, where every category is one."""
ScalingName = Literal["quantile", "standard", "none"]
ModelName = Literal["TableTransformer", "FTTransformer", "TabTransformer"]
NumberTokensName = Literal["piecewise", "periodic", "linear"]
Watched = Literal["loss", "score"]
WHOLE = (
    "dim",
    "depth",
    "heads",
    "members",
    "bins",
    "patience",
    "batch_size",
    "epochs",
    "hidden",
    "look_every",
    "blind",
)
SHARES = ("dropout", "attention_dropout", "hidden_dropout")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model for a table is built and trained."""

    model: ModelName = "FTTransformer"
    """Which of softlook.models it is."""
    scaling: ScalingName = "quantile"
    """What numbers go through first."""
    dim: int = 192
    depth: int = 3
    heads: int = 8
    hidden: int | None = None
    """Width inside the feed-forward layers; the model's own rule where None."""
    members: int = 1
    """Members of an ensemble that share most of their weights; 1: a model alone."""
    number_tokens: NumberTokensName = "linear"
    """How a number becomes a token."""
    bins: int = 48
    """Most pieces that piecewise number tokens cut a column into; of periodic ones, how many waves."""
    sigma: float = 0.1
    """Spread of the frequencies of periodic number tokens."""
    shared: int | None = None
    """Blocks that all members go through together; all but the last where None."""
    normed: bool = True
    """TabTransformer's norm over the numbers of a row, which forgets how large they are together."""
    narrowest: int = 1
    """Least width of the first layer of TabTransformer's last network, which else is as narrow as a table is."""
    dropout: float = 0.0
    attention_dropout: float = 0.2
    hidden_dropout: float = 0.1
    lr: float = 1e-4
    weight_decay: float = 1e-5
    batch_size: int | None = None
    """Rows a step; where None, by how many rows there are: see `rows_a_step`."""
    epochs: int | None = None
    """Most times through the rows; where None, patience decides."""
    patience: int = 16
    """Looks at the held-out rows without a better one until it is enough."""
    look_every: int = 1
    """Fewest steps between two such looks: a look comes after every epoch that has reached it."""
    watch: Watched = "score"
    """What is better: a lower loss of the held-out rows, or a higher score (accuracy; for numbers it is the loss)."""
    gain: float = 0.0
    """How much better a look has to be for patience to start anew: the last hair's breadths are not worth hours."""
    clip: float | None = None
    """Longest gradient that is taken as it is."""
    blind: int = 300
    """Steps where nothing is held out and no epochs are told."""


FT_PAPER = Recipe()
"""Gorishniy et al. 2021: default model, default training."""
TAB_PAPER = Recipe(
    model="TabTransformer",
    scaling="standard",
    dim=32,
    depth=6,
    dropout=0.1,
    attention_dropout=0.1,
    hidden_dropout=0.0,
    lr=1e-4,
    patience=15,
)
"""Huang et al. 2020: width, depth, heads and patience; what the paper searches for is set to the middle."""
RECIPES: Mapping[Family, Mapping[str, Recipe]] = MappingProxyType(
    {
        "ft": {
            "ours": Recipe(
                model="TableTransformer",
                dim=64,
                depth=2,
                members=8,
                number_tokens="piecewise",
                attention_dropout=0.1,
                lr=1e-3,
                weight_decay=3e-4,
                look_every=16,
                watch="loss",
                gain=1e-4,
                clip=1.0,
            ),
            "paper": FT_PAPER,
        },
        "tab": {
            "ours": replace(
                TAB_PAPER,
                scaling="quantile",
                normed=False,
                narrowest=64,
                depth=3,
                lr=1e-3,
                weight_decay=1e-4,
                look_every=16,
                watch="loss",
                gain=1e-4,
                clip=1.0,
            ),
            "paper": TAB_PAPER,
        },
    }
)
MODELS: Mapping[Family, tuple[ModelName, ...]] = {
    "ft": ("TableTransformer", "FTTransformer"),
    "tab": ("TabTransformer",),
}
FEW_ROWS = 50
"""With fewer rows than this none are held out: a handful would say nothing, and be missed."""
MANY_ROWS = 50_000
"""From so many rows on a step takes more of them."""


def chosen(family: Family, name: str | Recipe, told: Mapping[str, Any]) -> Recipe:
    """A recipe, by name or as it is, with what the user told in place of its own; None stands for the recipe's.

    >>> chosen("ft", "paper", {"dim": 64, "depth": None}).dim
    64
    """
    recipes = RECIPES[family]
    if not isinstance(name, Recipe) and name not in recipes:
        raise ConfigError(f"recipe is one of {', '.join(recipes)}, or a Recipe; {name!r} came")
    recipe = name if isinstance(name, Recipe) else recipes[name]
    known = {field.name for field in fields(Recipe)}
    told = {key: value for key, value in told.items() if key in known and value is not None}
    recipe = _checked(replace(recipe, **told))
    if recipe.model not in MODELS[family]:
        raise ConfigError(f"this estimator is made of {' or '.join(MODELS[family])}; {recipe.model!r} came")
    return recipe


def rows_a_step(recipe: Recipe, rows: int) -> int:
    """How many rows a step takes: 256 as in the paper, and 1,024 of a large table."""
    return recipe.batch_size or (256 if rows < MANY_ROWS else 1024)


def _checked(recipe: Recipe) -> Recipe:
    """The recipe with plain numbers in it, whatever kinds of numbers came."""
    for name in WHOLE:
        value = getattr(recipe, name)
        if value is not None and not (_is_whole(value) and value >= 1):
            raise ConfigError(f"{name} is a whole number from 1 up; {value!r} came")
    for name in SHARES:
        value = getattr(recipe, name)
        if not (_is_number(value) and 0 <= value < 1):
            raise ConfigError(f"{name} is a share from 0 up to and without 1; {value!r} came")
    if not (_is_number(recipe.lr) and recipe.lr > 0):
        raise ConfigError(f"lr is a number above 0; {recipe.lr!r} came")
    if not (_is_number(recipe.weight_decay) and recipe.weight_decay >= 0):
        raise ConfigError(f"weight_decay is a number from 0 up; {recipe.weight_decay!r} came")
    _check_words(recipe)
    plain: dict[str, Any] = {name: int(value) for name in WHOLE if (value := getattr(recipe, name)) is not None}
    plain |= {name: float(getattr(recipe, name)) for name in (*SHARES, "lr", "weight_decay")}
    return replace(recipe, **plain)


def _check_words(recipe: Recipe) -> None:
    for name, wanted in (("scaling", ScalingName), ("watch", Watched), ("number_tokens", NumberTokensName)):
        if getattr(recipe, name) not in wanted.__args__:
            raise ConfigError(f"{name} is one of {', '.join(wanted.__args__)}; {getattr(recipe, name)!r} came")
    if recipe.model != "TableTransformer" and (recipe.members > 1 or recipe.number_tokens != "linear"):
        raise ConfigError(
            f"the papers' models have one member and linear number tokens; members={recipe.members} and "
            f"number_tokens={recipe.number_tokens!r} came. They go with recipe='ours'."
        )


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)
