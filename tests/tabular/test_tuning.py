"""A search tries settings, keeps the best, and goes on where it stopped."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from softlook.base.errors import ConfigError, TrainingError
from softlook.tabular import TableTransformerClassifier, TableTransformerRegressor, TabTransformerClassifier
from softlook.tabular import tuning as module
from softlook.tabular.presets import PRESETS, Hyperparameters
from softlook.tabular.search_spaces import (
    FACTOR,
    SPACES,
    Categorical,
    FloatRange,
    IntRange,
    default_params,
    restrict_space,
    sample_params,
)
from softlook.tabular.training.autosize import TrainingContext, resolve_hyperparameters
from softlook.tabular.tuning import HyperparameterSearch, TrialResult, tune
from tests.tabular.estimators import mixed_table, small

SPACE = {"lr": FloatRange(1e-4, 1e-2, log=True), "depth": IntRange(1, 2)}


def estimator(**told: Any) -> Any:
    return small(TableTransformerClassifier, **({"dim": 8, "depth": None, "n_members": 1, "epochs": 2} | told))


def tried_by(search: HyperparameterSearch, trials: int = 4, max_minutes: float | None = None) -> list[TrialResult]:
    return list(search.run(*mixed_table(80), trials=trials, max_minutes=max_minutes))


def lowest(model: Any) -> float:
    return min(epoch["val_loss"] for epoch in model.history_ if "val_loss" in epoch)


def test_the_best_on_held_out_rows_is_returned_and_the_one_that_came_is_as_it_was() -> None:
    X, y = mixed_table(80)
    came, heard = estimator(), list[TrialResult]()
    best = tune(came, X, y, trials=4, space=SPACE, tell=heard.append)
    assert not hasattr(came, "model_") and came.lr is None
    worths = [tried.value for tried in heard if tried.value is not None]
    first = next(tried for tried in heard if tried.value == max(worths))
    assert {name: getattr(best, name) for name in first.params} == first.params
    assert lowest(best) == -max(worths) == first.loss
    assert best.predict_proba(X).shape == (80, 2) and best.classes_.tolist() == [False, True]


def test_what_was_told_stays_and_the_recipe_comes_first() -> None:
    heard = list[TrialResult]()
    tune(estimator(weight_decay=0.5), *mixed_table(80), trials=2, tell=heard.append)
    first = heard[0].params
    ours = PRESETS["table"]["default"]
    assert {"dim", "heads", "epochs", "weight_decay"}.isdisjoint(first) and heard[0].number == 0
    assert (first["lr"], first["number_tokens"]) == (ours.lr, ours.num_embeddings)
    assert first["depth"] == TrainingContext(rows=80, tokens=1, device="any").cardinalities().depth
    assert first["hidden"] == round(8 * 4 / 3)
    assert heard[1].params != first


ROWS: dict[str, Any] = {"eval_set": mixed_table(60, seed=1)}


def begun(kind: type = TableTransformerClassifier, **told: Any) -> Any:
    return small(kind, **({"dim": 8, "n_members": None} | told)).pretrain(mixed_table(120)[0], epochs=1)


def begun_tab(**told: Any) -> Any:
    return small(TabTransformerClassifier, **({"dim": 8} | told)).pretrain(mixed_table(120)[0], epochs=1)


@pytest.mark.parametrize("make", [begun, begun_tab])
def test_a_search_begins_with_what_was_learned_without_labels(make: Any) -> None:
    came, heard = make(), list[TrialResult]()
    best = tune(came, *mixed_table(80), **ROWS, trials=3, tell=heard.append)
    assert best.pretrained_ is came.pretrained_ and not hasattr(came, "model_")
    assert not {"depth", "dim", "hidden", "number_tokens", "scaling"} & {name for one in heard for name in one.params}
    assert all(tried.params["lr"] <= 5e-4 for tried in heard), "it goes on slowly"
    again = make().set_params(**{name: getattr(best, name) for name in heard[0].params}).fit(*mixed_table(80), **ROWS)
    X, _ = mixed_table(80)
    np.testing.assert_array_equal(again.predict_proba(X), best.predict_proba(X))


@pytest.mark.parametrize("make", [begun, begun_tab])
def test_the_first_trial_after_pretrain_is_what_fit_would_do(make: Any) -> None:
    X, y = mixed_table(80)
    best = tune(make(), X, y, **ROWS, trials=1)
    np.testing.assert_array_equal(best.predict_proba(X), make().fit(X, y, **ROWS).predict_proba(X))


def test_a_trial_that_only_forgets_is_worth_what_it_began_with() -> None:
    heard = list[TrialResult]()
    lines = tune(begun(), *mixed_table(80), **ROWS, trials=1, space={"lr": FloatRange(1e-12, 1e-11)}, tell=heard.append)
    tune(begun(), *mixed_table(80), **ROWS, trials=1, space={"lr": FloatRange(0.5, 1.0)}, tell=heard.append)
    assert heard[0].value == heard[1].value == -lowest(lines)


def test_sizes_other_than_those_of_pretrain_are_refused() -> None:
    with pytest.raises(ConfigError, match="depth was 2 in pretrain, and is 1 now"):
        tune(begun(depth=None), *mixed_table(80), **ROWS, trials=4, space={"depth": IntRange(1, 1)})


def test_with_few_labels_after_pretrain_it_is_said_that_nothing_is_held_out() -> None:
    with pytest.raises(ConfigError, match=r"nothing is held out .* \(after pretrain, 1,000 or more\)"):
        tune(begun(epochs=None), *mixed_table(80), trials=1)


def test_a_search_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "trials"
    whole = tried_by(HyperparameterSearch(estimator(), SPACE))
    begun = tried_by(HyperparameterSearch(estimator(), SPACE, path), trials=2)
    search = HyperparameterSearch(estimator(), SPACE, path)
    rest = tried_by(search)
    assert [one.params for one in (*begun, *rest)] == [one.params for one in whole]
    assert [one.value for one in (*begun, *rest)] == [one.value for one in whole]
    assert [one.number for one in search.results()] == [0, 1, 2, 3]
    assert tried_by(HyperparameterSearch(estimator(), SPACE, path)) == []
    again = HyperparameterSearch(estimator(), SPACE, path)
    best = again.best_estimator(*mixed_table(80))
    assert lowest(best) == -max(one.value for one in whole if one.value)


def test_a_trial_that_was_cut_off_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = HyperparameterSearch(estimator(), SPACE, tmp_path / "trials")
    tried_by(search, trials=1)
    with monkeypatch.context() as patch:
        patch.setattr(TableTransformerClassifier, "_fit", lambda *told: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tried_by(search)
    cut = search.study.trials[-1].params
    later = tried_by(HyperparameterSearch(estimator(), SPACE, tmp_path / "trials"), trials=2)
    assert [later[0].params[name] for name in SPACE] == [cut[name] for name in SPACE]


def test_time_ends_a_search_and_goes_on_counting(tmp_path: Path) -> None:
    search = HyperparameterSearch(estimator(epochs=None), SPACE, tmp_path / "trials")
    found = tried_by(search, trials=99, max_minutes=0.02)
    assert 1 <= len(found) < 99 and sum(one.seconds for one in found) < 30
    assert (
        tried_by(HyperparameterSearch(estimator(epochs=None), SPACE, tmp_path / "trials"), trials=99, max_minutes=0.02)
        == []
    )


def test_what_falls_behind_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_FIRST", 1)
    monkeypatch.setattr(module, "GRACE", 4)
    space = {"lr": Categorical((1e-2, 1e-12))}
    quick = Hyperparameters(model="TableTransformer", early_stopping_metric="loss", lr=1e-2)
    search = HyperparameterSearch(estimator(epochs=10, preset=quick, batch_size=16), space)
    search.study.enqueue_trial({"lr": 1e-2})
    search.study.enqueue_trial({"lr": 1e-12})
    X, _ = mixed_table(80)
    found = list(search.run(X, X[:, 0].astype(float) > 0, trials=2))
    broken = [one for one in found if one.state == "broken off"]
    assert broken and all(one.params["lr"] == 1e-12 and one.epochs < 10 and one.value is None for one in broken)
    assert search.params()["lr"] == 1e-2


def test_a_trial_that_fails_is_told_of_and_the_search_goes_on() -> None:
    space = {"lr": Categorical((1e-3, 1e30))}
    search = HyperparameterSearch(estimator(preset="paper", n_members=None), space)
    search.study.enqueue_trial({"lr": 1e30})
    search.study.enqueue_trial({"lr": 1e-3})
    found = tried_by(search, trials=3)
    assert {one.params["lr"]: one.state for one in found} == {1e30: "failed", 1e-3: "complete"}
    assert {(one.state, one.error[:15]) for one in found} == {("failed", "the loss became"), ("complete", "")}


def test_where_nothing_can_be_chosen_it_is_said() -> None:
    with pytest.raises(ConfigError, match="nothing is held out to choose by"):
        tune(estimator(), *mixed_table(30), trials=1)
    with pytest.raises(ConfigError, match="every setting is told already"):
        HyperparameterSearch(estimator(lr=0.1), {"lr": FloatRange(0, 1)})
    with pytest.raises(TrainingError, match="not one trial came to an end"):
        HyperparameterSearch(estimator(), SPACE).params()
    with pytest.raises(ConfigError, match="hidden_factor is a multiple of dim, which is neither told nor in the space"):
        HyperparameterSearch(TableTransformerRegressor(), {FACTOR: FloatRange(1, 2)})
    assert "hidden_factor" in (
        HyperparameterSearch(TableTransformerRegressor(dim=16), {FACTOR: FloatRange(1, 2)}).space or {}
    )


@pytest.mark.parametrize("family", ["ft", "tab"])
@pytest.mark.parametrize("preset", ["ours", "paper"])
def test_every_space_holds_its_recipe_and_gives_models_that_can_be_made(family: Any, preset: str) -> None:
    column_types = {"ft": TableTransformerRegressor, "tab": TabTransformerClassifier}
    X, y = mixed_table(60)
    made = column_types[family](preset=preset, random_state=0, epochs=1)
    own = resolve_hyperparameters(PRESETS[family][preset], TrainingContext(rows=80, tokens=1, device="any"))
    space = restrict_space(SPACES[family][preset], {}, own)
    told = default_params(space, own)
    assert {"depth", "lr", "weight_decay"} <= told.keys()
    known = set(column_types[family]().get_params()) | {FACTOR}
    assert space.keys() <= known
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(30):
        settings = sample_params(space, study.ask(), own)
        assert settings["dim"] % own.heads == 0
    small = {"ft": {"dim": 64, "depth": 1}, "tab": {"dim": 32, "depth": 1}}[family]
    best = tune(made.set_params(**small), X, y.astype(float) if family == "ft" else y, trials=2)
    assert best.hyperparameters_.model == own.model


def test_without_optuna_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "import softlook.tabular\n"
        "try:\n    softlook.tabular.tune\nexcept ImportError as fault:\n    print(fault)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "to search for settings, install optuna: pip install softlook[tune]"


def test_pieces_can_be_searched_over(tmp_path: Path) -> None:
    X, y = mixed_table(80)
    rows = "".join(f"{a},{b},{c},{d}\n" for (a, b, c), d in zip(X, y, strict=True))
    (tmp_path / "a.csv").write_text(f"a,b,c,d\n{rows}")
    best = tune(estimator(), tmp_path / "a.csv", "d", trials=2, space=SPACE)
    assert best.score(tmp_path / "a.csv", "d") == np.mean(best.predict(tmp_path / "a.csv") == y)


def test_a_search_takes_a_trial_at_least() -> None:
    with pytest.raises(ConfigError, match="trials is a whole number from 1 up; 0 came"):
        tune(TableTransformerClassifier(), [[1.0]], [1], trials=0)
