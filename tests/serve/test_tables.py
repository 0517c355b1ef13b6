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
from softlook.cli.serving import _loaded
from softlook.recipes.tables_cells import Taking
from softlook.serve.app import make_app
from softlook.serve.asking import Ask
from softlook.serve.hall import Hall
from softlook.serve.limits import Limits
from softlook.serve.predicting import PART
from softlook.serve.tables import ServedTable, Table, TableDesk
from softlook.tabular.encoding.columns import Columns
from softlook.weights import save
from tests.serve.halls import served, speaker, words
from tests.serve.small_tables import Pretended, estimator, people, rows_of, some, tables
from tests.serve.sockets import listening
from tests.serve.test_command import command

PAGE = "/v1/tables/predict"


@pytest.fixture(scope="module")
def hall() -> Iterator[Hall]:
    made = Hall([*tables(), ServedTable("pretended", Pretended()), served("gpt", speaker())])
    yield made
    made.close()


def post(client: Any, model: str = "people", **body: Any) -> Any:
    return client.post(PAGE, json={"model": model, **body})


def answer(client: TestClient, **body: Any) -> dict[str, Any]:
    found = post(client, **body)
    assert found.status_code == 200, found.text
    return found.json()


def refusal(client: TestClient, **body: Any) -> str:
    found = post(client, **body)
    assert found.status_code == 400, found.text
    return found.json()["error"]["message"]


def test_answers_are_the_estimators_own(client: TestClient) -> None:
    X, own = people(), estimator("people")
    found = answer(client, rows=rows_of(X), probabilities=True)
    assert found["object"] == "table.predictions" and found["target"] == ["answer"]
    assert found["predictions"] == own.predict(X).tolist()  # pyright: ignore[reportAttributeAccessIssue]
    assert found["classes"] == ["no", "yes"]
    told = np.array([[row["no"], row["yes"]] for row in found["probabilities"]])
    assert np.allclose(told, own.predict_proba(X), rtol=1e-6)  # pyright: ignore[reportAttributeAccessIssue]
    assert found["explanations"] is None and answer(client, rows=[{}])["probabilities"] is None


def test_columns_say_the_same_as_rows(client: TestClient) -> None:
    rows = rows_of(people())
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert answer(client, columns=columns, probabilities=True) == answer(client, rows=rows, probabilities=True)


def test_a_cell_that_is_not_there_is_missing(client: TestClient) -> None:
    X = people()[:3].assign(work=None, member=None, joined=None)
    rows = rows_of(X)
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
    found = answer(client, model="prices", rows=rows_of(X))
    assert found["target"] == ["up", "down"] and found["classes"] == []
    assert np.allclose(found["predictions"], estimator("prices").predict(X), rtol=1e-6)  # pyright: ignore[reportAttributeAccessIssue]
    assert answer(client, model="pretended", rows=[{"x": 4}, {"x": 1.5}])["predictions"] == [8.0, 3.0]


def test_classes_keep_their_kind(client: TestClient) -> None:
    found = answer(client, model="truths", rows=[{"work": "own", "age": 3}], probabilities=True)
    assert found["classes"] == [False, True] and found["predictions"][0] in (False, True)
    assert found["probabilities"][0].keys() == {"false", "true"}
    found = answer(client, model="bare", rows=[{"x0": 3}], probabilities=True)
    assert found["classes"] == [0, 1, 2] and found["probabilities"][0].keys() == {"0", "1", "2"}


@pytest.mark.parametrize("name", ["people", "truths"])
def test_explanations_say_where_the_model_looked(client: TestClient, name: str) -> None:
    own = estimator(name)
    X = some(*own.columns_.names, rows=20)
    found = answer(client, model=name, rows=rows_of(X), explain=True)["explanations"]
    wanted = own.explain_rows(X)
    told = np.array([[np.nan if row[name] is None else row[name] for name in own.columns_.names] for row in found])
    assert np.allclose(told, wanted, atol=1e-6, equal_nan=True)
    assert np.isnan(told[:, 0]).all() == (name == "truths")  # numbers, which no TabTransformer looks at


async def asked_at_once(app: Any, bodies: list[dict[str, Any]]) -> list[Any]:
    """Everybody at the same time."""
    inside = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=inside, base_url="http://localhost") as client:
        found = await asyncio.gather(*(client.post(PAGE, json=body) for body in bodies))
    assert {one.status_code for one in found} == {200}
    return [one.json() for one in found]


@pytest.mark.parametrize("name", ["people", "prices", "truths", "bare"])
def test_everybody_gets_the_answer_that_is_obtained_alone(hall: Hall, client: TestClient, name: str) -> None:
    dice, own = random.Random(3), estimator(name)
    frame = some("age").set_axis(["x0"], axis=1) if name == "bare" else some(*own.columns_.names)
    rows, engine = rows_of(frame), hall.seats[name].engine
    bodies: list[dict[str, Any]] = [
        {"model": name, "rows": dice.choices(rows, k=dice.choice([1, 1, 2, 5, 40, 150]))} for _ in range(40)
    ]
    for body in bodies:
        body |= {"explain": name != "bare" and dice.random() < 0.3, "probabilities": bool(name != "prices")}
    before = engine.counts.turns
    together = asyncio.run(asked_at_once(make_app(hall), bodies))
    assert engine.counts.turns - before < len(bodies), "nothing was answered together"
    for body, found in zip(bodies, together, strict=True):
        assert found == answer(client, **body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"rows": [{}, {"agee": 3}]},
            "row 1: people does not read 'agee'. Did you mean 'age'? It reads age, work, zip",
        ),
        ({"columns": {"x": [1], "y": [1]}}, "people does not read 'x', 'y'. It reads age"),
        ({"rows": [{"answer": "yes"}]}, "does not read 'answer'. It is what is predicted: leave it out"),
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
        ({"columns": {"age": [1, 2], "work": ["own"]}}, "columns are of one length; 'age' has 2 cells, 'work' 1"),
        ({}, 'give "rows", a list of {column: cell}, or "columns", {column: list of cells}: one of the two'),
        ({"rows": [{}], "columns": {"age": [1]}}, "one of the two"),
        ({"rows": [{}], "top": 3}, "top: unknown field"),
        ({"model": "prices", "rows": [{}], "probabilities": True}, "prices predicts numbers, which have no probabil"),
        ({"model": "bare", "rows": [{}], "explain": True}, "bare looks at no columns, so it cannot say at which"),
        ({"model": "pretended", "rows": [{"x": 1}, {}]}, "row 1: what the model says is no number"),
        ({"model": "gpt", "rows": [{}]}, "gpt does not answer here: it is for completions. Ask it on /v1/completions"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:40],
)
def test_what_does_not_fit_is_said(client: TestClient, body: dict[str, Any], message: str) -> None:
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


def test_a_column_that_was_empty_while_learning_takes_anything() -> None:
    X = people()[["age", "work"]].assign(empty=None)
    empty = Taking(Columns.fit(X).learned[2])
    assert np.isnan(empty.array(["word", 3, True, None])).all()  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_tables_are_listed_with_their_columns_and_classes(client: TestClient) -> None:
    cards = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
    assert cards["people"]["abilities"] == ["tables"] and cards["people"]["context"] is None
    told = cards["people"]["table"]
    assert told["target"] == ["answer"] and told["classes"] == ["no", "yes"]
    assert {column["name"]: column["kind"] for column in told["columns"]} == estimator("people").columns_.kinds
    assert {*estimator("people").columns_.kinds.values()} == {
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
def test_texts_asked_of_a_table_are_sent_to_its_page(client: TestClient, page: str, body: dict[str, Any]) -> None:
    found = client.post(page, json={"model": "people", **body})
    wanted = "people does not answer here: it is for tables. Ask it on /v1/tables/predict"
    assert found.status_code == 400 and found.json()["error"]["message"] == wanted


def test_rows_are_counted(client: TestClient) -> None:
    def counted() -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith('softlook_rows_total{model="pretended"'))

    before = counted()
    answer(client, model="pretended", rows=[{"x": 1}] * 3)
    assert counted() - before == 3


def test_each_number_may_be_fine_and_their_product_too_much() -> None:
    hall = Hall([ServedTable("pretended", Pretended())], Limits(product=300, queue=4))
    client = TestClient(make_app(hall), base_url="http://localhost")
    assert len(answer(client, model="pretended", rows=[{"x": 1}] * 300)["predictions"]) == 300
    message = refusal(client, model="pretended", rows=[{"x": 1}] * 200, explain=True)
    assert message == (
        "200 rows of 1 columns, explained, are 400 cells; at most 300 are answered. Ask for fewer rows at a time"
    )
    hall.limits = Limits(queue=4)  # which is also what the worker's queue holds
    assert "Ask for fewer rows" in refusal(client, model="pretended", rows=[{"x": 1}] * (4 * PART + 1))
    hall.close()


def test_a_full_queue_says_when_to_come_again() -> None:
    hall = Hall([ServedTable("pretended", Pretended(0.3))], Limits(queue=1, rows=1))
    engine = hall.seats["pretended"].engine
    client = TestClient(make_app(hall), base_url="http://localhost")
    table: Table = hall.table("pretended").served.table
    (part,) = table.read({"x": [1.0] * 4}, 4)
    for waiting in (0, 1):
        engine.submit([Ask((), rows=part)], lambda ticket, piece: None)
        end = time.monotonic() + 10
        while engine.waiting > waiting:
            assert time.monotonic() < end
            time.sleep(0.005)
    found = post(client, "pretended", rows=[{"x": 1}])
    assert found.status_code == 429 and int(found.headers["retry-after"]) >= 1
    hall.close()


def test_a_few_rows_do_not_wait_behind_many() -> None:
    hall = Hall([ServedTable("pretended", Pretended(0.02))])
    engine, table = hall.seats["pretended"].engine, hall.table("pretended").served.table
    over: list[int] = []
    many = table.read({"x": [1.0] * 40 * PART}, PART)
    engine.submit([Ask((), rows=part) for part in many], lambda ticket, piece: over.append(1))
    began = engine.answer(Ask((), rows=table.read({"x": [2.0]}, PART)[0]))
    assert began.over and len(over) < 10
    hall.close()


def test_a_desk_takes_no_more_than_it_has_room_for() -> None:
    table = Pretended()
    hall = Hall([ServedTable("pretended", table)], Limits(rows=16))
    client = TestClient(make_app(hall), base_url="http://localhost")
    found = answer(client, model="pretended", rows=[{"x": -number} for number in range(1000)])
    assert found["predictions"] == [-2.0 * number for number in range(1000)]
    assert max(table.sizes) <= PART and isinstance(hall.seats["pretended"].engine.desk, TableDesk)
    hall.close()


def test_a_model_that_breaks_is_said_and_goes_on() -> None:
    hall = Hall([ServedTable("pretended", Pretended())])
    client = TestClient(make_app(hall), base_url="http://localhost", raise_server_exceptions=False)
    assert post(client, "pretended", rows=[{"x": 13}]).status_code == 500
    assert answer(client, model="pretended", rows=[{"x": 1}])["predictions"] == [2.0]
    assert hall.seats["pretended"].engine.counts.faults == 1
    hall.close()


def test_a_model_is_copied_to_double_precision_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table, copies = tables()[0].table, []
    monkeypatch.setattr(copy, "deepcopy", lambda one: copies.append(one))
    parts = table.read({name: [None] * 40 for name in table.columns}, 40)
    assert torch.equal(table.answer(parts), table.answer(parts)) and not copies


def test_a_client_that_leaves_stops_costing_within_a_second() -> None:
    hall = Hall([ServedTable("pretended", Pretended(0.1))])
    engine = hall.seats["pretended"].engine
    content = json.dumps({"model": "pretended", "rows": [{"x": 1}] * 60 * PART}).encode()
    head = f"POST {PAGE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    with listening(hall) as address:
        client = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
        end = time.monotonic() + 20
        while not 0 < engine.waiting < 60:
            assert time.monotonic() < end
            time.sleep(0.01)
        client.close()
        began = time.monotonic()
        while engine.working or engine.waiting:
            assert time.monotonic() - began < 1.0, "it still costs"
            time.sleep(0.01)
        assert engine.counts.cancelled > 40


def test_what_an_estimators_save_wrote_is_served(tmp_path: Path) -> None:
    found = _loaded(estimator("people").save(tmp_path / "mine"), "mine", "cpu")
    assert isinstance(found, ServedTable) and found.name == "mine" and isinstance(found.table, Table)
    assert found.table.target == ("prediction",) and list(found.table.columns) == list(people())


def test_a_run_that_has_just_begun_is_said(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"task": "table", "values": {}}))
    with pytest.raises(ConfigError, match="has no checkpoint yet. Train on"):
        _loaded(tmp_path, "new", "cpu")


@pytest.mark.slow
def test_the_command_serves_a_table_beside_a_text_model(tmp_path: Path) -> None:
    words().tokenizer.save(str(tmp_path / "words.json"))
    text = save(speaker(), tmp_path / "poems", tokenizer=tmp_path / "words.json")
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
        found = httpx.post(f"{address}{PAGE}", json={"model": "people", "rows": rows_of(X)}, timeout=30).json()
        assert found["predictions"] == estimator("people").predict(X).tolist()  # pyright: ignore[reportAttributeAccessIssue]
        other = httpx.post(f"{address}/v1/completions", json={"model": "poems", "prompt": "sea"}, timeout=30)
        assert other.status_code == 200
    finally:
        server.kill()
        server.communicate()
