"""Where better settings are looked for: the spaces of the papers, and ours around our defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from softlook.base.errors import ConfigError
from softlook.tabular.defaults import Family, Recipe

FACTOR = "hidden_factor"
"""Hidden width as a multiple of the width, by which the FT-Transformer paper searches for it."""
USUAL = 4 / 3
"""That multiple, where nobody tells a hidden width."""
IS_ON = "_is_on"


@runtime_checkable
class Dice(Protocol):
    """What draws values: a trial of optuna's."""

    def suggest_categorical(self, name: str, choices: Any) -> Any: ...
    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...
    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1) -> int: ...


@dataclass(frozen=True)
class OneOf:
    """One of these."""

    values: tuple[Any, ...]

    def draw(self, dice: Dice, name: str) -> Any:
        return dice.suggest_categorical(name, self.values)

    def first(self, name: str, value: Any) -> dict[str, Any]:
        """A value as it would have been drawn; nothing, where it cannot be."""
        return {name: value} if value in self.values else {}


@dataclass(frozen=True)
class Whole:
    """A whole number, ends included."""

    low: int
    high: int
    step: int = 1

    def draw(self, dice: Dice, name: str) -> int:
        return dice.suggest_int(name, self.low, self.high, step=self.step)

    def first(self, name: str, value: Any) -> dict[str, Any]:
        is_in = self.low <= value <= self.high and not (value - self.low) % self.step
        return {name: value} if is_in else {}


@dataclass(frozen=True)
class Between:
    """A number; with `log`, every power of ten is as likely as another; with `or_none`, it is 0 half the time."""

    low: float
    high: float
    log: bool = False
    or_none: bool = False

    def draw(self, dice: Dice, name: str) -> float:
        if self.or_none and not dice.suggest_categorical(name + IS_ON, (False, True)):
            return 0.0
        return dice.suggest_float(name, self.low, self.high, log=self.log)

    def first(self, name: str, value: Any) -> dict[str, Any]:
        if self.or_none and not value:
            return {name + IS_ON: False}
        found = {name: value} if self.low <= value <= self.high else {}
        return found | ({name + IS_ON: True} if found and self.or_none else {})


Range = OneOf | Whole | Between
Space = Mapping[str, Range]

SPACES: Mapping[Family, Mapping[str, Space]] = MappingProxyType(
    {
        "ft": {
            "paper": {  # Gorishniy et al. 2021, table 13
                "depth": Whole(1, 4),
                "dim": Whole(64, 512, step=8),
                "dropout": Between(0.0, 0.2, or_none=True),
                "attention_dropout": Between(0.0, 0.5),
                "hidden_dropout": Between(0.0, 0.5),
                FACTOR: Between(2 / 3, 8 / 3),
                "lr": Between(1e-5, 1e-3, log=True),
                "weight_decay": Between(1e-6, 1e-3, log=True),
            },
            "ours": {
                "depth": Whole(1, 4),
                "dim": Whole(32, 192, step=16),
                "number_tokens": OneOf(("piecewise", "periodic", "linear")),
                "dropout": Between(0.0, 0.2, or_none=True),
                "attention_dropout": Between(0.0, 0.4),
                "hidden_dropout": Between(0.0, 0.5),
                FACTOR: Between(2 / 3, 8 / 3),
                "lr": Between(1e-4, 5e-3, log=True),
                "weight_decay": Between(1e-6, 1e-1, log=True),
            },
        },
        "tab": {
            "paper": {  # Huang et al. 2020: what was searched for each table, and the sizes that were tried
                "depth": OneOf((1, 2, 3, 6, 12)),
                "dim": OneOf((32, 64, 128, 256)),
                "dropout": OneOf((0.0, 0.1, 0.2, 0.3, 0.4, 0.5)),
                "lr": Between(1e-6, 1e-3, log=True),
                "weight_decay": Between(1e-6, 1e-1, log=True),
            },
            "ours": {
                "depth": Whole(1, 6),
                "dim": Whole(16, 128, step=16),
                "dropout": Between(0.0, 0.5),
                "lr": Between(1e-4, 5e-3, log=True),
                "weight_decay": Between(1e-6, 1e-1, log=True),
            },
        },
    }
)


def fitting(space: Space, told: Mapping[str, Any], recipe: Recipe) -> dict[str, Range]:
    """The space without what was told, and with widths that the heads can share.

    >>> fitting({"lr": Between(0.1, 1), "dim": Whole(10, 50, step=8)}, {"lr": 0.5}, Recipe(heads=3))
    {'dim': Whole(low=12, high=48, step=9)}
    """
    fixed = {name for name, value in told.items() if value is not None}
    fixed |= {FACTOR} if "hidden" in fixed else set()
    found = {name: chosen for name, chosen in space.items() if name not in fixed}
    if FACTOR in found and "dim" not in found and not recipe.dim:
        raise ConfigError(f"{FACTOR} is a multiple of dim, which is neither told nor in the space. Add dim to either.")
    width = found.get("dim")
    if isinstance(width, Whole):
        heads = recipe.heads
        step = -(-width.step // heads) * heads
        low = -(-width.low // heads) * heads
        found["dim"] = Whole(low, max(low, width.high // heads * heads), step)
    return found


def drawn(space: Space, dice: Dice, recipe: Recipe) -> dict[str, Any]:
    """Settings by chance."""
    found = {name: chosen.draw(dice, name) for name, chosen in space.items()}
    factor = found.pop(FACTOR, None)
    if factor is not None:
        found["hidden"] = max(1, round(factor * found.get("dim", recipe.dim)))
    return found


def usual(space: Space, recipe: Recipe) -> dict[str, Any]:
    """What dice would have to show for the recipe's own settings, as far as they are known and lie in the space."""
    found: dict[str, Any] = {}
    for name, chosen in space.items():
        value = _factor(recipe) if name == FACTOR else getattr(recipe, name)
        found |= {} if value is None else chosen.first(name, value)
    return found


def _factor(recipe: Recipe) -> float:
    return USUAL if recipe.hidden is None else recipe.hidden / recipe.dim
