"""Taggers learn the entities of sentences; words keep their tags whatever their tokens."""

from pathlib import Path

import pytest
import torch

from softlook.base.errors import DataError
from softlook.data import TaggedText
from softlook.losses import IGNORE_INDEX
from softlook.recipes import evaluate, load_pipeline, train_tagging
from softlook.recipes.config.schema import BatchConfig, LoraConfig, ModelConfig, TaggingConfig
from softlook.recipes.inference import tag
from softlook.recipes.text.tagging import collate_stored, drop_words, evaluate_tags, label_rows
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.words import WordEncoder
from softlook.train.config import OptimizerConfig, TrainingConfig
from softlook.weights import to_hugging_face
from tests.recipes.small import entities, tagging_config
from tests.recipes.trained_runs import train_runs

NAMES = ["O", "B-PER", "I-PER"]
ADA = TaggedText(("Ada", "Lovelace", "sings"), ("B-PER", "I-PER", "O"))


def encoder(max_length: int = 30) -> WordEncoder:
    return WordEncoder(TextTokenizer(train_tokenizer(["Ada Lovelace sings"] * 9, vocab_size=290)), max_length)


def test_the_first_token_of_a_word_has_its_label() -> None:
    words = encoder()
    [(ids, types, labels)] = label_rows(words, [ADA], NAMES)
    batch = collate_stored(0, [(list(ids), list(types), list(labels))])
    [[chunk]] = words.encode([ADA.tokens])
    assert batch.labels[0, chunk.positions].tolist() == [1, 2, 0]
    assert int((batch.labels != IGNORE_INDEX).sum()) == 3


def test_a_long_sentence_keeps_all_its_labels() -> None:
    rows = list(label_rows(encoder(max_length=8), [TaggedText(ADA.tokens * 9, ADA.tags * 9)], NAMES))
    assert len(rows) > 1 and all(len(ids) <= 8 for ids, _, _ in rows)
    assert [label for _, _, labels in rows for label in labels if label] == [2, 3, 1] * 9


def test_word_dropout_masks_tokens_but_not_the_special_ones() -> None:
    [row] = label_rows(encoder(), [ADA], NAMES)
    batch = collate_stored(0, [tuple(map(list, row)), ([5, 6, 7], [0, 0, 0], [0, 1, 0])])
    dropped = drop_words(0.999, 4, 1, batch, torch.Generator().manual_seed(0))
    assert torch.equal(dropped.ids[:, 0], batch.ids[:, 0])
    assert (dropped.ids[batch.padding_mask][1:] == 4).float().mean() > 0.7
    assert torch.equal(dropped.ids[~batch.padding_mask], batch.ids[~batch.padding_mask])


class Oracle(torch.nn.Module):
    """Predicts the outside tag everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.weight = type("Config", (), {"classes": 3}), torch.nn.Parameter(torch.zeros(1))

    def forward(self, ids: torch.Tensor, **_: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.zeros_like(ids), 3).float()


def test_an_unknown_tag_of_validation_data_counts_as_missed() -> None:
    examples = [TaggedText(("Ada", "sings"), ("B-NEW", "O"))]
    scores = evaluate_tags(encoder(), examples, NAMES, "f1", Oracle())
    assert scores["recall"] == 0 and scores["accuracy"] == 0.5 and scores["error"] == 1
    assert list(evaluate_tags(encoder(), examples, NAMES, "loss", Oracle()))[0] == "loss"


def test_a_tagger_learns_entities_it_has_not_seen(tmp_path: Path) -> None:
    """A run of a few seconds on invented names; the test data have other names."""
    data, test = entities(tmp_path / "names.conll", 1000), entities(tmp_path / "test.conll", 100, seed=5)
    config = tagging_config(
        tmp_path,
        300,
        data=(data,),
        test=(test,),
        model=ModelConfig(dim=64, depth=2, heads=2, dropout=0.0),
        optim=OptimizerConfig(lr=2e-3),
    )
    scores = train_tagging(config).scores
    assert scores["test"]["f1"] > 0.75 and scores["test"]["accuracy"] > 0.9
    assert set(scores["test"]["labels"]) == {"PER", "LOC", "DATE"}
    assert evaluate(tmp_path / "run", (test,), device="cpu") == scores["test"]
    run = load_pipeline(tmp_path / "run", device="cpu")
    [result] = tag(run, ["On 3 May 2021, Mira Kalu flew from Velu to Corjo."])
    assert ("3 May 2021", "DATE", 3, 13) in {(one.text, one.label, one.start, one.end) for one in result.entities}


@pytest.mark.slow
def test_a_run_of_one_minute_with_automatic_settings_learns_entities(tmp_path: Path) -> None:
    data, test = entities(tmp_path / "names.conll", 3000), entities(tmp_path / "test.conll", 300, seed=5)
    training = TrainingConfig(max_minutes=1, device="cpu")
    config = TaggingConfig(data=(data,), test=(test,), run_dir=tmp_path / "run", training=training)
    assert train_tagging(config).scores["f1"] > 0.85


def test_a_tagger_starts_from_a_pretrained_encoder_with_and_without_lora(tmp_path: Path) -> None:
    base = train_runs(tmp_path, "mlm")["mlm"]
    for lora in (LoraConfig(), LoraConfig(rank=2)):
        folder = tmp_path / f"tag{lora.rank}"
        folder.mkdir()
        values = {"init_from": base, "lora": lora, "model": ModelConfig()}
        run = load_pipeline(train_tagging(tagging_config(folder, 2, **values)).run_dir, device="cpu")
        assert run.model.config.head == "token_classification" and run.labels[0] == "O"


def test_a_tagger_survives_hugging_faces_format(tmp_path: Path) -> None:
    run_dir = train_runs(tmp_path, "tag")["tag"]
    run = load_pipeline(run_dir, device="cpu")
    to_hugging_face(run.model, tmp_path / "hf", tokenizer=run_dir / "tokenizer.json", labels=run.labels)
    exported = load_pipeline(tmp_path / "hf", device="cpu")
    assert exported.task == "tag" and exported.labels == run.labels
    text = "Dabel Nora lives in Hijo."
    assert tag(exported, [text]) == tag(run, [text])


def test_one_tag_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Ada O\n\nBob O\n\nEva O\n")
    with pytest.raises(DataError, match="all tokens have the tag 'O'"):
        train_tagging(TaggingConfig(data=(tmp_path / "a.conll",), run_dir=tmp_path / "run"))


def test_sentences_longer_than_the_model_are_trained_on(tmp_path: Path) -> None:
    result = train_tagging(tagging_config(tmp_path, 2, batch=BatchConfig(max_length=8)))
    assert load_pipeline(result.run_dir, device="cpu").model.config.context == 8
