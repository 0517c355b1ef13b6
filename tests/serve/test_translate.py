"""Translations by beam search: those of the command line, whoever else asks, and nobody waits long for them."""

import random
import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from softlook.base.errors import ConfigError, WeightsError
from softlook.decode import beam, speaker_for
from softlook.recipes.answering import Opened, opened, translate
from softlook.serve.app import make_app
from softlook.serve.asking import Ask, Manner, Piece, Search, Ticket
from softlook.serve.engine import Engine
from softlook.serve.groups import GroupDesk
from softlook.serve.hall import Hall
from softlook.serve.limits import Limits
from softlook.serve.served import load_served
from softlook.weights.beside import Signs
from tests.serve.halls import alone, prompt, served, translator
from tests.serve.test_engine import collected, until

TEXTS = ["jeudi 3 mars 2022", "le 1er mai 1998", "  ", "donnerstag, den 25. dezember 1999", " 1/2/03"]
BEGIN, END = 1, 2


@pytest.fixture(scope="module")
def reader() -> Opened:
    return opened("dates", device="cpu")


@pytest.fixture(scope="module")
def dates() -> Iterator[TestClient]:
    hall = Hall([load_served(Path(str(files("softlook.recipes") / "date_reader")), "dates")], Limits(rows=32))
    yield TestClient(make_app(hall), base_url="http://localhost", raise_server_exceptions=False)
    hall.close()


def asked(client: TestClient, **body: Any) -> Any:
    found = client.post("/v1/translate", json={"model": "dates", "text": TEXTS} | body)
    assert found.status_code == 200, found.text
    return found.json()["data"]


HOW: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as the model is used to": ({}, {}),
    "the likeliest word": ({"beams": 1}, {"beams": 1}),
    "the best three": ({"best": 3}, {"n_best": 3}),
    "many beams": ({"beams": 12, "best": 12, "penalty": 0.5}, {"beams": 12, "n_best": 12, "penalty": 0.5}),
}


@pytest.mark.parametrize("how", HOW)
def test_an_answer_is_that_of_the_command_line(dates: TestClient, reader: Opened, how: str) -> None:
    theirs, ours = HOW[how]
    found, wanted = asked(dates, **theirs, alignments=True), translate(reader, TEXTS, **ours, aligned=True)
    assert [one["text"] for one in found] == [one.text for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert [best["text"] for best in one["best"]] == [best.text for best in other.best]
        for best, right in zip(one["best"], other.best, strict=True):
            assert best["score"] == pytest.approx(right.score, abs=1e-4)
            assert best["log_probability"] == pytest.approx(right.log_probability, abs=1e-3)
            look = right.alignment
            assert look is not None and best["finish_reason"] == "stop"
            told = best["alignment"]
            assert (told["source"], told["target"]) == (look.source, look.target)
            assert list(map(tuple, told["words"])) == look.words()
            assert list(map(tuple, told["tokens"])) == look.tokens()
            torch.testing.assert_close(torch.tensor(told["weights"]), look.weights, rtol=0, atol=2e-4)


def test_only_who_asks_is_told_where_the_model_looked(dates: TestClient) -> None:
    assert all(one["alignment"] is None for one in asked(dates))
    assert asked(dates, text="  ", alignments=True)[0]["best"] == []


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too many beams": ({"beams": 65}, "beams: expected at most 64"),
    "more beams than rows": ({"beams": 33}, "32 sequences are worked on together here, and 33 beams are more"),
    "no beams": ({"beams": 0}, "beams: expected at least 1"),
    "more than there are beams": ({"beams": 2, "best": 3}, "the 3 best of 2 beams were wanted"),
    "drawn and searched for": ({"beams": 2, "temperature": 0.5}, "drawn, at a temperature of 0.5, or searched for"),
    "a penalty too large": ({"penalty": 6}, "penalty: expected at most 5"),
    "all together": ({"text": ["1/2/03"] * 64, "beams": 32, "max_tokens": 500}, "1,024,000 altogether"),
    "alignments": ({"text": ["1/2/03"] * 64, "beams": 1, "max_tokens": 4000, "alignments": True}, "numbers; at most"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_number_has_a_bound_and_so_have_products(dates: TestClient, wrong: str) -> None:
    body, message = WRONG[wrong]
    found = dates.post("/v1/translate", json={"model": "dates", "text": "3 mars"} | body)
    assert found.status_code == 400 and message in found.json()["error"]["message"], found.text


def test_a_translator_that_does_not_know_how_to_begin_is_not_served() -> None:
    with pytest.raises(ConfigError, match="the beginning or the end of an answer is not known of mute"):
        served("mute", translator(), signs=Signs())


def searches(count: int, seed: int = 0, **changes: Any) -> list[Ask]:
    dice = random.Random(seed)
    kinds = [Search(2, 1.0), Search(5, 0.6), Search(3, 1.0)]
    return [
        Ask((BEGIN,), tuple(prompt(dice, 20)), limit=12, search=dice.choice(kinds), end=frozenset({END}), **changes)
        for _ in range(count)
    ]


def found_alone(model: Any, ask: Ask) -> list[list[int]]:
    search = ask.search
    assert search is not None and ask.source is not None
    told: dict[str, Any] = {"end": END, "longest": ask.limit, "beams": search.beams, "penalty": search.penalty}
    (found,) = beam(speaker_for(model, torch.tensor([ask.source])), torch.tensor([ask.prompt]), **told)
    return [one.ids for one in found]


@pytest.mark.parametrize("kind", ["transformer", "t5", "rnn"])
def test_what_is_found_in_company_is_what_is_found_alone(kind: str) -> None:
    model, dice = translator(kind), random.Random(1)
    plain = [
        Ask((BEGIN,), tuple(prompt(dice, 20)), limit=12, manner=Manner(0.0), end=frozenset({END})) for _ in range(4)
    ]
    asks = [*searches(8), *plain]
    dice.shuffle(asks)
    engine = Engine(GroupDesk(model, rows=16))
    tickets = collected(engine, asks, pause=0.004)
    engine.close()
    for ticket in tickets:
        if ticket.ask.search is None:
            assert ticket.row.new == alone(model, ticket.ask)
        else:
            assert [one.ids for one in ticket.found] == found_alone(model, ticket.ask)


LONG = Ask((BEGIN,), (5, 6, 7), limit=4000, search=Search(4, 1.0), end=frozenset({10_000}))
SHORT = Ask((BEGIN,), (5, 6, 7), limit=5, manner=Manner(0.0), end=frozenset({END}))


def test_nobody_waits_for_a_long_search_or_for_one_that_waits_for_room() -> None:
    engine = Engine(GroupDesk(translator(), rows=4))
    long = engine.submit([LONG, LONG], lambda *_: None)
    until(lambda: engine.working == 1 and engine.waiting == 1)
    assert engine.answer(SHORT).over and not any(ticket.over for ticket in long)
    turns = engine.counts.turns
    engine.cancel(long)
    until(lambda: engine.working == 0 and engine.waiting == 0)
    assert engine.counts.cancelled == 2 and engine.counts.turns <= turns + 3
    engine.close()


def test_who_goes_away_leaves_a_search_that_others_wait_for() -> None:
    model, pieces = translator(), dict[Ticket, Piece]()
    engine = Engine(GroupDesk(model, rows=16))
    asks = [Ask((BEGIN,), source, limit=60, search=Search(3, 1.0), end=frozenset({END})) for source in ((5, 6), (7, 8))]
    leaving, staying = engine.submit(asks, lambda ticket, piece: pieces.update({ticket: piece}))
    engine.cancel([leaving])
    until(lambda: staying in pieces)
    until(lambda: engine.working == 0)
    engine.close()
    assert leaving not in pieces and [one.ids for one in staying.found] == found_alone(model, staying.ask)


def test_a_search_whose_numbers_are_none_fails_alone() -> None:
    model = translator()
    plain = model.encode

    def encode(ids: torch.Tensor, **named: Any) -> torch.Tensor:
        return plain(ids, **named).masked_fill((ids == 39).any(1)[:, None, None], torch.nan)

    model.encode = encode
    desk, pieces, over = GroupDesk(model, rows=64), dict[Ticket, Piece](), threading.Event()

    def hear(ticket: Ticket, piece: Piece) -> None:
        pieces[ticket] = piece
        if len(pieces) == 3:
            over.set()

    asks = [
        Ask((BEGIN,), source, limit=8, search=Search(3, 1.0), end=frozenset({END}))
        for source in ((5, 6), (39, 8), (9, 4))
    ]
    engine = Engine(desk)
    good, bad, other = engine.submit(asks, hear)
    assert over.wait(30)
    engine.close()
    assert isinstance(pieces[bad].fault, WeightsError) and engine.counts.faults == 0
    for ticket in (good, other):
        assert [one.ids for one in ticket.found] == found_alone(model, ticket.ask)
