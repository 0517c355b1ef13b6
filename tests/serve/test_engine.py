"""The law of the worker: whoever else is there, every answer is the one that is obtained alone."""

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from softlook.models import ConvolutionalLM, ConvolutionalLMConfig, TransformerXL, TransformerXLConfig
from softlook.serve import continuing
from softlook.serve.asking import Ask, Manner, Piece, Ticket
from softlook.serve.continuing import ContinuingDesk
from softlook.serve.engine import GIVES_UP, BrokenError, BusyError, Engine
from softlook.serve.groups import GroupDesk
from softlook.serve.reading import ReadingDesk
from softlook.serve.recovery import ModelError, NonFiniteError, Outcome
from tests.serve.halls import CONTEXT, alone, encoder, lively, prompt, speaker, translator

VOCAB, END = 40, 2
MANNERS = (
    Manner(temperature=0.0),
    Manner(temperature=0.8, top_p=0.9),
    Manner(temperature=1.3, top_k=5, min_p=0.05),
    Manner(temperature=0.7, presence=0.6, frequency=0.2, repetition=1.2, top=2),
)


def collected(engine: Engine, asks: Sequence[Ask], pause: float = 0.0, seed: int = 0) -> list[Ticket]:
    """Ask everything, a little apart, and wait for all of it."""
    over, left, dice = threading.Event(), [len(asks)], random.Random(seed)
    faults: list[Exception] = []

    def hear(ticket: Ticket, piece: Piece) -> None:
        left[0] -= piece.last
        faults.extend([piece.fault] if piece.fault is not None else [])
        if not left[0]:
            over.set()

    tickets = []
    for ask in asks:
        tickets += engine.submit([ask], hear)
        time.sleep(pause * dice.random())
    assert over.wait(60), f"{left[0]} of {len(asks)} were never answered"
    assert not faults, faults
    return tickets


def many(count: int, longest: int, seed: int = 0) -> list[Ask]:
    dice = random.Random(seed)
    return [
        Ask(
            tuple(prompt(dice, longest, VOCAB)),
            limit=dice.randint(1, 30),
            manner=dice.choice(MANNERS),
            seed=dice.randrange(1000),
            number=dice.randrange(3),
            end=frozenset({END}),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", ["gpt", "llama", "windowed"])
def test_an_answer_in_company_is_the_answer_obtained_alone(kind: str) -> None:
    model = speaker(kind, VOCAB)
    engine = Engine(ContinuingDesk(model, rows=8))
    tickets = collected(engine, many(32, 30), pause=0.003)
    engine.close()
    assert [ticket.row.new for ticket in tickets] == [alone(model, ticket.ask) for ticket in tickets]
    assert engine.counts.turns < sum(len(ticket.row.new) for ticket in tickets) / 2, "they were not worked on together"


def test_prompts_read_in_small_parts_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuing, "CHUNK", 7)
    model = speaker("llama", VOCAB)
    engine = Engine(ContinuingDesk(model, rows=16))
    tickets = collected(engine, many(16, 30, seed=1))
    engine.close()
    assert [ticket.row.new for ticket in tickets] == [alone(model, ticket.ask) for ticket in tickets]


def test_several_answers_to_one_prompt_have_dice_of_their_own_and_one_reading() -> None:
    model = speaker("gpt", VOCAB)
    desk = ContinuingDesk(model)
    asks = [Ask((5, 6, 7), limit=8, manner=Manner(temperature=1.5), seed=3, number=i) for i in range(6)]
    desk.join([Ticket(ask, lambda *_: None) for ask in asks])
    assert [len(reading.prefixes) for reading in desk.readings] == [1]
    engine = Engine(ContinuingDesk(model))
    said = [ticket.row.new for ticket in collected(engine, asks)]
    engine.close()
    assert said == [alone(model, ask) for ask in asks] and len({tuple(words) for words in said}) > 3


@pytest.mark.parametrize("kind", ["transformer", "t5", "rnn"])
def test_translations_in_company_are_those_obtained_alone(kind: str) -> None:
    model, dice = translator(kind), random.Random(2)
    asks = [
        Ask((1,), tuple(prompt(dice, 20)), limit=12, manner=dice.choice(MANNERS[:2]), seed=i, end=frozenset({END}))
        for i in range(16)
    ]
    engine = Engine(GroupDesk(model, rows=12))
    tickets = collected(engine, asks, pause=0.004)
    engine.close()
    assert [ticket.row.new for ticket in tickets] == [alone(model, ask) for ask in asks]


@pytest.mark.parametrize("kind", ["transformer-xl", "convolution"])
def test_decoders_with_another_memory_are_served_in_groups(kind: str) -> None:
    made: dict[str, Any] = {
        "transformer-xl": lambda: TransformerXL(TransformerXLConfig(vocab=VOCAB, dim=32, depth=2, heads=4)),
        "convolution": lambda: ConvolutionalLM(ConvolutionalLMConfig(vocab=VOCAB, dim=16, depth=2)),
    }
    model = lively(made[kind])
    engine = Engine(GroupDesk(model, rows=8))
    tickets = collected(engine, many(12, 12, seed=3), pause=0.002)
    engine.close()
    assert [ticket.row.new for ticket in tickets] == [alone(model, ticket.ask) for ticket in tickets]


def test_texts_read_in_company_get_the_numbers_they_get_alone() -> None:
    model, dice = encoder(), random.Random(4)

    def ask(ids: torch.Tensor, present: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return model(ids, present=present, segments=second)

    asks = [Ask(tuple(prompt(dice, 40)), second=None) for _ in range(50)]
    engine = Engine(ReadingDesk(model, ask, rows=16))
    found: dict[Ticket, torch.Tensor] = {}
    over = threading.Event()

    def hear(ticket: Ticket, piece: Piece) -> None:
        assert piece.numbers is not None
        found[ticket] = piece.numbers
        if len(found) == len(asks):
            over.set()

    tickets = [ticket for one in asks for ticket in engine.submit([one], hear)]
    assert over.wait(30)
    engine.close()
    assert engine.counts.turns < len(asks) / 2
    with torch.no_grad():
        for ticket in tickets:
            wanted = model(torch.tensor([ticket.ask.prompt]))[0]
            torch.testing.assert_close(found[ticket], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_on_a_gpu_too_an_answer_is_the_answer_obtained_alone(kind: str) -> None:
    model = speaker(kind, VOCAB).cuda()
    engine = Engine(ContinuingDesk(model, rows=8))
    tickets = collected(engine, many(32, 30), pause=0.003)
    engine.close()
    assert [ticket.row.new for ticket in tickets] == [alone(model, ticket.ask) for ticket in tickets]


class Held:
    """A model that waits before every step until it is let go on, and fails when told to."""

    def __init__(self, model: Any) -> None:
        self.model, self.free, self.faults, self.asked = model, threading.Semaphore(0), 0, 0
        self.plain = model.forward
        model.forward = self.forward

    def forward(self, *values: Any, **named: Any) -> Any:
        assert self.free.acquire(timeout=30)
        self.asked += 1
        if self.faults:
            self.faults -= 1
            raise RuntimeError("out of memory, say")
        return self.plain(*values, **named)


def held(**settings: Any) -> tuple[Held, Engine]:
    model = Held(speaker("gpt", VOCAB))
    return model, Engine(ContinuingDesk(model.model), **settings)


def until(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


def test_a_full_queue_refuses_all_of_a_request_or_none() -> None:
    model, engine = held(queue=3)
    first = engine.submit([Ask((5,), limit=2)], lambda *_: None)
    until(lambda: engine.waiting == 0)
    engine.submit([Ask((5,), limit=2)] * 2, lambda *_: None)
    with pytest.raises(BusyError, match="try again in 1 s"):
        engine.submit([Ask((5,), limit=2)] * 2, lambda *_: None)
    assert engine.waiting == 2 and engine.counts.refused == 2
    model.free.release(100)
    until(lambda: engine.counts.finished == 3)
    assert first[0].over
    engine.close()


def test_whoever_goes_away_leaves_before_the_next_word_and_nobody_else_notices() -> None:
    model, engine = held()
    asks = [Ask((5, 6), limit=20, manner=MANNERS[0]), Ask((7,), limit=20, manner=MANNERS[0])]
    over = threading.Event()
    going, staying = engine.submit(asks, lambda ticket, piece: over.set() if piece.last else None)
    model.free.release(4)
    until(lambda: model.asked == 4)
    engine.cancel([going])
    said = len(going.row.new)
    model.free.release(200)
    assert over.wait(10)
    until(lambda: engine.working == 0)
    engine.close()
    assert len(going.row.new) <= said + 1 and not going.over and engine.counts.cancelled == 1
    assert staying.row.new == alone(speaker("gpt", VOCAB), staying.ask)


def test_whoever_goes_away_while_waiting_never_begins() -> None:
    model, engine = held()
    engine.submit([Ask((5,), limit=1)], lambda *_: None)
    until(lambda: engine.waiting == 0)
    waiting = engine.submit([Ask((6,), limit=3)], lambda *_: None)
    engine.cancel(waiting)
    model.free.release(50)
    until(lambda: engine.counts.cancelled == 1)
    assert waiting[0].row.new == []
    engine.close()


def test_one_whose_numbers_are_none_fails_alone() -> None:
    model = speaker("gpt", VOCAB)
    plain = model.forward

    def forward(ids: torch.Tensor, **named: Any) -> torch.Tensor:
        scores = plain(ids, **named)
        return scores.masked_fill((ids == 39)[..., None], torch.nan)

    good = [Ask((i + 3, 4), limit=6, manner=MANNERS[1], seed=i, end=frozenset({39})) for i in range(5)]
    wanted = [alone(model, ask) for ask in good]
    model.forward = forward
    engine = Engine(ContinuingDesk(model))
    pieces: dict[Ticket, Piece] = {}
    tickets = engine.submit([*good[:2], Ask((3, 39), manner=MANNERS[1]), *good[2:]], lambda t, p: pieces.update({t: p}))
    until(lambda: len(pieces) == 6)
    engine.close()
    assert isinstance(pieces[tickets.pop(2)].fault, NonFiniteError)
    assert [ticket.row.new for ticket in tickets] == wanted and engine.counts.faults == 0


def test_a_fault_of_the_model_is_told_and_survived() -> None:
    model, engine = held()
    model.faults = 1
    model.free.release(1000)
    with pytest.raises(ModelError, match="the model failed on this request"):
        engine.answer(Ask((5,), limit=3))
    assert len(engine.answer(Ask((5,), limit=3)).row.new) == 3 and engine.alive and engine.counts.faults == 1
    engine.close()


def test_a_model_that_fails_again_and_again_says_so_and_goes_on_trying() -> None:
    model, engine = held()
    model.faults = GIVES_UP + 2
    model.free.release(1000)
    for _ in range(GIVES_UP + 2):
        with pytest.raises(ModelError):
            engine.answer(Ask((5,), limit=3))
    until(lambda: engine.fault is not None and engine.fault.startswith("the model failed 5 times in a row"))
    assert engine.alive
    engine.answer(Ask((5,), limit=3))
    until(lambda: engine.fault is None)
    engine.close()


def test_who_waits_when_a_worker_ends_is_told() -> None:
    model, engine = held()
    faults: list[Exception | None] = []
    engine.submit([Ask((5,), limit=50), Ask((6,), limit=50)], lambda ticket, piece: faults.append(piece.fault))
    until(lambda: engine.waiting == 0)
    model.free.release(2)
    threading.Timer(0.05, lambda: model.free.release(1000)).start()
    engine.close()
    until(lambda: len(faults) == 2)
    assert all(isinstance(fault, BrokenError) for fault in faults)
    with pytest.raises(BrokenError):
        engine.submit([Ask((5,))], lambda *_: None)


def test_what_is_allocated_stays_within_its_places() -> None:
    desk = ContinuingDesk(speaker("gpt", VOCAB), rows=100, places=6 * CONTEXT)
    engine = Engine(desk)
    held: list[int] = []
    plain = desk.turn

    def turn() -> Outcome:
        outcome = plain()
        held.append(sum(batch.slots.rows * batch.slots.columns for batch in desk.batches))
        return outcome

    desk.turn = turn
    tickets = collected(engine, many(40, 30, seed=6))
    engine.close()
    assert 2 * CONTEXT < max(held) <= 6 * CONTEXT and all(ticket.over for ticket in tickets)
    assert not any(batch.slots.slots for batch in desk.batches), "what nobody needs is still held"


def test_words_are_told_one_by_one_to_those_who_stream() -> None:
    engine = Engine(ContinuingDesk(speaker("gpt", VOCAB)))
    pieces: list[Piece] = []
    engine.submit([Ask((5, 6), limit=7, stream=True)], lambda _, piece: pieces.append(piece))
    until(lambda: pieces and pieces[-1].last)
    engine.close()
    assert [len(piece.tokens) for piece in pieces] == [1] * 7 and pieces[-1].reason == "length"
