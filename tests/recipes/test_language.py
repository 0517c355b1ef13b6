"""Language models learn, each in its own way, and documents stay apart."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from softlook.data import Text, documents
from softlook.models import GPT, GPTConfig, TransformerXL, TransformerXLConfig
from softlook.recipes import lm
from softlook.recipes.corpus import Corpus, Part
from softlook.recipes.language import Following, Language, Whole, simplified
from softlook.recipes.packing import bytes_of, tokens_of
from softlook.recipes.settings import Batch, Lm, Tokens
from softlook.recipes.sizing import Room
from softlook.recipes.told import told
from softlook.train.events import Evaluated, Event
from softlook.train.stream import Stream
from tests.recipes.small import language, said, sentences


@pytest.mark.parametrize("model", ["gpt", "llama", "transformer_xl", "convolution"])
def test_every_kind_of_model_learns(model: str, tmp_path: Path) -> None:
    heard: list[Event] = []
    trained = lm(language(tmp_path, steps=40, model=model, batch=Batch(tokens=512, longest=32)), [heard.append])
    held = trained.scores["held_out"]
    assert held["loss"] < 2.8  # there are some 25 characters: 3.2 is knowing nothing
    assert held["perplexity"] == pytest.approx(math.exp(held["loss"]))
    assert said(heard, Evaluated)[-1].scores["loss"] == pytest.approx(held["loss"], rel=0.05)


@pytest.mark.parametrize(
    ("speed", "told_from", "kind"), [(1e9, None, "llama"), (1e15, None, None), (1e9, "gpt2", None)]
)
def test_where_time_is_short_a_llama_is_chosen(speed: float, told_from: str | None, kind: str | None) -> None:
    room = Room(torch.device("cpu"), speed, minutes=3.0, is_told=True)
    asked = told(Lm.model_validate({"data": ["a.txt"]} | ({"from": told_from} if told_from else {})))
    text = cast("Corpus[Text]", SimpleNamespace(characters=1_000_000))
    assert Language().choose(text, asked, room).values.get("model") == kind


def test_bits_per_byte_do_not_depend_on_how_text_is_cut(tmp_path: Path) -> None:
    """Both know nothing yet: a uniform guess costs log2(vocab) bits for each token."""
    found = {}
    for kind in ("bytes", "characters"):
        trained = lm(language(tmp_path, 1, run=tmp_path / kind, tokens=Tokens(kind=kind), optim={"lr": 1e-9}))
        held = trained.scores["held_out"]
        assert held["bits_per_byte"] == pytest.approx(held["loss"] / math.log(2) * held["tokens"] / held["bytes"])
        found[kind] = held
    assert found["bytes"]["bytes"] == found["characters"]["bytes"]
    assert found["bytes"]["loss"] > found["characters"]["loss"]


def test_documents_do_not_see_each_other(tmp_path: Path) -> None:
    """Two documents in a row score as each does alone."""
    model = GPT(GPTConfig(vocab=300, context=16, dim=16, depth=1, heads=2, dropout=0.0)).eval()
    table = tmp_path / "a.jsonl"
    table.write_text('{"text": "abc"}\n{"text": "defg"}\n', encoding="utf-8")
    trained = lm(language(tmp_path, tokens=Tokens(kind="bytes")))
    tokens = tokens_of(Part(documents(table)), trained.tokenizer)
    assert bytes_of(Part(documents(table))) == 7
    both = simplified(Stream(tokens, context=16, rows=1, seed=0).tokens.rows([0], 16))
    alone = [Whole(ids[:, :-1], ids[:, 1:]) for ids in (tokens.ids[None, :5].long(), tokens.ids[None, 5:].long())]
    objective = Following(16)
    assert not isinstance(both, Whole)
    together, apart = objective(model, both), [objective(model, rows) for rows in alone]
    assert int(together.count) == sum(int(loss.count) for loss in apart) == 9
    torch.testing.assert_close(together.total, apart[0].total + apart[1].total)


def test_rows_of_one_document_give_the_same_loss_without_a_mask(tmp_path: Path) -> None:
    model = GPT(GPTConfig(vocab=300, context=8, dim=16, depth=1, heads=2, dropout=0.0)).eval()
    trained = lm(language(tmp_path, tokens=Tokens(kind="bytes")))
    tokens = tokens_of(Part(documents(sentences(tmp_path / "more.txt"))), trained.tokenizer)
    rows = tokens.rows([0, 8], 8)
    assert isinstance(simplified(rows), Whole)
    torch.testing.assert_close(Following(8)(model, rows).total, Following(8)(model, simplified(rows)).total)


def test_transformer_xl_carries_its_memory_from_segment_to_segment() -> None:
    """Read in four segments with a memory, a row scores as when it is read at once; without a memory it does not."""
    model = TransformerXL(TransformerXLConfig(vocab=20, dim=16, depth=1, heads=2, hidden=32, dropout=0.0)).eval()
    ids = torch.randint(20, (2, 17))
    rows = Whole(ids[:, :-1], ids[:, 1:])
    whole, segments = Following(16)(model, rows), Following(8)(model, rows)
    forgetful = Following(8, remembers=False)(model, rows)
    torch.testing.assert_close(whole.total, segments.total)
    assert abs((forgetful.total - whole.total).item()) > 1e-4


def test_large_text_lies_on_disk_and_teaches_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = lm(language(tmp_path, run=tmp_path / "small"))
    monkeypatch.setattr("softlook.recipes.packing.LARGE", 10)
    large, again = (lm(language(tmp_path, run=tmp_path / name)) for name in ("large", "again"))
    assert len(list((tmp_path / ".tokens").iterdir())) == 1
    assert large.scores == small.scores == again.scores


def test_it_starts_from_other_weights_within_their_context(tmp_path: Path) -> None:
    first = lm(language(tmp_path, batch=Batch(tokens=256, longest=16)))
    tuned = lm(language(tmp_path, 2, run=tmp_path / "tuned", batch=Batch(longest=64), **{"from": first.folder}))
    assert tuned.scores["held_out"]["loss"] == pytest.approx(first.scores["held_out"]["loss"], abs=0.5)
