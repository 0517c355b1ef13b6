"""Table runs with an ensemble: that of the estimators, saved beside the checkpoints of the attention model."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from softlook.recipes.config.tabular_schema import TabularConfig, TabularModelConfig
from softlook.recipes.tabular import ensemble as run_ensemble
from softlook.recipes.tabular.data import load_table
from softlook.recipes.tabular.ensemble import LEADERBOARD, RunEnsemble, attention_seconds, no_ensemble_reason
from softlook.recipes.tabular.predict import evaluate_table, load_predictor
from softlook.recipes.tabular.run import TableTrainResult, train_table
from softlook.recipes.tabular.serving import load_table_for_serving
from softlook.tabular import TableTransformerClassifier, load
from softlook.tabular.io.files import read_table
from tests.recipes.small import people, tabular_config


def ensemble_config(folder: Path, epochs: int = 2, **more: Any) -> TabularConfig:
    size = TabularModelConfig(dim=8, depth=1, heads=2, n_members=1)
    return tabular_config(folder, epochs, **{"ensemble": "attention", "model": size, **more})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[TabularConfig, TableTrainResult]:
    """A run with the default ensemble, and test rows."""
    folder = tmp_path_factory.mktemp("ensemble")
    lines = people(folder / "all.csv", 200).read_text().splitlines(keepends=True)
    (folder / "test.csv").write_text("".join(lines[:60]))
    config = ensemble_config(folder, ensemble="auto", test=(folder / "test.csv",))
    assert TabularConfig().ensemble == "auto"
    return config, train_table(config)


def features(config: TabularConfig) -> tuple[pa.Table, list[str]]:
    table = pa.concat_tables(read_table(config.data[0]))
    return table.drop_columns(["id", "buys", "spent"]), table.column("buys").to_pylist()


def test_a_run_fits_the_same_ensemble_as_the_estimator(trained: tuple[TabularConfig, TableTrainResult]) -> None:
    config, result = trained
    X, y = features(config)
    sizes = config.model.model_dump(exclude_none=True)
    expected = TableTransformerClassifier(**sizes, batch_size=32, epochs=2, device="cpu", random_state=0).fit(X, y)
    assert result.estimator is not None
    own, other = result.estimator.leaderboard_, expected.leaderboard_
    assert [{**one, "seconds": 0} for one in own] == [{**one, "seconds": 0} for one in other]
    loaded = load(result.run_dir)
    assert loaded.leaderboard_ == own
    assert np.array_equal(loaded.predict_proba(X), expected.predict_proba(X))


def test_prediction_evaluation_and_serving_use_the_ensemble(trained: tuple[TabularConfig, TableTrainResult]) -> None:
    config, result = trained
    predictor = load_predictor(result.run_dir, device="cpu")
    assert predictor.estimator.ensemble_ is not None and predictor.target == ("buys",)
    test = result.scores["test"]
    assert evaluate_table(result.run_dir, config.test, device="cpu") == pytest.approx({"rows": 59, **test})
    served: Any = load_table_for_serving(result.run_dir, "people", device="cpu").table
    assert served.estimator.ensemble_ is not None


def test_validation_scores_are_those_of_models_that_were_not_trained_on_the_rows(
    trained: tuple[TabularConfig, TableTrainResult],
) -> None:
    config, result = trained
    assert result.estimator is not None and (ensemble := result.estimator.ensemble_) is not None
    assert ensemble.rows is not None and ensemble.predictions is not None and ensemble.targets is not None
    _, y = features(config)
    assert len(ensemble.rows) == 48  # as many as the attention model is validated on
    assert [y[row] for row in ensemble.rows] == [("no", "yes")[code] for code in ensemble.targets]
    accuracy = (ensemble.predictions.argmax(1) == ensemble.targets).double().mean().item()
    assert result.scores["accuracy"] == pytest.approx(accuracy)


def test_the_report_lists_the_models_of_the_ensemble(trained: tuple[TabularConfig, TableTrainResult]) -> None:
    _, result = trained
    names = [one["model"] for one in result.scores[LEADERBOARD]]
    assert {"linear", "trees", "attention", "ensemble"} <= set(names)
    html = (result.run_dir / "report.html").read_text()
    assert "<h2>Ensemble</h2>" in html and "slow trees" in html
    compared = [one["model"] for one in result.scores["compared"]]
    assert compared == ["softlook", "softlook, one attention model"]


def test_an_ensemble_is_fitted_again_only_with_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[RunEnsemble | None] = []
    fit = run_ensemble._fit

    def count(*args: Any) -> RunEnsemble | None:
        fits.append(fit(*args))
        return fits[-1]

    monkeypatch.setattr(run_ensemble, "_fit", count)
    first = train_table(ensemble_config(tmp_path))
    again = train_table(ensemble_config(tmp_path))
    assert len(fits) == 1 and {**again.scores, "compared": ()} == {**first.scores, "compared": ()}
    train_table(ensemble_config(tmp_path, epochs=3))
    assert len(fits) == 2 and load(tmp_path / "run").ensemble_ is not None
    single = train_table(ensemble_config(tmp_path, epochs=3, ensemble="single"))
    assert len(fits) == 2 and load(tmp_path / "run").ensemble_ is None and LEADERBOARD not in single.scores


def test_an_interrupt_of_the_ensemble_keeps_the_attention_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, caplog.at_level("INFO", "softlook"), pytest.raises(KeyboardInterrupt):
        patch.setattr("softlook.tabular.ensemble.estimator.fit_ensemble", interrupt)
        train_table(ensemble_config(tmp_path))
    assert "The attention model is trained and saved. Run the same command again" in caplog.text
    assert load(tmp_path / "run").ensemble_ is None
    resumed = train_table(ensemble_config(tmp_path))
    assert resumed.estimator is not None and resumed.estimator.ensemble_ is not None


def test_the_validation_file_is_that_of_every_model(tmp_path: Path) -> None:
    rows = people(tmp_path / "all.csv", 200).read_text().splitlines(keepends=True)
    (tmp_path / "valid.csv").write_text(rows[0] + "".join(rows[1:41]))
    result = train_table(ensemble_config(tmp_path, valid=(tmp_path / "valid.csv",)))
    assert result.estimator is not None and (ensemble := result.estimator.ensemble_) is not None
    assert ensemble.rows is not None and sorted(ensemble.rows.tolist()) == list(range(240, 280))
    metrics = evaluate_table(result.run_dir, (tmp_path / "valid.csv",), device="cpu")
    assert result.scores["accuracy"] == pytest.approx(metrics["accuracy"])


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"ensemble": "single"}, "--ensemble single"),
        ({"estimator": "ft"}, "--estimator ft"),
        ({"train": {"memory_limit": 1e-6}}, "read from disk"),
        ({"train": {"validation_fraction": 0.0}}, "requires validation rows"),
    ],
)
def test_runs_without_an_ensemble_have_a_reason(more: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = ensemble_config(tmp_path, **more)
    assert reason in (no_ensemble_reason(config, load_table(config)) or "")


def test_a_time_limit_is_divided_between_the_attention_model_and_the_ensemble(tmp_path: Path) -> None:
    config = ensemble_config(tmp_path, epochs=10**6, train={"max_minutes": 0.05, "patience": 10**6})
    assert attention_seconds(config, load_table(config)) == pytest.approx(0.6)
    result = train_table(config)
    assert result.estimator is not None and result.estimator.time_limit == pytest.approx(2.4)
    assert result.finished.reason == "the time limit was reached" and result.finished.seconds < 1.5


def test_a_table_on_disk_has_a_single_model_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "softlook"):
        result = train_table(ensemble_config(tmp_path, train={"memory_limit": 1e-6}))
    assert "no ensemble: the table is read from disk" in caplog.text
    assert result.estimator is not None and result.estimator.ensemble_ is None and LEADERBOARD not in result.scores
