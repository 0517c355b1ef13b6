"""From a folder to a model that can be asked: runs, checkpoints, and folders of Hugging Face's."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import ConfigError, DataError, WeightsError
from softlook.decode.habits import Habits
from softlook.models import GPT, GPTConfig
from softlook.recipes import Classify, Lm, Translate, classify, lm, translate
from softlook.serve.served import Served, load_served, names_of
from softlook.train import Training
from softlook.weights import save, to_hugging_face
from softlook.weights.beside import Signs
from tests.serve.halls import encoder, served, speaker, words


@pytest.mark.slow
def test_a_language_model_of_a_run_is_served(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("".join(f"{n} green bottles\n" for n in range(99)))
    run = tmp_path / "poems"
    lm(Lm(data=(tmp_path / "poem.txt",), run=run, training=Training(steps=2)))
    found = load_served(run)
    own = found.tokenizer
    assert found.name == "poems" and found.abilities == ("completions",)
    assert found.signs == Signs((own.begin,), (), (own.begin,), (own.end,))


def test_a_classifier_of_a_run_is_served_with_its_classes(tmp_path: Path) -> None:
    rows = "".join(f"film {n},{'good' if n % 2 else 'bad'}\n" for n in range(40))
    (tmp_path / "reviews.csv").write_text(f"text,label\n{rows}")
    run = tmp_path / "films"
    classify(Classify(data=(tmp_path / "reviews.csv",), run=run, training=Training(steps=2)))
    found = load_served(run, "critic")
    assert found.name == "critic" and found.abilities == ("classify",) and found.labels == ["bad", "good"]


@pytest.mark.slow
def test_a_translator_of_a_run_is_served(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"number {n}\tZahl {n}\n" for n in range(50)))
    run = tmp_path / "numbers"
    translate(Translate(data=(tmp_path / "pairs.tsv",), run=run, training=Training(steps=2)))
    found = load_served(run)
    assert found.abilities == ("translate",)
    own = found.tokenizer
    assert found.signs == Signs((), (own.end,), (own.begin,), (own.end,)) and found.habits == Habits()


def kept(folder: Path, model: Any, **beside: Any) -> Path:
    """A checkpoint with its tokenizer, and other files."""
    words().tokenizer.save(str(folder.parent / "words.json"))
    save(model, folder, tokenizer=folder.parent / "words.json")
    for name, content in beside.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_checkpoint_is_served_with_its_template(tmp_path: Path) -> None:
    folder = kept(tmp_path / "mine", speaker())
    assert load_served(folder).abilities == ("completions",)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))
    assert load_served(folder).abilities == ("completions", "chat")


def test_a_folder_of_hugging_faces_is_served_with_its_ends(tmp_path: Path) -> None:
    words().tokenizer.save(str(tmp_path / "words.json"))
    folder = tmp_path / "theirs"
    to_hugging_face(speaker(), folder, tokenizer=tmp_path / "words.json")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6], "bos_token_id": 7}))
    found = load_served(folder)
    assert found.ends == {5, 6} and found.signs.begin == (7,) and isinstance(found.model, GPT)


def test_a_model_without_words_is_refused(tmp_path: Path) -> None:
    save(speaker(), tmp_path / "mute")
    with pytest.raises(WeightsError, match="holds no tokenizer.json, and texts are asked"):
        load_served(tmp_path / "mute")


def test_a_model_that_nobody_can_ask_is_refused() -> None:
    with pytest.raises(ConfigError, match="tags is a Bert, which there is no way to serve"):
        served("tags", encoder("tags"))


@pytest.mark.parametrize("names", [["a"], {"0": "a"}, "a", [1, 2, 3]], ids=["one", "by number", "text", "numbers"])
def test_classes_that_do_not_fit_are_refused(tmp_path: Path, names: Any) -> None:
    folder = kept(tmp_path / "odd", encoder(), labels={"labels": names})
    with pytest.raises(WeightsError, match="names other classes than its model has"):
        load_served(folder)


def test_classes_without_names_have_numbers(tmp_path: Path) -> None:
    assert load_served(kept(tmp_path / "bare", encoder())).labels == ["0", "1", "2"]


def test_two_models_of_one_name_are_refused() -> None:
    assert names_of(["a/x", "y=a/x"]) == {"x": Path("a/x"), "y": Path("a/x")}
    with pytest.raises(ConfigError, match="two models would be called 'x'. Name them: one=a/x other=b/x"):
        names_of(["a/x", "b/x"])
    with pytest.raises(ConfigError, match="1 to 128 letters, and neither space nor slash"):
        names_of(["a name=b"])


def large(context: int) -> Served:
    sizes: dict[str, Any] = {"vocab": words().vocab, "dim": 8, "depth": 1, "heads": 1, "context": context}
    return served("large", GPT(GPTConfig(**sizes)).eval())


@pytest.mark.parametrize("text", ["a" * 1_000_000, "sea " * 200_000, "日" * 300_000, "\n" * 900_000])
def test_a_text_far_too_long_is_refused_after_a_glance(text: str) -> None:
    found = large(8192)
    began = time.perf_counter()
    with pytest.raises(DataError, match="longer than the 8,191 tokens that there is room for"):
        found.ids(text, 8191)
    assert time.perf_counter() - began < 1.0  # about 50 ms where nobody else computes


def test_a_text_that_just_fits_is_read() -> None:
    found = large(8192)
    assert len(found.ids("a" * 8191, 8191)) == 8191
    with pytest.raises(DataError, match="this text has 8,192 tokens, and there is room for 8,191"):
        found.ids("a" * 8192, 8191)
