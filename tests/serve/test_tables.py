"""Table predictions over HTTP equal those of the estimator, whatever other requests are in the batch."""

import asyncio
import copy
import json
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from softlook.base.errors import ConfigError
from softlook.cli.commands.serve import _load
from softlook.recipes.tabular.serving import JsonColumn
from softlook.serve.app import create_app
from softlook.serve.engine.request import EngineRequest, ServerLimits
from softlook.serve.engine.static_batcher import TableBatcher
from softlook.serve.loaded_model import LoadedTable, TableModel
from softlook.serve.registry import ModelRegistry
from softlook.serve.routes.tables import CHUNK_ROWS
from softlook.tabular.preprocessing.table_encoder import TableEncoder
from softlook.weights import save
from tests.serve.small_tables import FakeTable, estimator, people, read_rows, some, tables
from tests.serve.sockets import serving
from tests.serve.test_command import command
from tests.serve.tiny_models import decoder, loaded_model, words

ROUTE = "/v1/tables/predict"


@pytest.fixture(scope="module")
def registry() -> Iterator[ModelRegistry]:
    registry = ModelRegistry([*tables(), LoadedTable("fake", FakeTable()), loaded_model("gpt", decoder())])
    yield registry
    registry.close()


def post(client: Any, model: str = "people", **body: Any) -> Any:
    return client.post(ROUTE, json={"model": model, **body})


def predict(client: TestClient, **body: Any) -> dict[str, Any]:
    response = post(client, **body)
    assert response.status_code == 200, response.text
    return response.json()


def error_message(client: TestClient, **body: Any) -> str:
    response = post(client, **body)
    assert response.status_code == 400, response.text
    return response.json()["error"]["message"]


def test_predictions_equal_those_of_the_estimator(client: TestClient) -> None:
    X, fitted = people(), estimator("people")
    result = predict(client, rows=read_rows(X), probabilities=True)
    assert result["object"] == "table.predictions" and result["target"] == ["answer"]
    assert result["predictions"] == fitted.predict(X).tolist()  # pyright: ignore[reportAttributeAccessIssue]
    assert result["classes"] == ["no", "yes"]
    probabilities = np.array([[row["no"], row["yes"]] for row in result["probabilities"]])
    assert np.allclose(probabilities, fitted.predict_proba(X), rtol=1e-6)  # pyright: ignore[reportAttributeAccessIssue]
    assert result["explanations"] is None and predict(client, rows=[{}])["probabilities"] is None


def test_columns_and_rows_give_the_same_response(client: TestClient) -> None:
    rows = read_rows(people())
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert predict(client, columns=columns, probabilities=True) == predict(client, rows=rows, probabilities=True)


def test_an_absent_cell_is_a_missing_one(client: TestClient) -> None:
    X = people()[:3].assign(work=None, member=None, joined=None)
    rows = read_rows(X)
    sparse = [{name: cell for name, cell in row.items() if cell is not None} for row in rows]
    assert sparse[0].keys() < rows[0].keys()
    assert predict(client, rows=sparse, probabilities=True) == predict(client, rows=rows, probabilities=True)
    empty = predict(client, rows=[{}], probabilities=True)
    assert empty == predict(client, rows=[dict.fromkeys(rows[0])], probabilities=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"age": 40}, {"age": 40.0}),
        ({"zip": 1010}, {"zip": "1010"}),
        ({"zip": 1010.0}, {"zip": "1010"}),
        ({"member": True}, {"member": "true"}),
        ({"member": 0}, {"member": False}),
        ({"joined": "2024-02-29"}, {"joined": "2024-02-29T00:00:00"}),
        ({"work": "never seen"}, {"work": "nor this"}),
    ],
    ids=["integer", "code", "code as a float", "boolean", "zero", "date", "unseen"],
)
def test_equal_cells_in_different_spellings_get_equal_predictions(client: TestClient, one: Any, other: Any) -> None:
    together = predict(client, rows=[one, other, {}], probabilities=True)["probabilities"]
    assert together[0] == together[1] != together[2]
    assert predict(client, rows=[one], probabilities=True)["probabilities"] == together[:1]


def test_regression_predicts_numbers_and_lists_for_several_targets(client: TestClient) -> None:
    X = some("age", "work")
    result = predict(client, model="prices", rows=read_rows(X))
    assert result["target"] == ["up", "down"] and result["classes"] == []
    assert np.allclose(result["predictions"], estimator("prices").predict(X), rtol=1e-6)  # pyright: ignore[reportAttributeAccessIssue]
    assert predict(client, model="fake", rows=[{"x": 4}, {"x": 1.5}])["predictions"] == [8.0, 3.0]


def test_classes_keep_their_type(client: TestClient) -> None:
    result = predict(client, model="booleans", rows=[{"work": "own", "age": 3}], probabilities=True)
    assert result["classes"] == [False, True] and result["predictions"][0] in (False, True)
    assert result["probabilities"][0].keys() == {"false", "true"}
    result = predict(client, model="unnamed", rows=[{"x0": 3}], probabilities=True)
    assert result["classes"] == [0, 1, 2] and result["probabilities"][0].keys() == {"0", "1", "2"}


@pytest.mark.parametrize("name", ["people", "booleans"])
def test_explanations_are_the_attention_to_each_column(client: TestClient, name: str) -> None:
    fitted = estimator(name)
    X = some(*fitted.encoder_.names, rows=20)
    result = predict(client, model=name, rows=read_rows(X), explain=True)["explanations"]
    expected = fitted.explain_rows(X)
    actual = np.array(
        [[np.nan if row[name] is None else row[name] for name in fitted.encoder_.names] for row in result]
    )
    assert np.allclose(actual, expected, atol=1e-6, equal_nan=True)
    assert np.isnan(actual[:, 0]).all() == (name == "booleans")  # a TabTransformer has no attention to numbers


async def post_concurrently(app: Any, bodies: list[dict[str, Any]]) -> list[Any]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        responses = await asyncio.gather(*(client.post(ROUTE, json=body) for body in bodies))
    assert {response.status_code for response in responses} == {200}
    return [response.json() for response in responses]


@pytest.mark.parametrize("name", ["people", "prices", "booleans", "unnamed"])
def test_every_client_gets_the_response_it_gets_alone(registry: ModelRegistry, client: TestClient, name: str) -> None:
    rng, fitted = random.Random(3), estimator(name)
    frame = some("age").set_axis(["x0"], axis=1) if name == "unnamed" else some(*fitted.encoder_.names)
    rows, engine = read_rows(frame), registry.deployments[name].engine
    bodies: list[dict[str, Any]] = [
        {"model": name, "rows": rng.choices(rows, k=rng.choice([1, 1, 2, 5, 40, 150]))} for _ in range(40)
    ]
    for body in bodies:
        body |= {"explain": name != "unnamed" and rng.random() < 0.3, "probabilities": bool(name != "prices")}
    before = engine.stats.steps
    together = asyncio.run(post_concurrently(create_app(registry), bodies))
    assert engine.stats.steps - before < len(bodies), "no requests were batched"
    for body, result in zip(bodies, together, strict=True):
        assert result == predict(client, **body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"rows": [{}, {"agee": 3}]},
            "row 1: people has no feature 'agee'. Did you mean 'age'? Its features are age, work, zip",
        ),
        ({"columns": {"x": [1], "y": [1]}}, "people has no feature 'x', 'y'. Its features are age"),
        ({"rows": [{"answer": "yes"}]}, "has no feature 'answer'. It is the target: remove it"),
        ({"rows": [{"age": "old"}]}, "row 0: 'age': expected numbers, got the string 'old'"),
        ({"rows": [{"age": "39"}]}, "got the string '39'. Remove the quotes"),
        (
            {"rows": [{"age": 1}, {"age": "n/a"}]},
            "row 1: 'age': expected numbers, got the string 'n/a'. A missing cell is null",
        ),
        ({"rows": [{"age": True}]}, "'age': expected numbers, got the boolean true"),
        ({"rows": [{"work": 7}]}, "'work': expected strings, got the number 7. As a string it is \"7\""),
        ({"rows": [{"zip": False}]}, "'zip': expected strings, got the boolean false"),
        ({"rows": [{"note": 7}]}, "'note': expected strings, got the number 7"),
        ({"rows": [{"size": "XL"}]}, "'size': expected 'S', 'M', 'L', got the string 'XL'"),
        ({"rows": [{"member": "maybe"}]}, "'member': expected true or false, got the string 'maybe'"),
        ({"rows": [{"joined": 2024}]}, "'joined': expected dates as 2024-02-29T12:30, got the number 2024"),
        (
            {"rows": [{"joined": "2024-02-28"}, {"joined": "soon"}]},
            "row 1: 'joined': expected dates as 2024-02-29T12:30",
        ),
        ({"rows": [{"joined": "2024-02-28"}, {"joined": "2024-02-28T00:00Z"}]}, "row 1: 'joined': expected dates"),
        (
            {"rows": [{"age": [1]}]},
            "rows[0].age: expected a string of at most 20,000 characters, a number, true, false",
        ),
        ({"rows": [{"work": "x" * 20_001}]}, "rows[0].work: expected a string of at most 20,000 characters"),
        ({"rows": []}, "rows: expected at least one entry"),
        ({"rows": [3]}, "rows[0]: expected an object, got 3"),
        ({"rows": [{}] * 10_001}, "rows: expected at most 10,000 entries"),
        ({"rows": [{str(n): [] for n in range(2001)}]}, "rows[0]: expected at most 2,000 columns, got 2,001"),
        ({"columns": {str(n): [] for n in range(2001)}}, "columns: expected at most 2,000 columns, got 2,001"),
        ({"columns": {}}, "columns: expected at least one entry"),
        ({"columns": {"age": [1, 2], "work": ["own"]}}, "columns must be equally long; 'age' has 2 cells, 'work' 1"),
        ({}, 'expected either "rows", a list of {column: cell}, or "columns", {column: list of cells}'),
        ({"rows": [{}], "columns": {"age": [1]}}, "expected either"),
        ({"rows": [{}], "top": 3}, "top: unknown field"),
        ({"model": "prices", "rows": [{}], "probabilities": True}, "prices is a regression model"),
        ({"model": "unnamed", "rows": [{}], "explain": True}, "unnamed has no attention over columns"),
        ({"model": "fake", "rows": [{"x": 1}, {}]}, "row 1: the prediction is not finite"),
        ({"model": "gpt", "rows": [{}]}, "gpt does not support tables, only completions. Use /v1/completions"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:40],
)
def test_invalid_table_requests_are_rejected_with_a_message(
    client: TestClient, body: dict[str, Any], message: str
) -> None:
    assert message in error_message(client, **body)


@pytest.mark.parametrize(
    "body", [b'[{"age": NaN}]', b'[{"age": 1e999}]', b'[{"work": "\\ud800"}]', b'[{"\\ud800": 1}]']
)
def test_cells_that_are_not_valid_json_values_are_rejected(client: TestClient, body: bytes) -> None:
    content = b'{"model": "people", "rows": ' + body + b"}"
    response = client.post(ROUTE, content=content, headers={"content-type": "application/json"})
    assert response.status_code == 400, response.text


@pytest.mark.parametrize("number", [1e308, -1e308, 10**300, 2**63, 5e-324, -0.0])
def test_numbers_far_outside_the_training_range_get_a_prediction(client: TestClient, number: float) -> None:
    assert predict(client, rows=[{"age": number}])["predictions"][0] in ("yes", "no")


def test_a_column_that_was_empty_in_training_accepts_any_cell() -> None:
    X = people()[["age", "work"]].assign(empty=None)
    empty = JsonColumn(TableEncoder.fit(X).columns[2])
    assert np.isnan(empty.to_array(["word", 3, True, None])).all()  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_tables_are_listed_with_their_columns_and_classes(client: TestClient) -> None:
    cards = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
    assert cards["people"]["capabilities"] == ["tables"] and cards["people"]["context"] is None
    table, types = cards["people"]["table"], estimator("people").encoder_.column_types
    assert table["target"] == ["answer"] and table["classes"] == ["no", "yes"]
    assert {column["name"]: column["type"] for column in table["columns"]} == types
    assert set(types.values()) == {"number", "category", "boolean", "ordinal", "date", "text"}
    assert cards["gpt"]["table"] is None and cards["gpt"]["context"] == 64
    assert client.get("/v1/models/prices").json()["table"]["classes"] == []


@pytest.mark.parametrize(
    ("route", "body", "capability"),
    [
        ("/v1/completions", {"prompt": "a"}, "completions"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, "chat"),
        ("/v1/embeddings", {"input": "a"}, "embeddings"),
        ("/v1/translate", {"text": "a"}, "translate"),
        ("/v1/classify", {"text": "a"}, "classify"),
    ],
)
def test_text_routes_reject_table_models(client: TestClient, route: str, body: dict[str, Any], capability: str) -> None:
    response = client.post(route, json={"model": "people", **body})
    expected = f"people does not support {capability}, only tables. Use /v1/tables/predict"
    assert response.status_code == 400 and response.json()["error"]["message"] == expected


def test_the_metrics_count_rows(client: TestClient) -> None:
    def row_count() -> float:
        lines = client.get("/metrics").text.splitlines()
        name = 'softlook_table_rows_total{model="fake"'
        return sum(float(line.split()[1]) for line in lines if line.startswith(name))

    before = row_count()
    predict(client, model="fake", rows=[{"x": 1}] * 3)
    assert row_count() - before == 3


def test_the_cells_of_a_request_are_limited() -> None:
    registry = ModelRegistry([LoadedTable("fake", FakeTable())], ServerLimits(max_request_tokens=300, max_queue=4))
    client = TestClient(create_app(registry), base_url="http://localhost")
    assert len(predict(client, model="fake", rows=[{"x": 1}] * 300)["predictions"]) == 300
    message = error_message(client, model="fake", rows=[{"x": 1}] * 200, explain=True)
    assert message == ("200 rows of 1 columns, explained, are 400 cells; the maximum is 300. Send fewer rows")
    registry.limits = ServerLimits(max_queue=4)  # also limits the chunks of a request
    assert "Send fewer rows" in error_message(client, model="fake", rows=[{"x": 1}] * (4 * CHUNK_ROWS + 1))
    registry.close()


def test_a_full_queue_of_a_table_returns_retry_after() -> None:
    registry = ModelRegistry([LoadedTable("fake", FakeTable(0.3))], ServerLimits(max_queue=1, max_batch_size=1))
    engine = registry.deployments["fake"].engine
    client = TestClient(create_app(registry), base_url="http://localhost")
    table: TableModel = registry.get_table("fake").loaded.table
    (chunk,) = table.encode({"x": [1.0] * 4}, 4)
    for waiting in (0, 1):
        engine.submit([EngineRequest((), rows=chunk)], lambda scheduled, output: None)
        deadline = time.monotonic() + 10
        while engine.num_waiting > waiting:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    response = post(client, "fake", rows=[{"x": 1}])
    assert response.status_code == 429 and int(response.headers["retry-after"]) >= 1
    registry.close()


def test_a_small_request_does_not_wait_for_a_large_one() -> None:
    registry = ModelRegistry([LoadedTable("fake", FakeTable(0.02))])
    engine, table = registry.deployments["fake"].engine, registry.get_table("fake").loaded.table
    finished: list[int] = []
    many = table.encode({"x": [1.0] * 40 * CHUNK_ROWS}, CHUNK_ROWS)
    engine.submit([EngineRequest((), rows=chunk) for chunk in many], lambda scheduled, output: finished.append(1))
    output = engine.run(EngineRequest((), rows=table.encode({"x": [2.0]}, CHUNK_ROWS)[0]))
    assert output.finished and len(finished) < 10
    registry.close()


def test_a_table_batcher_respects_its_row_limit() -> None:
    table = FakeTable()
    registry = ModelRegistry([LoadedTable("fake", table)], ServerLimits(max_batch_size=16))
    client = TestClient(create_app(registry), base_url="http://localhost")
    result = predict(client, model="fake", rows=[{"x": -number} for number in range(1000)])
    assert result["predictions"] == [-2.0 * number for number in range(1000)]
    assert isinstance(registry.deployments["fake"].engine.scheduler, TableBatcher)
    assert max(table.batch_sizes) <= CHUNK_ROWS
    registry.close()


def test_a_failing_table_model_returns_an_error_and_keeps_serving() -> None:
    registry = ModelRegistry([LoadedTable("fake", FakeTable())])
    client = TestClient(create_app(registry), base_url="http://localhost", raise_server_exceptions=False)
    assert post(client, "fake", rows=[{"x": 13}]).status_code == 500
    assert predict(client, model="fake", rows=[{"x": 1}])["predictions"] == [2.0]
    assert registry.deployments["fake"].engine.stats.errors == 1
    registry.close()


def test_a_model_is_copied_to_double_precision_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table, copies = tables()[0].table, []
    monkeypatch.setattr(copy, "deepcopy", lambda one: copies.append(one))
    chunks = table.encode({name: [None] * 40 for name in table.columns}, 40)
    assert torch.equal(table.predict(chunks), table.predict(chunks)) and not copies


def test_the_chunks_of_a_disconnected_client_are_cancelled_within_a_second() -> None:
    registry = ModelRegistry([LoadedTable("fake", FakeTable(0.1))])
    engine = registry.deployments["fake"].engine
    content = json.dumps({"model": "fake", "rows": [{"x": 1}] * 60 * CHUNK_ROWS}).encode()
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    with serving(registry) as address:
        client = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
        deadline = time.monotonic() + 20
        while not 0 < engine.num_waiting < 60:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        client.close()
        closed = time.monotonic()
        while engine.num_running or engine.num_waiting:
            assert time.monotonic() - closed < 1.0, "the request still runs"
            time.sleep(0.01)
        assert engine.stats.cancelled > 40


def test_a_saved_estimator_is_served(tmp_path: Path) -> None:
    loaded = _load(estimator("people").save(tmp_path / "mine"), "mine", "cpu")
    assert isinstance(loaded, LoadedTable) and loaded.name == "mine" and isinstance(loaded.table, TableModel)
    assert loaded.table.target == ("prediction",) and list(loaded.table.columns) == list(people())


def test_a_run_without_a_checkpoint_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"task": "table", "values": {}}))
    with pytest.raises(ConfigError, match="has no checkpoint yet. Run its command again"):
        _load(tmp_path, "new", "cpu")


@pytest.mark.slow
def test_the_command_serves_a_table_and_a_text_model(tmp_path: Path) -> None:
    words().tokenizer.save(str(tmp_path / "words.json"))
    text = save(decoder(), tmp_path / "poems", tokenizer=tmp_path / "words.json")
    table = estimator("people").save(tmp_path / "mine")
    server = command(str(text), f"people={table}", "--port", "0")
    assert server.stderr is not None
    try:
        lines = [server.stderr.readline()]
        while "Listening on " not in lines[-1]:
            assert lines[-1], "".join(lines)
            lines.append(server.stderr.readline())
        assert any("people: TableTransformer, predicts prediction" in line for line in lines)
        address = lines[-1].split("Listening on ")[1].split()[0]
        X = people()
        result = httpx.post(f"{address}{ROUTE}", json={"model": "people", "rows": read_rows(X)}, timeout=30).json()
        assert result["predictions"] == estimator("people").predict(X).tolist()  # pyright: ignore[reportAttributeAccessIssue]
        completion = httpx.post(f"{address}/v1/completions", json={"model": "poems", "prompt": "sea"}, timeout=30)
        assert completion.status_code == 200
    finally:
        server.kill()
        server.communicate()
