"""Classifiers learn, know the names of their classes, and can start from other people's weights."""

from pathlib import Path
from queue import Queue

import pytest

from softlook.base.errors import DataError, WeightsError
from softlook.models import Bert, BertConfig
from softlook.recipes import classify, evaluate, fill, lm
from softlook.recipes.answering import classify as judged
from softlook.recipes.answering import opened
from softlook.recipes.settings import LabelBatch, Sizes
from softlook.serve.asking import Ask, Piece
from softlook.serve.engine import Engine
from softlook.serve.hall import desk_for
from softlook.serve.limits import Limits
from softlook.serve.served import load_served
from softlook.tokens import train_tokenizer
from softlook.weights import save
from softlook.weights.schema import read_json
from tests.recipes.small import classifying, filling, language, reviews


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_easy_classes_are_learned(pooling: str, tmp_path: Path) -> None:
    test = reviews(tmp_path / "test.csv", 40)
    trained = classify(classifying(tmp_path, steps=100, pooling=pooling, test=(test,), train={"average": 0.0}))
    assert trained.scores["accuracy"] == 1.0
    assert trained.scores["test"]["accuracy"] == 1.0
    assert trained.scores["test"]["classes"]["good"]["f1"] == 1.0
    assert read_json(trained.folder / "labels.json") == {"labels": ["bad", "good"]}
    again = evaluate(trained.folder, (test,), device="cpu")
    assert again == trained.scores["test"]


def test_pairs_are_classified(tmp_path: Path) -> None:
    rows = "".join(f"word{n}\tword{n if n % 2 else n + 1}\t{'same' if n % 2 else 'other'}\n" for n in range(60))
    (tmp_path / "pairs.tsv").write_text(f"one\ttwo\tkind\n{rows}", encoding="utf-8")
    asked = classifying(tmp_path, data=(tmp_path / "pairs.tsv",), text="one", text_pair="two", label="kind")
    trained = classify(asked.model_copy(update={"data": (tmp_path / "pairs.tsv",)}))
    assert trained.scores["accuracy"] >= 0.0
    assert trained.settled.settings.text_pair == "two"


def test_uneven_classes_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "uneven.csv"
    path.write_text("text,label\n" + "".join(f"text {n},{'rare' if n < 9 else 'usual'}\n" for n in range(200)))
    with caplog.at_level("INFO", "softlook"):
        classify(classifying(tmp_path).model_copy(update={"data": (path,)}))
    assert "They are uneven: 'rare' has only" in caplog.text


def test_one_class_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("text,label\n" + "".join(f"text number {n},yes\n" for n in range(50)))
    with pytest.raises(DataError, match="all examples are of one class, 'yes'"):
        classify(classifying(tmp_path, text="text", label="label").model_copy(update={"data": (path,)}))


def test_a_class_that_was_never_learned_is_located(tmp_path: Path) -> None:
    trained = classify(classifying(tmp_path))
    other = tmp_path / "other.csv"
    other.write_text("review,verdict\nfine,good\nodd,strange\n")
    with pytest.raises(DataError, match=r"other\.csv:3: the class 'strange' was not in the data to learn from"):
        evaluate(trained.folder, (other,), device="cpu")


def test_it_starts_from_a_masked_model_of_ones_own(tmp_path: Path) -> None:
    encoder = fill(filling(tmp_path)).folder
    trained = classify(classifying(tmp_path, steps=40, run=tmp_path / "tuned", **{"from": encoder}))
    assert trained.scores["accuracy"] == 1.0
    assert trained.settled.settings.batch.tokens == 1024


def test_it_starts_from_weights_with_a_tokenizer_of_other_names(tmp_path: Path) -> None:
    """BERT's own tokenizer says [CLS] where softlook says <cls>."""
    words = train_tokenizer(["film was fine lovely awful dull"], kind="bpe", vocab=300).to_str()
    for ours, theirs in (("<cls>", "[CLS]"), ("<sep>", "[SEP]"), ("<pad>", "[PAD]")):
        words = words.replace(ours, theirs)
    (tmp_path / "tokenizer.json").write_text(words, encoding="utf-8")
    encoder = Bert(BertConfig(vocab=300, context=64, dim=32, depth=1, heads=2, head="states"))
    folder = save(encoder, tmp_path / "encoder", tokenizer=tmp_path / "tokenizer.json")
    trained = classify(classifying(tmp_path, 4, **{"from": folder}))
    assert isinstance(trained.model, Bert)
    assert trained.model.config.head == "classes"


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = lm(language(tmp_path)).folder
    with pytest.raises(WeightsError, match="holds a GPT, which cannot be taught to classify"):
        classify(classifying(tmp_path, 4, run=tmp_path / "tuned", **{"from": other}))


def test_long_texts_are_cut_to_fit(tmp_path: Path) -> None:
    trained = classify(classifying(tmp_path, batch=LabelBatch(longest=8)))
    assert trained.scores["loss"] > 0


def test_weights_bring_their_sizes_and_their_words(tmp_path: Path) -> None:
    encoder = fill(filling(tmp_path)).folder
    trained = classify(classifying(tmp_path, 4, size=Sizes(), run=tmp_path / "tuned", **{"from": encoder}))
    assert trained.settled.settings.size.dim is None
    assert trained.model.config.dim == 32  # pyright: ignore[reportAttributeAccessIssue]
    (encoder / "tokenizer.json").unlink()
    with pytest.raises(WeightsError, match=r"tokenizer\.json is not there"):
        classify(classifying(tmp_path, 4, run=tmp_path / "other", **{"from": encoder}))


def test_a_class_of_which_all_are_held_out_is_still_a_class(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("text,label\n" + "".join(f"text {n},class{n % 20}\n" for n in range(60)), encoding="utf-8")
    trained = classify(classifying(tmp_path, 2, data=(path,), text="text", label="label"))
    assert len(read_json(trained.folder / "labels.json")["labels"]) == 20


@pytest.mark.parametrize("segments", [0, 1])
def test_it_starts_from_weights_that_do_not_tell_texts_apart_and_is_asked_and_served(
    segments: int, tmp_path: Path
) -> None:
    """As DistilBERT, which knows no segments, and RoBERTa, which has one vector for all."""
    rows = "".join(f"word{n}\tword{n if n % 2 else n + 1}\t{'same' if n % 2 else 'other'}\n" for n in range(60))
    (tmp_path / "pairs.tsv").write_text(f"one\ttwo\tkind\n{rows}", encoding="utf-8")
    words = train_tokenizer([], kind="bytes")
    words.save(str(tmp_path / "words.json"))
    sizes = BertConfig(vocab=words.get_vocab_size(), context=32, dim=16, depth=1, heads=2, segments=segments)
    save(Bert(sizes), tmp_path / "start", tokenizer=tmp_path / "words.json")
    asked = classifying(tmp_path, steps=2, text="one", text_pair="two", label="kind", from_=tmp_path / "start")
    trained = classify(asked.model_copy(update={"data": (tmp_path / "pairs.tsv",)}))
    (found,) = judged(opened(trained.folder, device="cpu"), [("word1", "word2")])
    served = load_served(trained.folder, "kinds")
    first = [served.tokenizer.first, *served.tokenizer.encode(["word1"])[0], served.tokenizer.separator]
    row = [*first, *served.tokenizer.encode(["word2"])[0], served.tokenizer.separator]
    engine = Engine(desk_for(served, Limits()))
    heard: Queue[Piece] = Queue()
    engine.submit([Ask(tuple(row), second=len(first))], lambda _, piece: heard.put(piece))
    numbers = heard.get(timeout=30).numbers
    engine.close()
    assert numbers is not None
    chances = dict(zip(served.labels, numbers.softmax(-1).tolist(), strict=True))
    assert chances == pytest.approx(dict(found.classes), abs=1e-5)
