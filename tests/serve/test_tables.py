"""Rows of tables, asked over HTTP: the answers are the estimator's own, whoever else asks."""

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
from softlook.recipes.tabular.json_cells import JsonColumn
from softlook.serve.app import create_app
from softlook.serve.engine.encoder_batcher import TableBatcher
from softlook.serve.engine.request import EngineRequest
from softlook.serve.limits import ServerLimits
from softlook.serve.loaded_model import LoadedTable, TableModel
from softlook.serve.registry import ModelRegistry
from softlook.serve.routes.tables import CHUNK_ROWS
from softlook.tabular.preprocessing.table_encoder import TableEncoder
from softlook.weights import save
from tests.serve.small_tables import FakeTable, estimator, people, read_rows, some, tables
from tests.serve.sockets import serving
from tests.serve.test_command import command
from tests.serve.tiny_models import decoder, loaded_model, words

PAGE = "/v1/tables/predict"


@pytest.fixture(scope="module")
def registry() -> Iterator[ModelRegistry]:
    made = ModelRegistry([*tables(), LoadedTable("fake", FakeTable()), loaded_model("gpt", decoder())])
    yield made
    made.close()


def post(client: Any, model: str = "people", **body: Any) -> Any:
    return client.post(PAGE, json={"model": model, **body})


def predict(client: TestClient, **body: Any) -> dict[str, Any]:
    found = post(client, **body)
    assert found.status_code == 200, found.text
    return found.json()


def refusal(client: TestClient, **body: Any) -> str:
    found = post(client, **body)
    assert found.status_code == 400, found.text
    return found.json()["error"]["message"]


def test_answers_are_the_estimators_own(client: TestClient) -> None:
    X, own = people(), estimator("people")
    found = answer(client, rows=read_rows(X), probabilities=True)
    assert found["object"] == "table.predictions" and found["target"] == ["answer"]
    assert found["predictions"] == own.predict(X).tolist()  # pyright: ignore[reportAttributeAccessIssue]
    assert found["classes"] == ["no", "yes"]
    told = np.array([[row["no"], row["yes"]] for row in found["probabilities"]])
    assert np.allclose(told, own.predict_proba(X), rtol=1e-6)  # pyright: ignore[reportAttributeAccessIssue]
    assert found["explanations"] is None and answer(client, rows=[{}])["probabilities"] is None


def test_columns_say_the_same_as_rows(client: TestClient) -> None:
    rows = read_rows(people())
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert answer(client, columns=columns, probabilities=True) == answer(client, rows=rows, probabilities=True)


def test_a_cell_that_is_not_there_is_missing(client: TestClient) -> None:
    X = people()[:3].assign(work=None, member=None, joined=None)
    rows = read_rows(X)
    bare = [{name: cell for name, cell in row.items() if cell is not None} for row in rows]
    assert bare[0].keys() < rows[0].keys()
    assert answer(client, rows=bare, probabilities=True) == answer(client, rows=rows, probabilities=True)
    nothing = answer(client, rows=[{}], probabilities=True)
    assert nothing == answer(client, rows=[dict.fromkeys(rows[0])], probabilities=True)


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
    ids=["whole", "code", "code as a float", "truth", "nought", "day", "unseen"],
)
def test_equal_cells_get_equal_answers(client: TestClient, one: Any, other: Any) -> None:
    together = answer(client, rows=[one, other, {}], probabilities=True)["probabilities"]
    assert together[0] == together[1] != together[2]
    assert answer(client, rows=[one], probabilities=True)["probabilities"] == together[:1]


def test_numbers_are_predicted_and_of_several_targets_lists(client: TestClient) -> None:
    X = some("age", "work")
    found = answer(client, model="prices", rows=read_rows(X))
    assert found["target"] == ["up", "down"] and found["classes"] == []
    assert np.allclose(found["predictions"], estimator("prices").predict(X), rtol=1e-6)  # pyright: ignore[reportAttributeAccessIssue]
    assert answer(client, model="fake", rows=[{"x": 4}, {"x": 1.5}])["predictions"] == [8.0, 3.0]


def test_classes_keep_their_kind(client: TestClient) -> None:
    found = answer(client, model="truths", rows=[{"work": "own", "age": 3}], probabilities=True)
    assert found["classes"] == [False, True] and found["predictions"][0] in (False, True)
    assert found["probabilities"][0].keys() == {"false", "true"}
    found = answer(client, model="bare", rows=[{"x0": 3}], probabilities=True)
    assert found["classes"] == [0, 1, 2] and found["probabilities"][0].keys() == {"0", "1", "2"}


@pytest.mark.parametrize("name", ["people", "truths"])
def test_explanations_say_where_the_model_looked(client: TestClient, name: str) -> None:
    own = estimator(name)
    X = some(*own.encoder_.names, rows=20)
    found = answer(client, model=name, rows=read_rows(X), explain=True)["explanations"]
    expected = own.explain_rows(X)
    told = np.array([[np.nan if row[name] is None else row[name] for name in own.encoder_.names] for row in found])
    assert np.allclose(told, expected, atol=1e-6, equal_nan=True)
    assert np.isnan(told[:, 0]).all() == (name == "truths")  # numbers, which no TabTransformer looks at


async def asked_at_once(app: Any, bodies: list[dict[str, Any]]) -> list[Any]:
    """Everybody at the same time."""
    inside = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=inside, base_url="http://localhost") as client:
        found = await asyncio.gather(*(client.post(PAGE, json=body) for body in bodies))
    assert {one.status_code for one in found} == {200}
    return [one.json() for one in found]


@pytest.mark.parametrize("name", ["people", "prices", "truths", "bare"])
def test_every_client_gets_the_response_it_gets_alone(registry: ModelRegistry, client: TestClient, name: str) -> None:
    rng, own = random.Random(3), estimator(name)
    frame = some("age").set_axis(["x0"], axis=1) if name == "bare" else some(*own.encoder_.names)
    rows, engine = read_rows(frame), registry.deployments[name].engine
    bodies: list[dict[str, Any]] = [
        {"model": name, "rows": rng.one_hot(rows, k=rng.choice([1, 1, 2, 5, 40, 150]))} for _ in range(40)
    ]
    for body in bodies:
        body |= {"explain": name != "bare" and rng.random() < 0.3, "probabilities": bool(name != "prices")}
    before = engine.stats.steps
    together = asyncio.run(asked_at_once(create_app(registry), bodies))
    assert engine.stats.steps - before < len(bodies), "nothing was answered together"
    for body, found in zip(bodies, together, strict=True):
        assert found == answer(client, **body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"rows": [{}, {"agee": 3}]},
            "row 1: people has no feature 'agee'. Did you mean 'age'? Its features are age, work, zip",
        ),
        ({"columns": {"x": [1], "y": [1]}}, "people has no feature 'x', 'y'. Its features are age"),
        ({"rows": [{"answer": "yes"}]}, "has no feature 'answer'. It is the target: remove it"),
        ({"rows": [{"age": "old"}]}, "row 0: 'age' holds numbers, and the text 'old' came"),
        ({"rows": [{"age": "39"}]}, "the text '39' came. Leave out its quotes"),
        (
            {"rows": [{"age": 1}, {"age": "n/a"}]},
            "row 1: 'age' holds numbers, and the text 'n/a' came. A missing cell is",
        ),
        ({"rows": [{"age": True}]}, "'age' holds numbers, and the truth value true came"),
        ({"rows": [{"work": 7}]}, "'work' holds texts, and the number 7 came. As a text it is \"7\""),
        ({"rows": [{"zip": False}]}, "'zip' holds texts, and the truth value false came"),
        ({"rows": [{"note": 7}]}, "'note' holds texts, and the number 7 came"),
        ({"rows": [{"size": "XL"}]}, "'size' holds 'S', 'M', 'L', and the text 'XL' came"),
        ({"rows": [{"member": "maybe"}]}, "'member' holds true or false, and the text 'maybe' came"),
        ({"rows": [{"joined": 2024}]}, "'joined' holds dates as 2024-02-29T12:30, and the number 2024 came"),
        ({"rows": [{"joined": "2024-02-28"}, {"joined": "soon"}]}, "row 1: 'joined' holds dates as 2024-02-29T12:30"),
        ({"rows": [{"joined": "2024-02-28"}, {"joined": "2024-02-28T00:00Z"}]}, "row 1: 'joined' holds dates"),
        (
            {"rows": [{"age": [1]}]},
            "rows[0].age: expected a string of at most 20,000 characters, a number, true, false",
        ),
        ({"rows": [{"work": "x" * 20_001}]}, "rows[0].work: expected a string of at most 20,000 characters"),
        ({"rows": []}, "rows: expected at least 1 item"),
        ({"rows": [3]}, "rows[0]: expected an object, got 3"),
        ({"rows": [{}] * 10_001}, "rows: expected at most 10,000 items"),
        ({"rows": [{str(n): [] for n in range(2001)}]}, "rows[0]: expected at most 2,000 columns, got 2,001"),
        ({"columns": {str(n): [] for n in range(2001)}}, "columns: expected at most 2,000 columns, got 2,001"),
        ({"columns": {}}, "columns: expected at least 1 item"),
        ({"columns": {"age": [1, 2], "work": ["own"]}}, "columns must be equally long; 'age' has 2 cells, 'work' 1"),
        ({}, 'expected either "rows", a list of {column: cell}, or "columns", {column: list of cells}'),
        ({"rows": [{}], "columns": {"age": [1]}}, "expected either"),
        ({"rows": [{}], "top": 3}, "top: unknown field"),
        (
            {"model": "prices", "rows": [{}], "probabilities": True},
            "prices is a regression model",
        ),
        ({"model": "bare", "rows": [{}], "explain": True}, "bare has no attention over columns"),
        ({"model": "fake", "rows": [{"x": 1}, {}]}, "row 1: the prediction is not finite"),
        ({"model": "gpt", "rows": [{}]}, "gpt does not support tables, only completions. Use /v1/completions"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:40],
)
def test_invalid_table_requests_are_rejected_with_a_message(
    client: TestClient, body: dict[str, Any], message: str
) -> None:
    assert message in refusal(client, **body)


@pytest.mark.parametrize(
    "body", [b'[{"age": NaN}]', b'[{"age": 1e999}]', b'[{"work": "\\ud800"}]', b'[{"\\ud800": 1}]']
)
def test_what_is_no_value_is_refused(client: TestClient, body: bytes) -> None:
    whole = b'{"model": "people", "rows": ' + body + b"}"
    found = client.post(PAGE, content=whole, headers={"content-type": "application/json"})
    assert found.status_code == 400, found.text


@pytest.mark.parametrize("number", [1e308, -1e308, 10**300, 2**63, 5e-324, -0.0])
def test_numbers_far_from_all_that_was_seen_get_an_answer(client: TestClient, number: float) -> None:
    assert answer(client, rows=[{"age": number}])["predictions"][0] in ("yes", "no")


def test_a_column_that_was_empty_in_training_accepts_any_cell() -> None:
    X = people()[["age", "work"]].assign(empty=None)
    empty = JsonColumn(TableEncoder.fit(X).columns[2])
    assert np.isnan(empty.array(["word", 3, True, None])).all()  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_tables_are_listed_with_their_columns_and_classes(client: TestClient) -> None:
    cards = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
    assert cards["people"]["capabilities"] == ["tables"] and cards["people"]["context"] is None
    told = cards["people"]["table"]
    assert told["target"] == ["answer"] and told["classes"] == ["no", "yes"]
    assert {column["name"]: column["type"] for column in told["columns"]} == estimator("people").encoder_.column_types
    assert {*estimator("people").encoder_.column_types.values()} == {
        "number",
        "category",
        "boolean",
        "ordinal",
        "date",
        "text",
    }
    assert cards["gpt"]["table"] is None and cards["gpt"]["context"] == 64
    assert client.get("/v1/models/prices").json()["table"]["classes"] == []


@pytest.mark.parametrize(
    ("page", "body"),
    [
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/translate", {"text": "a"}),
        ("/v1/classify", {"text": "a"}),
    ],
)
def test_text_routes_reject_table_models(client: TestClient, page: str, body: dict[str, Any]) -> None:
    found = client.post(page, json={"model": "people", **body})
    expected = "only tables. Use /v1/tables/predict"
    assert found.status_code == 400 and found.json()["error"]["message"] == expected


def test_rows_are_counted(client: TestClient) -> None:
    def counted() -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(
            float(line.split()[1]) for line in lines if line.startswith('softlook_table_rows_total{model="fake"')
        )

    before = counted()
    answer(client, model="fake", rows=[{"x": 1}] * 3)
    assert counted() - before == 3


def test_each_number_may_be_fine_and_their_product_too_much() -> None:
    registry = ModelRegistry([LoadedTable("fake", FakeTable())], ServerLimits(max_request_tokens=300, max_queue=4))
    client = TestClient(create_app(registry), base_url="http://localhost")
    assert len(answer(client, model="fake", rows=[{"x": 1}] * 300)["predictions"]) == 300
    message = refusal(client, model="fake", rows=[{"x": 1}] * 200, explain=True)
    assert message == ("200 rows of 1 columns, explained, are 400 cells; the maximum is 300. Send fewer rows")
    registry.limits = ServerLimits(max_queue=4)  # which is also what the worker's queue holds
    assert "Send fewer rows" in refusal(client, model="fake", rows=[{"x": 1}] * (4 * CHUNK_ROWS + 1))
    registry.close()


def test_a_full_queue_of_a_table_returns_retry_after() -> None:
    registry = ModelRegistry([LoadedTable("fake", FakeTable(0.3))], ServerLimits(max_queue=1, max_batch_size=1))
    engine = registry.deployments["fake"].engine
    client = TestClient(create_app(registry), base_url="http://localhost")
    table: TableModel = registry.get_table("fake").loaded.table
    (part,) = table.encode({"x": [1.0] * 4}, 4)
    for waiting in (0, 1):
        engine.submit([EngineRequest((), rows=part)], lambda scheduled, output: None)
        end = time.monotonic() + 10
        while engine.num_waiting > waiting:
            assert time.monotonic() < end
            time.sleep(0.005)
    found = post(client, "fake", rows=[{"x": 1}])
    assert found.status_code == 429 and int(found.headers["retry-after"]) >= 1
    registry.close()


def test_a_few_rows_do_not_wait_behind_many() -> None:
    registry = ModelRegistry([LoadedTable("fake", FakeTable(0.02))])
    engine, table = registry.deployments["fake"].engine, registry.get_table("fake").loaded.table
    over: list[int] = []
    many = table.encode({"x": [1.0] * 40 * CHUNK_ROWS}, CHUNK_ROWS)
    engine.submit([EngineRequest((), rows=part) for part in many], lambda scheduled, output: over.append(1))
    began = engine.run(EngineRequest((), rows=table.encode({"x": [2.0]}, CHUNK_ROWS)[0]))
    assert began.finished and len(over) < 10
    registry.close()


def test_a_table_batcher_respects_its_row_limit() -> None:
    table = FakeTable()
    registry = ModelRegistry([LoadedTable("fake", table)], ServerLimits(max_batch_size=16))
    client = TestClient(create_app(registry), base_url="http://localhost")
    found = answer(client, model="fake", rows=[{"x": -number} for number in range(1000)])
    assert found["predictions"] == [-2.0 * number for number in range(1000)]
    assert max(table.cardinalities) <= CHUNK_ROWS and isinstance(
        registry.deployments["fake"].engine.scheduler, TableBatcher
    )
    registry.close()


def test_a_failing_table_model_returns_an_error_and_keeps_serving() -> None:
    registry = ModelRegistry([LoadedTable("fake", FakeTable())])
    client = TestClient(create_app(registry), base_url="http://localhost", raise_server_exceptions=False)
    assert post(client, "fake", rows=[{"x": 13}]).status_code == 500
    assert answer(client, model="fake", rows=[{"x": 1}])["predictions"] == [2.0]
    assert registry.deployments["fake"].engine.stats.errors == 1
    registry.close()


def test_a_model_is_copied_to_double_precision_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table, copies = tables()[0].table, []
    monkeypatch.setattr(copy, "deepcopy", lambda one: copies.append(one))
    parts = table.encode({name: [None] * 40 for name in table.columns}, 40)
    assert torch.equal(table.predict(parts), table.predict(parts)) and not copies


def test_a_client_that_leaves_stops_costing_within_a_second() -> None:
    registry = ModelRegistry([LoadedTable("fake", FakeTable(0.1))])
    engine = registry.deployments["fake"].engine
    content = json.dumps({"model": "fake", "rows": [{"x": 1}] * 60 * CHUNK_ROWS}).encode()
    head = f"POST {PAGE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    with serving(registry) as address:
        client = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
        end = time.monotonic() + 20
        while not 0 < engine.num_waiting < 60:
            assert time.monotonic() < end
            time.sleep(0.01)
        client.close()
        began = time.monotonic()
        while engine.num_running or engine.num_waiting:
            assert time.monotonic() - began < 1.0, "it still costs"
            time.sleep(0.01)
        assert engine.stats.cancelled > 40


def test_what_an_estimators_save_wrote_is_served(tmp_path: Path) -> None:
    found = _load(estimator("people").save(tmp_path / "mine"), "mine", "cpu")
    assert isinstance(found, LoadedTable) and found.name == "mine" and isinstance(found.table, TableModel)
    assert found.table.target == ("prediction",) and list(found.table.columns) == list(people())


def test_a_run_that_has_just_begun_is_said(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"task": "table", "values": {}}))
    with pytest.raises(ConfigError, match="has no checkpoint yet. Train on"):
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
        assert any("people: TableTransformer, for tables: prediction" in line for line in lines)
        address = lines[-1].split("Listening on ")[1].split()[0]
        X = people()
        found = httpx.post(f"{address}{PAGE}", json={"model": "people", "rows": read_rows(X)}, timeout=30).json()
        assert found["predictions"] == estimator("people").predict(X).tolist()  # pyright: ignore[reportAttributeAccessIssue]
        other = httpx.post(f"{address}/v1/completions", json={"model": "poems", "prompt": "sea"}, timeout=30)
        assert other.status_code == 200
    finally:
        server.kill()
        server.communicate()
