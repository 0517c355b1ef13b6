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
OPEN = ("dim", "members")
"""What a recipe may leave to the table with a 0."""
SHARES = ("dropout", "attention_dropout", "hidden_dropout", "warmup")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model for a table is built and trained."""

    model: ModelName = "FTTransformer"
    """Which of softlook.models it is."""
    scaling: ScalingName = "quantile"
    """What numbers go through first."""
    dim: int = 192
    """Width of a token; 0: by how many rows there are."""
    depth: int = 3
    heads: int = 8
    hidden: int | None = None
    """Width inside the feed-forward layers; the model's own rule where None."""
    members: int = 1
    """Members of an ensemble that share most of their weights; 1: a model alone; 0: as many as fit, see `settled`."""
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
    attention_dropout: float = 0.2
    hidden_dropout: float = 0.1
    lr: float = 1e-4
    weight_decay: float = 1e-5
    batch_size: int | None = None
    """Rows a step; where None, by how many rows there are: see `rows_a_step`."""
    epochs: int | None = None
    """Most times through the rows; where None patience decides, or, with a falling schedule, `enough_epochs`."""
    schedule: Schedule = "constant"
    """Whether the learning rate stays, or falls to nothing as the epochs, or the time, come to their end."""
    warmup: float = 0.05
    """Share of the steps in which a falling rate rises first."""
    half: bool = False
    """On a GPU, products in half precision (bfloat16) while learning."""
    memory: int | None = None
    """Most rows that are remembered, to be looked at beside the model: see `softlook.tabular.recalling`."""
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
                dim=0,
                depth=2,
                members=0,
                shared=0,
                number_tokens="piecewise",
                bins=96,
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
EPOCHS, LEAST_STEPS, MOST_STEPS = 40, 300, 60_000
"""Times through the rows where a falling rate is not told how many; and bounds on the steps that they come to."""
SMALL_TABLE, NARROW, WIDE = 10_000, 64, 128
"""Rows up to which tokens are narrow, and both widths."""
MEMBERS = 8
BUDGET_A_ROW, BUDGET = 7.5e8, 1e13
"""Products of a CPU that a row is worth, and all of them."""
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
    for key in OPEN:
        _check_whole(key, told.get(key, 1), least=1)
    recipe = _checked(replace(recipe, **told))
    if recipe.model not in MODELS[family]:
        raise ConfigError(f"this estimator is made of {' or '.join(MODELS[family])}; {recipe.model!r} came")
    return recipe


def rows_a_step(recipe: Recipe, rows: int) -> int:
    """How many rows a step takes: 256 as in the paper, and 1,024 of a large table."""
    return recipe.batch_size or (256 if rows < MANY_ROWS else 1024)


def enough_epochs(recipe: Recipe, steps: int) -> int | None:
    """Epochs of so many steps each until a falling rate is at its end: more where they are short, fewer where long.

    >>> [enough_epochs(RECIPES["ft"]["ours"], steps) for steps in (1, 50, 5_000)]
    [300, 40, 12]
    """
    return None if recipe.schedule == "constant" else max(min(EPOCHS, MOST_STEPS // steps), -(-LEAST_STEPS // steps), 4)


def settled(recipe: Recipe, *, rows: int, tokens: int, device: str) -> Recipe:
    """The recipe for a table of so many rows to learn from: its width, and as many members as are worth their time.

    Members are powers of two. A GPU has time for eight. On a CPU it is as many as a budget of products allows, which
    grows with the rows up to some minutes of two cores; it counts nothing that differs from one CPU to another.

    >>> ours = RECIPES["ft"]["ours"]
    >>> [settled(ours, rows=13_209, tokens=9, device=device).members for device in ("cuda", "cpu")]
    [8, 4]
    """
    dim = recipe.dim or (NARROW if rows < SMALL_TABLE else WIDE)
    if recipe.members or device != "cpu":
        return replace(recipe, dim=dim, members=recipe.members or MEMBERS)
    steps = -(-rows // rows_a_step(recipe, rows))
    epochs = recipe.epochs or enough_epochs(recipe, steps) or EPOCHS
    alone = 3 * rows * epochs * tokens * (8 * recipe.depth - 6) * dim**2
    fitting = min(rows * BUDGET_A_ROW, BUDGET) // alone
    return replace(recipe, dim=dim, members=min(MEMBERS, 1 << max(0, int(fitting).bit_length() - 1)))


def _checked(recipe: Recipe) -> Recipe:
    """The recipe with plain numbers in it, whatever kinds of numbers came."""
    for name in WHOLE:
        _check_whole(name, getattr(recipe, name), least=0 if name in OPEN else 1)
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
