"""Text classifiers."""

import math
from operator import itemgetter
from pathlib import Path
from queue import Queue

import pytest

from softlook.base.errors import DataError, WeightsError
from softlook.heads.ngrams import NGramClassifier
from softlook.models import Bert, BertConfig
from softlook.recipes import evaluate, train_causal_lm, train_classification, train_masked_lm
from softlook.recipes.config.schema import BatchConfig, ModelConfig
from softlook.recipes.inference import classify, load_pipeline
from softlook.recipes.text.classification_scores import ClassificationEvaluator
from softlook.recipes.text.labeled_texts import ClassificationCollator
from softlook.recipes.text.problems import SingleLabel
from softlook.serve.engine.engine import Engine
from softlook.serve.engine.request import EngineRequest, RequestOutput, ServerLimits
from softlook.serve.loaded_model import load_model
from softlook.serve.registry import scheduler_for
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.weights import save
from softlook.weights.schema import read_json
from tests.recipes.small import causal_lm_config, classification_config, masked_lm_config, reviews


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_easy_classes_are_learned(pooling: str, tmp_path: Path) -> None:
    test = reviews(tmp_path / "test.csv", 40)
    trained = train_classification(
        classification_config(tmp_path, steps=100, pooling=pooling, test=(test,), train={"ema_decay": 0.0})
    )
    assert trained.scores["accuracy"] == 1.0
    assert trained.scores["test"]["accuracy"] == 1.0
    assert trained.scores["test"]["classes"]["good"]["f1"] == 1.0
    assert read_json(trained.run_dir / "labels.json") == {"labels": ["bad", "good"]}
    scores = evaluate(trained.run_dir, (test,), device="cpu")
    assert scores == trained.scores["test"]


def test_pairs_are_classified(tmp_path: Path) -> None:
    rows = "".join(f"word{n}\tword{n if n % 2 else n + 1}\t{'same' if n % 2 else 'other'}\n" for n in range(60))
    (tmp_path / "pairs.tsv").write_text(f"one\ttwo\tkind\n{rows}", encoding="utf-8")
    config = classification_config(tmp_path, data=(tmp_path / "pairs.tsv",), text="one", text_pair="two", label="kind")
    trained = train_classification(config.model_copy(update={"data": (tmp_path / "pairs.tsv",)}))
    assert trained.scores["accuracy"] >= 0.0
    assert trained.resolved.config.text_pair == "two"


def test_imbalanced_classes_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "uneven.csv"
    path.write_text("text,label\n" + "".join(f"text {n},{'rare' if n < 9 else 'usual'}\n" for n in range(200)))
    with caplog.at_level("INFO", "softlook"):
        train_classification(classification_config(tmp_path).model_copy(update={"data": (path,)}))
    assert "Imbalanced: 'rare' has only" in caplog.text


def test_one_class_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("text,label\n" + "".join(f"text number {n},yes\n" for n in range(50)))
    with pytest.raises(DataError, match="all examples have the label 'yes'"):
        train_classification(
            classification_config(tmp_path, text="text", label="label").model_copy(update={"data": (path,)})
        )


def test_an_unknown_class_is_an_error_with_its_position(tmp_path: Path) -> None:
    trained = train_classification(classification_config(tmp_path))
    other = tmp_path / "other.csv"
    other.write_text("review,verdict\nfine,good\nodd,strange\n")
    with pytest.raises(DataError, match=r"other\.csv:3: the class 'strange' is not in the training data"):
        evaluate(trained.run_dir, (other,), device="cpu")


def test_it_can_be_initialized_from_a_masked_language_model(tmp_path: Path) -> None:
    encoder = train_masked_lm(masked_lm_config(tmp_path)).run_dir
    trained = train_classification(
        classification_config(tmp_path, steps=40, run_dir=tmp_path / "tuned", init_from=encoder)
    )
    assert trained.scores["accuracy"] == 1.0


def test_it_can_be_initialized_from_weights_with_other_special_token_names(tmp_path: Path) -> None:
    """BERT's tokenizer has [CLS] instead of softlook's <cls>."""
    words = train_tokenizer(["film was fine lovely awful dull"], model_type="bpe", vocab_size=300).to_str()
    for old, new in (("<cls>", "[CLS]"), ("<sep>", "[SEP]"), ("<pad>", "[PAD]")):
        words = words.replace(old, new)
    (tmp_path / "tokenizer.json").write_text(words, encoding="utf-8")
    encoder = Bert(BertConfig(vocab_size=300, context=64, dim=32, depth=1, heads=2, head="hidden_states"))
    folder = save(encoder, tmp_path / "encoder", tokenizer=tmp_path / "tokenizer.json")
    trained = train_classification(classification_config(tmp_path, 4, init_from=folder))
    assert isinstance(trained.model, Bert)
    assert trained.model.config.head == "classification"


def test_initializing_from_another_architecture_is_an_error(tmp_path: Path) -> None:
    other = train_causal_lm(causal_lm_config(tmp_path)).run_dir
    with pytest.raises(WeightsError, match="contains a GPT, which cannot be trained to classify"):
        train_classification(classification_config(tmp_path, 4, run_dir=tmp_path / "tuned", init_from=other))


def test_long_texts_are_truncated(tmp_path: Path) -> None:
    trained = train_classification(classification_config(tmp_path, batch=BatchConfig(max_length=8)))
    assert trained.scores["loss"] > 0


def test_the_selected_length_is_stored_for_inference(tmp_path: Path) -> None:
    trained = train_classification(classification_config(tmp_path, 2))
    assert trained.resolved.config.batch.max_length == 32  # short reviews
    assert load_pipeline(trained.run_dir, device="cpu").max_input_length == 32


def test_pretrained_weights_determine_size_and_tokenizer(tmp_path: Path) -> None:
    encoder = train_masked_lm(masked_lm_config(tmp_path)).run_dir
    trained = train_classification(
        classification_config(tmp_path, 4, model=ModelConfig(), run_dir=tmp_path / "tuned", init_from=encoder)
    )
    assert trained.resolved.config.model.dim is None
    assert trained.model.config.dim == 32  # pyright: ignore[reportAttributeAccessIssue]
    (encoder / "tokenizer.json").unlink()
    with pytest.raises(WeightsError, match=r"tokenizer\.json does not exist"):
        train_classification(classification_config(tmp_path, 4, run_dir=tmp_path / "other", init_from=encoder))


def test_a_class_with_held_out_examples_only_is_a_class(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("text,label\n" + "".join(f"text {n},class{n % 20}\n" for n in range(60)), encoding="utf-8")
    trained = train_classification(classification_config(tmp_path, 2, data=(path,), text="text", label="label"))
    assert len(read_json(trained.run_dir / "labels.json")["labels"]) == 20


@pytest.mark.parametrize("token_types", [0, 1])
def test_models_without_token_types_are_trained_and_served(token_types: int, tmp_path: Path) -> None:
    """Like DistilBERT, which has no token types, and RoBERTa, which has one for all tokens."""
    rows = "".join(f"word{n}\tword{n if n % 2 else n + 1}\t{'same' if n % 2 else 'other'}\n" for n in range(60))
    (tmp_path / "pairs.tsv").write_text(f"one\ttwo\tkind\n{rows}", encoding="utf-8")
    words = train_tokenizer([], model_type="bytes")
    words.save(str(tmp_path / "words.json"))
    sizes = BertConfig(vocab_size=words.get_vocab_size(), context=32, dim=16, depth=1, heads=2, token_types=token_types)
    save(Bert(sizes), tmp_path / "start", tokenizer=tmp_path / "words.json")
    config = classification_config(
        tmp_path, steps=2, text="one", text_pair="two", label="kind", init_from=tmp_path / "start"
    )
    trained = train_classification(config.model_copy(update={"data": (tmp_path / "pairs.tsv",)}))
    (found,) = classify(load_pipeline(trained.run_dir, device="cpu"), [("word1", "word2")])
    loaded_model = load_model(trained.run_dir, "kinds")
    first = [loaded_model.tokenizer.cls_id, *loaded_model.tokenizer.encode(["word1"])[0], loaded_model.tokenizer.sep_id]
    row = [*first, *loaded_model.tokenizer.encode(["word2"])[0], loaded_model.tokenizer.sep_id]
    engine = Engine(scheduler_for(loaded_model, ServerLimits()))
    outputs: Queue[RequestOutput] = Queue()
    engine.submit([EngineRequest(tuple(row), second_start=len(first))], lambda _, output: outputs.put(output))
    logits = outputs.get(timeout=30).tensor
    engine.close()
    assert logits is not None
    probabilities = dict(zip(loaded_model.labels, logits.softmax(-1).tolist(), strict=True))
    assert probabilities == pytest.approx(dict(found.classes), abs=1e-5)


def test_ngrams_classify_before_attention_has_learned_anything(tmp_path: Path) -> None:
    with_ngrams = train_classification(classification_config(tmp_path, steps=1))
    plain = train_classification(classification_config(tmp_path, steps=1, no_ngrams=True, run_dir=tmp_path / "plain"))
    assert with_ngrams.scores["accuracy"] == 1.0 > plain.scores["accuracy"]
    assert isinstance(plain.model, Bert) and plain.model.ngrams is None
    assert "attention_loss" not in plain.scores


def test_a_saved_classifier_predicts_with_its_ngrams(tmp_path: Path) -> None:
    trained = train_classification(classification_config(tmp_path, steps=1))
    texts = ["film 900 was lovely", "film 901 was awful"]
    found = classify(load_pipeline(trained.run_dir, device="cpu"), texts)
    assert [max(one.classes.items(), key=itemgetter(1))[0] for one in found] == ["good", "bad"]


def test_the_mix_is_fitted_in_every_evaluation_and_calibrates_it(tmp_path: Path) -> None:
    """The loss is no worse than that of either part, and the weights are saved with the best checkpoint."""
    trained = train_classification(classification_config(tmp_path, steps=20, train={"evaluate_every": 5}))
    ngrams = trained.model.ngrams
    assert isinstance(ngrams, NGramClassifier) and ngrams.enabled
    assert ngrams.weights.min() > 0
    rows = {row["model"]: row["loss"] for row in trained.scores["compared"]}
    parts = (trained.scores["attention_loss"], rows["TF-IDF + logistic regression"])
    assert trained.scores["loss"] <= min(parts) + 0.01  # the weights have a weak penalty


def test_a_pretrained_encoder_gets_ngrams_unless_they_are_disabled(tmp_path: Path) -> None:
    encoder = train_masked_lm(masked_lm_config(tmp_path)).run_dir
    for ngrams in (True, False):
        folder = tmp_path / str(ngrams)
        config = classification_config(tmp_path, 1, run_dir=folder, init_from=encoder, no_ngrams=not ngrams)
        model = train_classification(config).model
        assert isinstance(model, Bert) and (model.ngrams is not None) == ngrams


def test_an_evaluation_on_a_share_uses_a_mix_of_classes(tmp_path: Path) -> None:
    """Validation files that are sorted by class are shuffled first."""
    tokenizer = TextTokenizer(train_tokenizer([], model_type="bytes"))
    made = ClassificationCollator(tokenizer, 32, SingleLabel(["a", "b"]))
    items = [(made.tokenizer.encode(f"text {n}"), [], int(n >= 50)) for n in range(100)]
    evaluator = ClassificationEvaluator(made, items, "loss")
    assert 0.2 < evaluator.targets[:20].float().mean() < 0.8
    rows = evaluator.baselines(1.0)
    assert [(row["model"], row["accuracy"]) for row in rows] == [("most common class", 0.5)]
    assert rows[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
