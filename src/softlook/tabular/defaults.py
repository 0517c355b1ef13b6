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
Watched = Literal["loss", "score", "either"]
Schedule = Literal["constant", "falling"]
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
    "memory",
)
OPEN = ("dim", "depth", "members", "bins")
"""What a recipe may leave to the table with a 0."""
SHARES = ("dropout", "attention_dropout", "hidden_dropout", "warmup")
OPEN_SHARES = ("attention_dropout", "hidden_dropout")
"""What it may leave with None."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model for a table is built and trained."""

    model: ModelName = "FTTransformer"
    """Which of softlook.models it is."""
    scaling: ScalingName = "quantile"
    """What numbers go through first."""
    choices: bool = False
    """Whether columns of 0 and 1 that tell one choice together are read as one category."""
    dim: int = 192
    """Width of a token; 0 here, for `depth`, `members` or `bins`: by the table (`tabular.learning.settling`)."""
    depth: int = 3
    heads: int = 8
    hidden: int | None = None
    """Width inside the feed-forward layers; the model's own rule where None."""
    members: int = 1
    """Members of an ensemble that share most of their weights; 1: a model alone."""
    number_tokens: NumberTokensName = "linear"
    """How a number becomes a token."""
    beside: bool = False
    """Whether each column also has a say by itself, in straight lines beside the rest; after `pretrain` it has."""
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
    attention_dropout: float | None = 0.2
    """None here, or below: by the table."""
    hidden_dropout: float | None = 0.1
    lr: float = 1e-4
    weight_decay: float = 1e-5
    batch_size: int | None = None
    """Rows a step; where None, by how many rows there are."""
    epochs: int | None = None
    """Most times through the rows; where None patience decides, or, with a falling schedule, how long they are."""
    schedule: Schedule = "constant"
    """Whether the learning rate stays, or falls to nothing as the epochs, or the time, come to their end."""
    warmup: float = 0.05
    """Share of the steps in which a falling rate rises first."""
    half: bool = False
    """Products in half precision (bfloat16) while learning, on a GPU and on a CPU with units for them."""
    compiled: bool = False
    """On a GPU, whether torch.compile makes the kernels of a step: a while before the first, then faster."""
    memory: int | None = None
    """Most rows that are remembered, to be looked at beside the model: see `softlook.tabular.learning.row_memory`."""
    patience: int = 16
    """Looks at the held-out rows without a better one until it is enough."""
    look_every: int = 1
    """Fewest steps between two such looks: a look comes after every epoch that has reached it."""
    watch: Watched = "score"
    """What is better: a lower loss of the held-out rows, or a higher score (accuracy; for numbers it is the loss).
    Either: the score where so many are held out that it is sure, else the loss, which says more about few."""
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
                choices=True,
                dim=0,
                depth=0,
                members=0,
                shared=0,
                number_tokens="piecewise",
                bins=0,
                attention_dropout=None,
                hidden_dropout=None,
                lr=1e-3,
                weight_decay=0.05,
                schedule="falling",
                half=True,
                memory=16_384,
                look_every=16,
                watch="either",
                gain=1e-4,
                clip=1.0,
            ),
            "paper": FT_PAPER,
        },
        "tab": {
            "ours": replace(
                TAB_PAPER,
                scaling="quantile",
                choices=True,
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
MANY_JUDGES = 20_000
"""Held-out rows from which on their accuracy is sure to a fraction of a percent."""
FEW_ROWS = 50
"""With fewer rows than this none are held out: a handful would say nothing, and be missed."""


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
    for key in OPEN:
        _check_whole(key, told.get(key, 1), least=1)
    recipe = _checked(replace(recipe, **told))
    if recipe.model not in MODELS[family]:
        raise ConfigError(f"this estimator is made of {' or '.join(MODELS[family])}; {recipe.model!r} came")
    return recipe


def _checked(recipe: Recipe) -> Recipe:
    """The recipe with plain numbers in it, whatever kinds of numbers came."""
    for name in WHOLE:
        _check_whole(name, getattr(recipe, name), least=0 if name in OPEN else 1)
    for name in SHARES:
        value = getattr(recipe, name)
        if not (_is_number(value) and 0 <= value < 1) and not (value is None and name in OPEN_SHARES):
            raise ConfigError(f"{name} is a share from 0 up to and without 1; {value!r} came")
    if not (_is_number(recipe.lr) and recipe.lr > 0):
        raise ConfigError(f"lr is a number above 0; {recipe.lr!r} came")
    if not (_is_number(recipe.weight_decay) and recipe.weight_decay >= 0):
        raise ConfigError(f"weight_decay is a number from 0 up; {recipe.weight_decay!r} came")
    _check_words(recipe)
    plain: dict[str, Any] = {name: int(value) for name in WHOLE if (value := getattr(recipe, name)) is not None}
    numbers = {name: getattr(recipe, name) for name in (*SHARES, "lr", "weight_decay")}
    plain |= {name: float(value) for name, value in numbers.items() if value is not None}
    return replace(recipe, **plain)


CHOICES = (
    ("scaling", ScalingName),
    ("watch", Watched),
    ("number_tokens", NumberTokensName),
    ("schedule", Schedule),
)


def _check_words(recipe: Recipe) -> None:
    for name, wanted in CHOICES:
        if getattr(recipe, name) not in wanted.__args__:
            raise ConfigError(f"{name} is one of {', '.join(wanted.__args__)}; {getattr(recipe, name)!r} came")
    if recipe.model != "TableTransformer" and (recipe.members > 1 or recipe.number_tokens != "linear"):
        raise ConfigError(
            f"the papers' models have one member and linear number tokens; members={recipe.members} and "
            f"number_tokens={recipe.number_tokens!r} came. They go with recipe='ours'."
        )


def _check_whole(name: str, value: object, *, least: int) -> None:
    if value is not None and not (_is_whole(value) and value >= least):
        raise ConfigError(f"{name} is a whole number from {least} up; {value!r} came")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)
