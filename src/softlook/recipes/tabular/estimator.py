"""Estimator and resolved config of a table run."""

from typing import Any

from softlook.base.errors import ConfigError
from softlook.recipes.config.resolve import (
    ConfigOverrides,
    ResolvedConfig,
    ValueOrigin,
    default_values,
    get_value,
    resolve_config,
    unflatten,
)
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
FIELDS = {name: field for field in default_values(TabularConfig) if (name := field.rpartition(".")[2]) in HELP}
"""The config's field of each hyperparameter, by dotted name."""
AUTO_FIELDS = tuple(FIELDS[name] for name in (*AUTO_SIZES, *AUTO_DROPOUT) if name in FIELDS)
"""Fields that a preset may leave to the table."""


def resolve_table_config(
    overrides: ConfigOverrides[TabularConfig], data: TableData, previous: dict[str, Any]
) -> ResolvedConfig[TabularConfig]:
    """The user's values, those of the data and of a previous run, and the preset's."""
    auto = {"problem": data.target.problem, **previous}
    config = resolve_config(overrides, auto).config
    kind, preset = _estimator_class(config, data), preset_name(config)
    hparams = _config_hyperparameters(config, kind)
    values = {name: getattr(hparams, name) for name in hyperparameter_names(kind)}
    values |= {name: value or None for name, value in values.items() if name in AUTO_SIZES}
    known = {**auto, **overrides.values}
    from_preset = {FIELDS[name]: value for name, value in values.items() if FIELDS[name] not in known}
    from_preset = {name: value for name, value in from_preset.items() if value is not None}
    from_preset |= {} if "preset" in known else {"preset": preset}
    resolved = resolve_config(overrides, {**auto, **from_preset})
    origins = {**resolved.origins, **dict.fromkeys(from_preset, f"preset {preset}")}
    return ResolvedConfig(resolved.config, origins)


def preset_name(config: TabularConfig) -> str:
    """The preset of a config; default: the first one of its estimator."""
    return config.preset or next(iter(PRESETS[config.estimator]))


def fixed_config(resolved: ResolvedConfig[TabularConfig]) -> dict[str, Any]:
    """The values that must not change when a run is resumed; automatic sizes are not known yet when it starts."""
    open_fields = {name for name in AUTO_FIELDS if resolved.origins[name] == ValueOrigin.AUTO}
    fixed = {name: None if name in open_fields else value for name, value in fixed_values(resolved).items()}
    return {"task": "table", **unflatten(fixed)}


def _estimator_class(config: TabularConfig, data: TableData) -> type[TableEstimator]:
    return ESTIMATORS[config.estimator, config.problem or data.target.problem]


def _config_hyperparameters(config: TabularConfig, kind: type[TableEstimator]) -> Hyperparameters:
    """The preset with the config's values."""
    values, known = {name: get_value(config, field) for name, field in FIELDS.items()}, hyperparameter_names(kind)
    for name, value in values.items():
        if value is not None and name not in known:
            raise ConfigError(f"{kind.__name__} has no parameter {FIELDS[name]}; got {value!r}. Remove it.")
    return select_hyperparameters(config.estimator, preset_name(config), values)


def hyperparameter_names(kind: type[TableEstimator]) -> list[str]:
    """The hyperparameters of an estimator that a config has."""
    own = set(kind._get_param_names())
    return [name for name in FIELDS if name in own]


def build_estimator(config: TabularConfig, data: TableData) -> TableEstimator:
    """The estimator of a config, as a user would construct it."""
    kind: Any = _estimator_class(config, data)
    weights = parse_class_weights(config, data.target)
    classifier = {"class_weight": weights} if data.target.problem == "classification" else {}
    own = {"ensemble": config.ensemble} if "ensemble" in kind._get_param_names() else {}
    minutes = config.training.max_minutes
    return kind(
        preset=preset_name(config),
        **{name: get_value(config, FIELDS[name]) for name in hyperparameter_names(kind)},
        validation_fraction=config.training.validation_fraction,
        time_limit=None if minutes is None else 60 * minutes,
        memory_limit=memory_limit_bytes(config),
        column_types=parse_column_types(config) or None,
        ordinal_categories=parse_ordinal_categories(config) or None,
        device=config.training.device,
        random_state=config.training.seed,
        **classifier,
        **own,
    )


def add_auto_sizes(
    resolved: ResolvedConfig[TabularConfig], kind: type[TableEstimator], hparams: Hyperparameters
) -> ResolvedConfig[TabularConfig]:
    """The config with the sizes chosen for the table; they stay when the run is resumed on another device."""
    own, model = hyperparameter_names(kind), resolved.config.model
    open_names = [name for name in (*AUTO_SIZES, *AUTO_DROPOUT) if name in own and getattr(model, name) is None]
    model = model.model_copy(update={name: getattr(hparams, name) for name in open_names})
    config = resolved.config.model_copy(update={"model": model})
    return ResolvedConfig(config, resolved.origins | {FIELDS[name]: ValueOrigin.AUTO for name in open_names})
