"""Translation learns, with every kind of model and every option."""

from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.base.errors import DataError
from softlook.recipes import translate
from softlook.recipes.pairing import Retold
from softlook.recipes.saying import translated
from softlook.recipes.settings import Decode, PairBatch, Tokens
from softlook.train.batches import Place
from softlook.train.events import Evaluated, Event, Trained
from tests.recipes.small import digits, said, translating


def test_it_learns_to_turn_numbers_round(tmp_path: Path) -> None:
    test = digits(tmp_path / "test.tsv", 40)
    trained = translate(
        translating(tmp_path, steps=300, test=(test,), tokens=Tokens(kind="characters"), train={"average": 0.0})
    )
    assert trained.scores["test"]["bleu"] > 50
    assert trained.scores["test"]["bleu_signature"].startswith("nrefs:1")
    assert translated(trained.model, trained.tokenizer, ["1 2 3"]) == ["3 2 1"]


OPTIONS: dict[str, dict[str, Any]] = {
    "recurrent": {"model": "rnn_search"},
    "post-norm": {"size": {"dim": 32, "depth": 1, "heads": 2, "dropout": 0.1, "norm": "post"}},
    "read twice": {"batch": PairBatch(agree=5.0)},
    "cut anew": {"tokens": Tokens(kind="bpe", vocab=300, dropout=0.1)},
    "bytes": {"tokens": Tokens(kind="bytes")},
    "best by BLEU": {"decode": Decode(select="bleu")},
    "averaged": {"train": {"average": 0.9}},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_learns(option: str, tmp_path: Path) -> None:
    heard: list[Event] = []
    translate(translating(tmp_path, **{"steps": 30, **OPTIONS[option]}), [heard.append])
    first, *_, last = [event.loss for event in said(heard, Trained)]
    assert last < 0.9 * first
    assert set(said(heard, Evaluated)[-1].scores) >= {"loss", "bleu"}


@pytest.mark.parametrize("model", ["transformer", "rnn_search"])
@pytest.mark.parametrize("beams", [1, 3])
def test_many_at_once_are_translated_as_one_by_one(model: str, beams: int, tmp_path: Path) -> None:
    trained = translate(translating(tmp_path, steps=20, model=model))
    texts = ["1 2 3", "4", "5 6 7 8 9", ""]
    together = translated(trained.model, trained.tokenizer, texts, beams=beams)
    alone = [translated(trained.model, trained.tokenizer, [text], beams=beams)[0] for text in texts]
    assert together == alone


def test_pieces_and_order_of_bpe_dropout_depend_on_the_place_alone(tmp_path: Path) -> None:
    asked = translating(tmp_path, tokens=Tokens(kind="bpe", vocab=300, dropout=0.3), batch=PairBatch(tokens=400))
    trained = translate(asked)
    texts = (["1 2 3 4 5"] * 50, ["5 4 3 2 1"] * 50)
    settings = trained.settled.settings

    def batches(place: Place, count: int) -> list[Any]:
        source = Retold(texts, trained.tokenizer, settings, lambda items: torch.tensor([len(a) for a, _ in items]))
        return [batch for _, (_, batch) in zip(range(count), source.start(place), strict=False)]

    whole = batches(Place(), 12)
    epoch = len(Retold(texts, trained.tokenizer, settings, list).epoch(0))
    again = batches(Place(1, 0), 12 - epoch)
    assert epoch < 12
    for one, other in zip(whole[epoch:], again, strict=True):
        assert torch.equal(one, other)
    assert [batch.tolist() for batch in whole[:epoch]] != [batch.tolist() for batch in again[:epoch]]


def test_pairs_that_are_too_long_are_left_out_and_only_those(tmp_path: Path) -> None:
    long = tmp_path / "long.tsv"
    long.write_text("".join(f"one more word {n}\tand another {n}\n" for n in range(99)), encoding="utf-8")
    asked = translating(tmp_path, data=(long,), tokens=Tokens(kind="bytes"), batch=PairBatch(longest=8))
    with pytest.raises(DataError, match="every pair is longer than 8 tokens"):
        translate(asked)
    translate(translating(tmp_path, tokens=Tokens(kind="bytes"), batch=PairBatch(longest=8)))
