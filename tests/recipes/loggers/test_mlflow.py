"""The MLflow logger."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from softlook.recipes.loggers.backends import MLflowLogger, RunInfo
from tests.recipes.loggers.fake_run import CHANGED, CRASHED, RESUMED, log_run


class Client:
    """A fake MLflow client."""

    instances: list["Client"] = []
    params: dict[str, str] = {}

    def __init__(self, tracking_uri: str) -> None:
        self.uri, self.calls = tracking_uri, list[tuple[Any, ...]]()
        Client.instances.append(self)

    def get_experiment_by_name(self, name: str) -> None:
        self.calls.append(("experiment", name))

    def create_experiment(self, name: str, artifact_location: str | None) -> str:
        self.calls.append(("create_experiment", name, artifact_location))
        return "7"

    def create_run(self, experiment: str, run_name: str) -> Any:
        self.calls.append(("create_run", experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="abc"))

    def get_run(self, id: str) -> Any:
        return SimpleNamespace(data=SimpleNamespace(params=Client.params))

    def update_run(self, id: str, status: str) -> None:
        self.calls.append(("update_run", id, status))

    def log_batch(self, id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        Client.params = {**Client.params, **dict(params)}
        self.calls += [("metric", id, *metric[:2], metric[3]) for metric in metrics]
        self.calls += [("param", *param) for param in params] + [("tag", *tag) for tag in tags]

    def log_text(self, id: str, text: str, file: str) -> None:
        self.calls.append(("text", text, file))

    def set_terminated(self, id: str, status: str) -> None:
        self.calls.append(("terminated", id, status))


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    modules: dict[str, dict[str, Any]] = {
        "mlflow": {},
        "mlflow.entities": {name: lambda *values: values for name in ("Param", "RunTag", "Metric")},
        "mlflow.tracking": {"MlflowClient": Client},
    }
    for name, values in modules.items():
        module = ModuleType(name)
        module.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Client, "instances", [])
    monkeypatch.setattr(Client, "params", {})
    return Client.instances


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def test_a_resumed_run_is_one_run(clients: list[Client], tmp_path: Path) -> None:
    folder = tmp_path / "lm-words"
    folder.mkdir()
    log_run("mlflow", folder, CRASHED)
    log_run("mlflow", folder, RESUMED, CHANGED)
    first, second = clients
    assert first.uri == f"sqlite:///{(folder / 'mlflow' / 'mlflow.db').as_posix()}"
    assert ("create_experiment", "softlook", (folder / "mlflow" / "artifacts").as_uri()) in first.calls
    assert ("create_run", "7", "lm-words") in first.calls
    assert not [call for call in second.calls if call[0].startswith("create")]
    assert [call for call in first.calls + second.calls if call[2:3] == ("train/loss",)] == [
        ("metric", "abc", "train/loss", 10.0 - step, step) for step in (1, 2, 3, 4)
    ]
    assert ("param", "training.max_steps", "4") in first.calls
    assert ("tag", "training.max_steps", "5") in second.calls
    assert ("text", "prediction: words 4\nlabel: w\n", "samples/00000004.txt") in second.calls
    assert ("metric", "abc", "final/test.bleu", 40.0, 4) in second.calls
    assert (first.calls[-1][2], second.calls[-1][2]) == ("KILLED", "FINISHED")


def test_the_environment_sets_the_tracking_uri_and_experiment(
    clients: list[Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    MLflowLogger(RunInfo(tmp_path, {"data": "x" * 9000}))
    assert clients[0].uri == "http://localhost:5000"
    assert ("create_experiment", "mine", None) in clients[0].calls
    assert ("param", "data", "x" * 500) in clients[0].calls
    assert not (tmp_path / "mlflow").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_itself_shows_each_step_once(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow.tracking import MlflowClient  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    log_run("mlflow", tmp_path, CRASHED)
    log_run("mlflow", tmp_path, RESUMED, CHANGED)
    client = MlflowClient(tracking_uri=f"sqlite:///{(tmp_path / 'mlflow' / 'mlflow.db').as_posix()}")
    experiment = client.get_experiment_by_name("softlook")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == (tmp_path.name, "FINISHED")
    assert run.data.params == {"optim.lr": "0.001", "training.max_steps": "4"}
    assert run.data.tags["training.max_steps"] == "5"
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert sorted((one.step, one.value) for one in losses) == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0)]
    assert [one.step for one in client.get_metric_history(run.info.run_id, "validation/loss")] == [2, 4]
    assert run.data.metrics["final/test.bleu"] == 40.0
    files = [file.path for file in client.list_artifacts(run.info.run_id, "samples")]
    assert files == ["samples/00000002.txt", "samples/00000004.txt"]
    (sample_file,) = (tmp_path / "mlflow").rglob("00000004.txt")
    assert sample_file.read_text(encoding="utf-8") == "prediction: words 4\nlabel: w\n"
