"""Search spaces for hyperparameters: the papers' and softlook's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from softlook.base.errors import ConfigError
from softlook.tabular.presets import Hyperparameters, ModelName

if TYPE_CHECKING:
    from optuna.trial import Trial

FACTOR = "hidden_factor"
"""Hidden width as a multiple of `dim`, which the FT-Transformer paper searches over."""
DEFAULT_FACTOR = 4 / 3
IS_NONZERO = "_is_nonzero"


@dataclass(frozen=True)
class Categorical:
    """One of several values."""

    values: tuple[Any, ...]

    def sample(self, trial: "Trial", name: str) -> Any:
        return trial.suggest_categorical(name, self.values)

    def as_params(self, name: str, value: Any) -> dict[str, Any]:
        """optuna's parameters for a value; empty if it is outside the range."""
        return {name: value} if value in self.values else {}


@dataclass(frozen=True)
class IntRange:
    """An integer, bounds included."""

    low: int
    high: int
    step: int = 1

    def sample(self, trial: "Trial", name: str) -> int:
        return trial.suggest_int(name, self.low, self.high, step=self.step)

    def as_params(self, name: str, value: Any) -> dict[str, Any]:
        is_inside = self.low <= value <= self.high and not (value - self.low) % self.step
        return {name: value} if is_inside else {}


@dataclass(frozen=True)
class FloatRange:
    """A number; `log` samples on a logarithmic scale, `or_zero` gives 0 in half of the samples."""

    low: float
    high: float
    log: bool = False
    or_zero: bool = False

    def sample(self, trial: "Trial", name: str) -> float:
        if self.or_zero and not trial.suggest_categorical(name + IS_NONZERO, (False, True)):
            return 0.0
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def as_params(self, name: str, value: Any) -> dict[str, Any]:
        if self.or_zero and not value:
            return {name + IS_NONZERO: False}
        params = {name: value} if self.low <= value <= self.high else {}
        return params | ({name + IS_NONZERO: True} if params and self.or_zero else {})


Range = Categorical | IntRange | FloatRange
Space = Mapping[str, Range]

TAB_IMPROVED: Space = {
    "depth": IntRange(1, 6),
    "dim": IntRange(16, 128, step=16),
    "dropout": FloatRange(0.0, 0.5),
    "lr": FloatRange(1e-4, 5e-3, log=True),
    "weight_decay": FloatRange(1e-6, 1e-1, log=True),
}
"""For TabTransformers without the LayerNorm over numbers."""
SPACES: Mapping[ModelName, Space] = MappingProxyType(
    {
        "TableTransformer": {
            "depth": IntRange(1, 4),
            "dim": IntRange(32, 192, step=16),
            "num_embeddings": Categorical(("piecewise", "periodic", "linear")),
            "dropout": FloatRange(0.0, 0.2, or_zero=True),
            "attention_dropout": FloatRange(0.0, 0.4),
            "hidden_dropout": FloatRange(0.0, 0.5),
            FACTOR: FloatRange(2 / 3, 8 / 3),
            "lr": FloatRange(1e-4, 5e-3, log=True),
            "weight_decay": FloatRange(1e-6, 1e-1, log=True),
        },
        "FTTransformer": {  # Gorishniy et al. 2021, table 13
            "depth": IntRange(1, 4),
            "dim": IntRange(64, 512, step=8),
            "dropout": FloatRange(0.0, 0.2, or_zero=True),
            "attention_dropout": FloatRange(0.0, 0.5),
            "hidden_dropout": FloatRange(0.0, 0.5),
            FACTOR: FloatRange(2 / 3, 8 / 3),
            "lr": FloatRange(1e-5, 1e-3, log=True),
            "weight_decay": FloatRange(1e-6, 1e-3, log=True),
        },
        "TabTransformer": {  # Huang et al. 2020: the search of each table, and the sizes that were compared
            "depth": Categorical((1, 2, 3, 6, 12)),
            "dim": Categorical((32, 64, 128, 256)),
            "dropout": Categorical((0.0, 0.1, 0.2, 0.3, 0.4, 0.5)),
            "lr": FloatRange(1e-6, 1e-3, log=True),
            "weight_decay": FloatRange(1e-6, 1e-1, log=True),
        },
    }
)


def space_for(hparams: Hyperparameters) -> Space:
    """The search space of a model."""
    is_improved = hparams.model == "TabTransformer" and not hparams.numeric_norm
    return TAB_IMPROVED if is_improved else SPACES[hparams.model]


def restrict_space(space: Space, given: Mapping[str, Any], hparams: Hyperparameters) -> dict[str, Range]:
    """The space without the parameters that are given, and with widths divisible by the heads.

    >>> space = {"lr": FloatRange(0.1, 1), "dim": IntRange(10, 50, step=8)}
    >>> restrict_space(space, {"lr": 0.5}, Hyperparameters(heads=3))
    {'dim': IntRange(low=12, high=48, step=9)}
    """
    fixed = {name for name, value in given.items() if value is not None}
    fixed |= {FACTOR} if "hidden" in fixed else set()
    restricted = {name: one for name, one in space.items() if name not in fixed}
    if FACTOR in restricted and "dim" not in restricted and not hparams.dim:
        raise ConfigError(f"{FACTOR} is a multiple of dim, which is neither given nor in the space. Add it to either.")
    width = restricted.get("dim")
    if isinstance(width, IntRange):
        heads = hparams.heads
        step = -(-width.step // heads) * heads
        low = -(-width.low // heads) * heads
        restricted["dim"] = IntRange(low, max(low, width.high // heads * heads), step)
    return restricted


def sample_params(space: Space, trial: "Trial", hparams: Hyperparameters) -> dict[str, Any]:
    """Sample estimator parameters."""
    params = {name: one.sample(trial, name) for name, one in space.items()}
    factor = params.pop(FACTOR, None)
    if factor is not None:
        params["hidden"] = max(1, round(factor * params.get("dim", hparams.dim)))
    return params


def default_params(space: Space, hparams: Hyperparameters) -> dict[str, Any]:
    """optuna's parameters for the preset's own values, as far as they are known and inside the space."""
    params: dict[str, Any] = {}
    for name, one in space.items():
        if name != FACTOR:
            value = getattr(hparams, name)
        else:
            value = DEFAULT_FACTOR if hparams.hidden is None else hparams.hidden / hparams.dim
        params |= {} if value is None else one.as_params(name, value)
    return params
