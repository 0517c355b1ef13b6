"""From what was told about a table to every setting, and to the estimator that somebody would have made by hand."""

from dataclasses import fields
from typing import Any

from softlook.base.errors import ConfigError
from softlook.recipes.remembering import lasting
from softlook.recipes.settings import Table
from softlook.recipes.tables_data import TableData, class_weights_of, kinds_of, memory_limit_of, orders_of
from softlook.recipes.told import CHOSEN, Settled, Told, group_of, settle
from softlook.tabular.classifier import FTTransformerClassifier, TabTransformerClassifier
from softlook.tabular.defaults import OPEN, OPEN_SHARES, Recipe, chosen
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.regressor import FTTransformerRegressor, TabTransformerRegressor

ESTIMATORS: dict[tuple[str, str], type[TableEstimator]] = {
    ("ft", "classes"): FTTransformerClassifier,
    ("ft", "numbers"): FTTransformerRegressor,
    ("tab", "classes"): TabTransformerClassifier,
    ("tab", "numbers"): TabTransformerRegressor,
}
FOUND = tuple(f"size.{name}" for name in (*OPEN, *OPEN_SHARES))
"""Sizes that a recipe may leave to the rows that there are."""
GROUPS = ("size", "optim", "training")


def settled_for(asked: Told[Table], data: TableData, kept: dict[str, Any]) -> Settled[Table]:
    """What was told, what the data say, and the rest from the recipe."""
    chosen = {"answers": data.target.answers, **kept}
    settings = settle(asked, chosen).settings
    kind = ESTIMATORS[settings.estimator, settings.answers or data.target.answers]
    recipe = recipe_of(settings, kind)
    found = {name: getattr(recipe, name.rpartition(".")[2]) for name in parameters_of(kind)}
    found |= {name: value or None for name, value in found.items() if name.removeprefix("size.") in OPEN}  # 0: open
    known = {**chosen, **asked.values}
    from_recipe = {name: value for name, value in found.items() if name not in known and value is not None}
    settled = settle(asked, {**chosen, **from_recipe})
    return Settled(settled.settings, {**settled.origins, **dict.fromkeys(from_recipe, f"recipe {settings.recipe}")})


def fixed(settled: Settled[Table]) -> dict[str, Any]:
    """What a run keeps to its end; sizes that were found for its rows are not known yet when it begins."""
    return {
        name: None if name in FOUND and settled.origins[name] == CHOSEN else value
        for name, value in lasting(settled).items()
    }


def recipe_of(settings: Table, kind: type[TableEstimator]) -> Recipe:
    """The recipe with what was told in its place."""
    given = _given(settings)
    known = parameters_of(kind)
    for name, value in given.items():
        if value is not None and name not in known:
            raise ConfigError(f"{name} means nothing to {kind.__name__}; {value!r} came. Leave it out.")
    return chosen(
        settings.estimator, settings.recipe, {name.rpartition(".")[2]: value for name, value in given.items()}
    )


def parameters_of(kind: type[TableEstimator]) -> list[str]:
    """The settings that are an estimator's own, by their full names: those that a recipe answers where nobody does."""
    own, of_recipe = set(kind._get_param_names()), {field.name for field in fields(Recipe)}
    every = _given(Table())
    return [name for name in every if name.rpartition(".")[2] in own & of_recipe]


def _given(settings: Table) -> dict[str, Any]:
    of_recipe = {field.name for field in fields(Recipe)}
    return {
        f"{group}.{name}": value
        for group in GROUPS
        for name, value in getattr(settings, group).model_dump().items()
        if name in of_recipe
    }


def estimator_for(settings: Table, data: TableData) -> TableEstimator:
    """The estimator that somebody would have made by hand."""
    kind: Any = ESTIMATORS[settings.estimator, settings.answers or data.target.answers]
    given = _given(settings)
    told = {name.rpartition(".")[2]: given[name] for name in parameters_of(kind)}
    weights = class_weights_of(settings, data.target)
    more = {"class_weight": weights} if data.target.answers == "classes" else {}
    minutes = settings.training.minutes
    return kind(
        recipe=settings.recipe,
        **told,
        validation_share=settings.training.held_out,
        time_limit=None if minutes is None else 60 * minutes,
        memory_limit=memory_limit_of(settings),
        kinds=kinds_of(settings) or None,
        ordinal=orders_of(settings) or None,
        device=settings.training.device,
        random_state=settings.training.seed,
        **more,
    )


def with_found_sizes(settled: Settled[Table], kind: type[TableEstimator], recipe: Recipe) -> Settled[Table]:
    """The sizes that were found for the rows: what was chosen once stays, on whatever device the run goes on."""
    own = parameters_of(kind)
    open_ = [name for name in FOUND if name in own and group_of(settled.settings, name) is None]
    sizes = {name.rpartition(".")[2]: getattr(recipe, name.rpartition(".")[2]) for name in open_}
    size = settled.settings.size.model_copy(update=sizes)
    settings = settled.settings.model_copy(update={"size": size})
    return Settled(settings, {**settled.origins, **dict.fromkeys(open_, CHOSEN)})
