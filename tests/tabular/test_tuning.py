"""Hyperparameter search: the best trial is kept, and a search can be resumed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from sklearn.base import is_classifier

from softlook.base.errors import ConfigError, TrainingError
from softlook.tabular import (
    FTTransformerClassifier,
    FTTransformerRegressor,
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    tuning,
)
from softlook.tabular.presets import PRESETS, Hyperparameters
from softlook.tabular.search_spaces import (
    FACTOR,
    Categorical,
    FloatRange,
    IntRange,
    default_params,
    restrict_space,
    sample_params,
    space_for,
)
from softlook.tabular.training.autosize import TrainingContext, resolve_hyperparameters
from softlook.tabular.tuning import HyperparameterSearch, TrialResult, tune
from tests.tabular.estimators import mixed_table, small

SPACE = {"lr": FloatRange(1e-4, 1e-2, log=True), "depth": IntRange(1, 2)}


def estimator(**params: Any) -> Any:
    return small(TableTransformerClassifier, **({"dim": 8, "depth": None, "n_members": 1, "epochs": 2} | params))


def run_trials(search: HyperparameterSearch, trials: int = 4, max_minutes: float | None = None) -> list[TrialResult]:
    return list(search.run(*mixed_table(80), trials=trials, max_minutes=max_minutes))


def lowest_val_loss(model: Any) -> float:
    return min(epoch["val_loss"] for epoch in model.history_ if "val_loss" in epoch)


def test_the_best_estimator_is_returned_and_the_given_one_is_unchanged() -> None:
    X, y = mixed_table(80)
    given, results = estimator(), list[TrialResult]()
    best = tune(given, X, y, trials=4, space=SPACE, callback=results.append)
    assert not hasattr(given, "model_") and given.lr is None
    values = [result.value for result in results if result.value is not None]
    winner = next(result for result in results if result.value == max(values))
    assert {name: getattr(best, name) for name in winner.params} == winner.params
    assert lowest_val_loss(best) == -max(values) == winner.loss
    assert best.predict_proba(X).shape == (80, 2) and best.classes_.tolist() == [False, True]


def test_given_parameters_stay_and_the_preset_is_the_first_trial() -> None:
    results = list[TrialResult]()
    tune(estimator(weight_decay=0.5), *mixed_table(80), trials=2, callback=results.append)
    first, default = results[0].params, PRESETS["table"]["default"]
    resolved = resolve_hyperparameters(default, TrainingContext(rows=80, tokens=1, device="any"))
    assert {"dim", "heads", "epochs", "weight_decay"}.isdisjoint(first) and results[0].number == 0
    assert (first["lr"], first["num_embeddings"]) == (default.lr, default.num_embeddings)
    assert first["depth"] == resolved.depth
    assert first["hidden"] == round(8 * 4 / 3)
    assert results[1].params != first


EVAL_SET: dict[str, Any] = {"eval_set": mixed_table(60, seed=1)}


def pretrained_table(**params: Any) -> Any:
    return small(TableTransformerClassifier, **({"dim": 8} | params)).pretrain(mixed_table(120)[0], epochs=1)


def pretrained_tab(**params: Any) -> Any:
    return small(TabTransformerClassifier, **({"dim": 8} | params)).pretrain(mixed_table(120)[0], epochs=1)


@pytest.mark.parametrize("pretrain", [pretrained_table, pretrained_tab])
def test_all_trials_start_from_the_pretrained_weights(pretrain: Any) -> None:
    given, results = pretrain(), list[TrialResult]()
    best = tune(given, *mixed_table(80), **EVAL_SET, trials=3, callback=results.append)
    assert best.pretrained_ is given.pretrained_ and not hasattr(given, "model_")
    searched = {name for result in results for name in result.params}
    assert not {"depth", "dim", "hidden", "num_embeddings", "scaling"} & searched
    assert all(result.params["lr"] <= 5e-4 for result in results), "fine-tuning needs a lower learning rate"
    params = {name: getattr(best, name) for name in results[0].params}
    again = pretrain().set_params(**params).fit(*mixed_table(80), **EVAL_SET)
    X, _ = mixed_table(80)
    np.testing.assert_array_equal(again.predict_proba(X), best.predict_proba(X))


@pytest.mark.parametrize("pretrain", [pretrained_table, pretrained_tab])
def test_the_first_trial_after_pretrain_equals_fit(pretrain: Any) -> None:
    X, y = mixed_table(80)
    best = tune(pretrain(), X, y, **EVAL_SET, trials=1)
    np.testing.assert_array_equal(best.predict_proba(X), pretrain().fit(X, y, **EVAL_SET).predict_proba(X))


def test_a_trial_that_does_not_improve_has_the_value_of_the_linear_probe() -> None:
    results = list[TrialResult]()
    low, high = {"lr": FloatRange(1e-12, 1e-11)}, {"lr": FloatRange(0.5, 1.0)}
    probe = tune(pretrained_table(), *mixed_table(80), **EVAL_SET, trials=1, space=low, callback=results.append)
    tune(pretrained_table(), *mixed_table(80), **EVAL_SET, trials=1, space=high, callback=results.append)
    assert results[0].value == results[1].value == -lowest_val_loss(probe)


def test_sizes_that_differ_from_the_pretrained_model_are_rejected() -> None:
    with pytest.raises(ConfigError, match="depth was 2 in pretrain, and is 1 now"):
        tune(pretrained_table(depth=None), *mixed_table(80), **EVAL_SET, trials=4, space={"depth": IntRange(1, 1)})


def test_few_labels_after_pretrain_leave_no_validation_rows() -> None:
    with pytest.raises(ConfigError, match=r"no validation rows .* \(after pretrain, 1,000 or more\)"):
        tune(pretrained_table(epochs=None), *mixed_table(80), trials=1)


def test_a_resumed_search_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    journal = tmp_path / "trials"
    whole = run_trials(HyperparameterSearch(estimator(), SPACE))
    first = run_trials(HyperparameterSearch(estimator(), SPACE, journal), trials=2)
    search = HyperparameterSearch(estimator(), SPACE, journal)
    rest = run_trials(search)
    assert [result.params for result in (*first, *rest)] == [result.params for result in whole]
    assert [result.value for result in (*first, *rest)] == [result.value for result in whole]
    assert [result.number for result in search.results()] == [0, 1, 2, 3]
    assert run_trials(HyperparameterSearch(estimator(), SPACE, journal)) == []
    again = HyperparameterSearch(estimator(), SPACE, journal)
    best = again.best_estimator(*mixed_table(80))
    assert lowest_val_loss(best) == -max(result.value for result in whole if result.value)


def test_an_interrupted_trial_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = HyperparameterSearch(estimator(), SPACE, tmp_path / "trials")
    run_trials(search, trials=1)
    with monkeypatch.context() as patch:
        patch.setattr(TableTransformerClassifier, "_fit", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_trials(search)
    interrupted = search.study.trials[-1].params
    resumed = run_trials(HyperparameterSearch(estimator(), SPACE, tmp_path / "trials"), trials=2)
    assert [resumed[0].params[name] for name in SPACE] == [interrupted[name] for name in SPACE]


def test_the_time_limit_covers_all_runs_of_a_search(tmp_path: Path) -> None:
    search = HyperparameterSearch(estimator(epochs=None), SPACE, tmp_path / "trials")
    results = run_trials(search, trials=99, max_minutes=0.02)
    assert 1 <= len(results) < 99 and sum(result.seconds for result in results) < 30
    resumed = HyperparameterSearch(estimator(epochs=None), SPACE, tmp_path / "trials")
    assert run_trials(resumed, trials=99, max_minutes=0.02) == []


def test_a_trial_that_falls_behind_is_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "STARTUP_TRIALS", 1)
    monkeypatch.setattr(tuning, "WARMUP_EPOCHS", 4)
    space = {"lr": Categorical((1e-2, 1e-12))}
    preset = Hyperparameters(model="TableTransformer", early_stopping_metric="loss", lr=1e-2)
    search = HyperparameterSearch(estimator(epochs=10, preset=preset, batch_size=16), space)
    search.study.enqueue_trial({"lr": 1e-2})
    search.study.enqueue_trial({"lr": 1e-12})
    X, _ = mixed_table(80)
    results = list(search.run(X, X[:, 0].astype(float) > 0, trials=2))
    pruned = [result for result in results if result.state == "pruned"]
    assert pruned and all(
        result.params["lr"] == 1e-12 and result.epochs < 10 and result.value is None for result in pruned
    )
    assert search.best_params()["lr"] == 1e-2


def test_a_failed_trial_is_reported_and_the_search_continues() -> None:
    space = {"lr": Categorical((1e-3, 1e30))}
    params: dict[str, Any] = {"dim": 8, "depth": None, "epochs": 2}
    search = HyperparameterSearch(small(FTTransformerClassifier, **params), space)
    search.study.enqueue_trial({"lr": 1e30})
    search.study.enqueue_trial({"lr": 1e-3})
    results = run_trials(search, trials=3)
    assert {result.params["lr"]: result.state for result in results} == {1e30: "failed", 1e-3: "complete"}
    assert {(result.state, result.error[:15]) for result in results} == {
        ("failed", "the loss became"),
        ("complete", ""),
    }


def test_a_search_that_is_impossible_is_rejected() -> None:
    with pytest.raises(ConfigError, match="there are no validation rows to choose by"):
        tune(estimator(), *mixed_table(30), trials=1)
    with pytest.raises(ConfigError, match="all hyperparameters are given"):
        HyperparameterSearch(estimator(lr=0.1), {"lr": FloatRange(0, 1)})
    with pytest.raises(TrainingError, match="no trial was completed"):
        HyperparameterSearch(estimator(), SPACE).best_params()
    with pytest.raises(
        ConfigError, match="hidden_factor is a multiple of dim, which is neither given nor in the space"
    ):
        HyperparameterSearch(TableTransformerRegressor(), {FACTOR: FloatRange(1, 2)})
    assert "hidden_factor" in (
        HyperparameterSearch(TableTransformerRegressor(dim=16), {FACTOR: FloatRange(1, 2)}).space or {}
    )


@pytest.mark.parametrize(
    ("estimator_class", "preset", "sizes"),
    [
        (TableTransformerRegressor, "default", {"dim": 64, "depth": 1}),
        (FTTransformerRegressor, "paper", {"dim": 64, "depth": 1}),
        (TabTransformerClassifier, "improved", {"dim": 32, "depth": 1}),
        (TabTransformerClassifier, "paper", {"dim": 32, "depth": 1}),
    ],
)
def test_every_search_space_includes_its_preset_and_gives_valid_models(
    estimator_class: Any, preset: str, sizes: dict[str, int]
) -> None:
    X, y = mixed_table(60)
    model = estimator_class(preset=preset, random_state=0, epochs=1)
    context = TrainingContext(rows=80, tokens=1, device="any")
    hparams = resolve_hyperparameters(PRESETS[model.family][preset], context)
    space = restrict_space(space_for(hparams), {}, hparams)
    assert {"depth", "lr", "weight_decay"} <= default_params(space, hparams).keys()
    assert space.keys() <= set(model.get_params()) | {FACTOR}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(30):
        assert sample_params(space, study.ask(), hparams)["dim"] % hparams.heads == 0
    targets = y if is_classifier(model) else y.astype(float)
    best = tune(model.set_params(**sizes), X, targets, trials=2)
    assert best.hyperparameters_.model == hparams.model


def test_a_missing_optuna_is_reported_with_the_command_to_install_it() -> None:
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "import softlook.tabular\n"
        "try:\n    softlook.tabular.tune\nexcept ImportError as error:\n    print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "hyperparameter search requires optuna: pip install softlook[tune]"


def test_a_table_can_be_given_by_path(tmp_path: Path) -> None:
    X, y = mixed_table(80)
    rows = "".join(f"{a},{b},{c},{d}\n" for (a, b, c), d in zip(X, y, strict=True))
    (tmp_path / "a.csv").write_text(f"a,b,c,d\n{rows}")
    best = tune(estimator(), tmp_path / "a.csv", "d", trials=2, space=SPACE)
    assert best.score(tmp_path / "a.csv", "d") == np.mean(best.predict(tmp_path / "a.csv") == y)


def test_zero_trials_are_rejected() -> None:
    with pytest.raises(ConfigError, match="trials: expected an integer >= 1; got 0"):
        tune(TableTransformerClassifier(), [[1.0]], [1], trials=0)
