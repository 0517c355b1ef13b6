"""Estimator and resolved config of a table run."""

from typing import Any

from softlook.base.errors import ConfigError
from softlook.recipes.config.resolve import ConfigOverrides, ResolvedConfig, ValueOrigin, get_value, resolve_config
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.run_dir.layout import fixed_values
from softlook.recipes.tabular.data import (
    TableData,
    memory_limit_bytes,
    parse_class_weights,
    parse_column_types,
    parse_ordinal_categories,
)
from softlook.tabular.classifier import FTTransformerClassifier, TableTransformerClassifier, TabTransformerClassifier
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.presets import AUTO_DROPOUT, AUTO_SIZES, HELP, PRESETS, Hyperparameters, select_hyperparameters
from softlook.tabular.regressor import FTTransformerRegressor, TableTransformerRegressor, TabTransformerRegressor

ESTIMATORS: dict[tuple[str, str], type[TableEstimator]] = {
    ("table", "classification"): TableTransformerClassifier,
    ("table", "regression"): TableTransformerRegressor,
    ("ft", "classification"): FTTransformerClassifier,
    ("ft", "regression"): FTTransformerRegressor,
    ("tab", "classification"): TabTransformerClassifier,
    ("tab", "regression"): TabTransformerRegressor,
}
AUTO_FIELDS = tuple(f"model.{name}" for name in (*AUTO_SIZES, *AUTO_DROPOUT))
"""Fields that a preset may leave to the table."""
GROUPS = ("model", "optim", "training")


def resolve_table_config(
    overrides: ConfigOverrides[TabularConfig], data: TableData, previous: dict[str, Any]
) -> ResolvedConfig[TabularConfig]:
    """The user's values, those of the data and of a previous run, and the preset's."""
    auto = {"problem": data.target.problem, **previous}
    config = resolve_config(overrides, auto).config
    kind = _estimator_class(config, data)
    preset = preset_name(config)
    hparams = _config_hyperparameters(config, kind)
    values = {name: getattr(hparams, name.rpartition(".")[2]) for name in estimator_fields(kind)}
    values |= {name: value or None for name, value in values.items() if name.removeprefix("model.") in AUTO_SIZES}
    known = {**auto, **overrides.values}
    from_preset = {name: value for name, value in values.items() if name not in known and value is not None}
    from_preset |= {} if "preset" in known else {"preset": preset}
    resolved = resolve_config(overrides, {**auto, **from_preset})
    origins = {**resolved.origins, **dict.fromkeys(from_preset, f"preset {preset}")}
    return ResolvedConfig(resolved.config, origins)


def preset_name(config: TabularConfig) -> str:
    """The preset of a config; default: the first one of its estimator."""
    return config.preset or next(iter(PRESETS[config.estimator]))


def fixed_config(resolved: ResolvedConfig[TabularConfig]) -> dict[str, Any]:
    """The values that must not change when a run is resumed; automatic sizes are not known yet when it starts."""
    return {
        name: None if name in AUTO_FIELDS and resolved.origins[name] == ValueOrigin.AUTO else value
        for name, value in fixed_values(resolved).items()
    }


def _estimator_class(config: TabularConfig, data: TableData) -> type[TableEstimator]:
    return ESTIMATORS[config.estimator, config.problem or data.target.problem]


def _config_hyperparameters(config: TabularConfig, kind: type[TableEstimator]) -> Hyperparameters:
    """The preset with the config's values."""
    given, known = _hyperparameter_values(config), estimator_fields(kind)
    for name, value in given.items():
        if value is not None and name not in known:
            raise ConfigError(f"{kind.__name__} has no parameter {name}; got {value!r}. Remove it.")
    values = {name.rpartition(".")[2]: value for name, value in given.items()}
    return select_hyperparameters(config.estimator, preset_name(config), values)


def estimator_fields(kind: type[TableEstimator]) -> list[str]:
    """The hyperparameters of an estimator by their full names in the config."""
    own = set(kind._get_param_names()) & set(HELP)
    return [name for name in _hyperparameter_values(TabularConfig()) if name.rpartition(".")[2] in own]


def _hyperparameter_values(config: TabularConfig) -> dict[str, Any]:
    return {
        f"{group}.{name}": value
        for group in GROUPS
        for name, value in getattr(config, group).model_dump().items()
        if name in HELP
    }


def build_estimator(config: TabularConfig, data: TableData) -> TableEstimator:
    """The estimator of a config, as a user would construct it."""
    kind: Any = _estimator_class(config, data)
    values = _hyperparameter_values(config)
    hparams = {name.rpartition(".")[2]: values[name] for name in estimator_fields(kind)}
    weights = parse_class_weights(config, data.target)
    classifier = {"class_weight": weights} if data.target.problem == "classification" else {}
    minutes = config.training.max_minutes
    return kind(
        preset=preset_name(config),
        **hparams,
        validation_fraction=config.training.validation_fraction,
        time_limit=None if minutes is None else 60 * minutes,
        memory_limit=memory_limit_bytes(config),
        column_types=parse_column_types(config) or None,
        ordinal_categories=parse_ordinal_categories(config) or None,
        device=config.training.device,
        random_state=config.training.seed,
        **classifier,
    )


def add_auto_sizes(
    resolved: ResolvedConfig[TabularConfig], kind: type[TableEstimator], hparams: Hyperparameters
) -> ResolvedConfig[TabularConfig]:
    """The config with the sizes chosen for the table; they stay when the run is resumed on another device."""
    own = estimator_fields(kind)
    open_fields = [name for name in AUTO_FIELDS if name in own and get_value(resolved.config, name) is None]
    sizes = {name.rpartition(".")[2]: getattr(hparams, name.rpartition(".")[2]) for name in open_fields}
    model = resolved.config.model.model_copy(update=sizes)
    config = resolved.config.model_copy(update={"model": model})
    return ResolvedConfig(config, {**resolved.origins, **dict.fromkeys(open_fields, ValueOrigin.AUTO)})
