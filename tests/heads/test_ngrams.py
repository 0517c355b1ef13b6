"""N-gram classifiers: TF-IDF features, independent rows, the mix with another classifier, saving."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.heads.ngrams import CHARACTER_WEIGHT, NGramClassifier, bigram_keys, build_ngrams, character_ngrams
from softlook.models import Bert, BertConfig
from softlook.train.batching.collate import make_padding_mask, pad_sequences
from softlook.weights import load, save, to_hugging_face, to_onnx

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
VOCABULARY = ["<pad>", "cat", "cats", "sat", "on", "a", "mat", "<cls>"]
BIGRAMS = [(1, 3), (2, 3), (3, 4), (4, 5), (7, 1)]
CLASSES = 3
TEXTS = st.lists(st.lists(st.integers(1, len(VOCABULARY) - 1), min_size=1, max_size=12), min_size=1, max_size=5)
SEVERAL = [[7, 1, 3, 4, 5, 6], [7, 2, 3, 3, 3, 4, 6, 6], [5], [7, 1, 1, 3, 4, 5, 1]]


def key(first: int, second: int) -> int:
    return int(bigram_keys(torch.tensor([first, second]), len(VOCABULARY)))


def classifier(device: str = "cpu") -> NGramClassifier:
    """A classifier with random weights."""
    generator = torch.Generator().manual_seed(0)
    made = build_ngrams(VOCABULARY, torch.tensor(sorted(key(*pair) for pair in BIGRAMS)), CLASSES)
    made.weight.copy_(torch.randn(made.weight.shape, generator=generator))
    made.bias.copy_(torch.randn(CLASSES, generator=generator))
    made.idf.copy_(1 + torch.rand(made.num_features, generator=generator))
    made.weights.copy_(torch.tensor([0.3, 1.5]))
    return made.to(device)


def padded(texts: Sequence[Sequence[int]], device: str = "cpu", pad: int = 0) -> tuple[Tensor, Tensor]:
    ids, mask = pad_sequences(texts), make_padding_mask(texts)
    ids, mask = (torch.nn.functional.pad(tensor, (0, pad)) for tensor in (ids, mask))
    return ids.to(device), mask.to(device)


def dense(made: NGramClassifier, texts: Sequence[Sequence[int]]) -> Tensor:
    """The matrix of features."""
    row, column, value = made.features(*padded(texts, str(made.weight.device)))
    matrix = torch.zeros(len(texts), made.num_features, device=value.device)
    return matrix.index_put((row, column), value, accumulate=True).cpu()


def token_ngrams(ids: Sequence[int]) -> list[str]:
    """Tokens and known bigrams, as scikit-learn's analyzer would return them."""
    pairs = [pair for pair in zip(ids, ids[1:], strict=False) if pair in BIGRAMS]
    return [str(id) for id in ids] + [f"{first} {second}" for first, second in pairs]


def token_characters(ids: Sequence[int]) -> list[str]:
    return [ngram for id in ids for ngram in character_ngrams(VOCABULARY[id])]


def token_names() -> list[str]:
    """The n-grams of the columns before those of characters, in their order."""
    pairs = sorted(BIGRAMS, key=lambda pair: key(*pair))
    return [*map(str, range(len(VOCABULARY))), *(f"{first} {second}" for first, second in pairs)]


@pytest.mark.parametrize("device", DEVICES)
def test_features_equal_those_of_scikit_learn(device: str) -> None:
    made = classifier(device)
    characters = list(dict.fromkeys(ngram for token in VOCABULARY for ngram in character_ngrams(token)))
    blocks = []
    for analyzer, names in ((token_ngrams, token_names()), (token_characters, characters)):
        options: dict[str, Any] = {"analyzer": analyzer, "vocabulary": names}
        vectorizer = TfidfVectorizer(sublinear_tf=True, smooth_idf=True, norm="l2", **options)
        blocks.append((torch.from_numpy(vectorizer.fit_transform(SEVERAL).toarray()).float(), vectorizer.idf_))
    (tokens, token_idf), (letters, letter_idf) = blocks
    made.idf.copy_(torch.cat([torch.from_numpy(token_idf), torch.from_numpy(letter_idf)]))
    torch.testing.assert_close(dense(made, SEVERAL), torch.cat([tokens, CHARACTER_WEIGHT * letters], 1))


@pytest.mark.parametrize("device", DEVICES)
def test_logits_are_linear_in_the_features(device: str) -> None:
    made = classifier(device)
    expected = dense(made, SEVERAL) @ made.weight.cpu() + made.bias.cpu()
    torch.testing.assert_close(made(*padded(SEVERAL, device)).cpu(), expected)


@given(texts=TEXTS, pad=st.integers(1, 9))
def test_padding_does_not_change_the_result(texts: list[list[int]], pad: int) -> None:
    made = classifier()
    torch.testing.assert_close(made(*padded(texts, pad=pad)), made(*padded(texts)))


@given(texts=TEXTS)
def test_rows_are_independent_of_the_batch(texts: list[list[int]]) -> None:
    made = classifier()
    alone = torch.cat([made(*padded([text])) for text in texts])
    torch.testing.assert_close(made(*padded(texts)), alone)


def test_a_text_without_tokens_has_the_logits_of_the_bias() -> None:
    made = classifier()
    torch.testing.assert_close(made(*padded([[], [1, 3]]))[0], made.bias)


def test_without_a_padding_mask_every_id_is_a_token() -> None:
    made, ids = classifier(), torch.tensor([[0, 1, 3]])
    torch.testing.assert_close(made(ids), made(ids, torch.ones_like(ids, dtype=torch.bool)))


def test_unknown_bigrams_are_ignored() -> None:
    """The order of tokens then makes no difference."""
    made = classifier()
    assert not {(6, 2), (2, 6)} & set(BIGRAMS)
    torch.testing.assert_close(made(torch.tensor([[6, 2]])), made(torch.tensor([[2, 6]])))
    assert not torch.allclose(made(torch.tensor([[1, 3]])), made(torch.tensor([[3, 1]])))


def test_a_bigram_does_not_span_a_hidden_token() -> None:
    made, ids = classifier(), torch.tensor([[1, 6, 3]])
    hidden = made(ids, torch.tensor([[True, False, True]]))
    torch.testing.assert_close(hidden, made(torch.tensor([[3, 1]])))


@pytest.mark.parametrize("device", DEVICES)
def test_no_bigrams_and_no_characters_are_allowed(device: str) -> None:
    made = build_ngrams(["x", "y"], torch.empty(0, dtype=torch.int64), CLASSES).to(device)
    assert made(torch.tensor([[0, 1]], device=device)).shape == (1, CLASSES)


@pytest.mark.parametrize("device", DEVICES)
def test_the_mix_is_a_weighted_sum_of_log_probabilities(device: str) -> None:
    made, other = classifier(device), torch.randn(len(SEVERAL), CLASSES, device=device)
    expected = 0.3 * other.log_softmax(-1) + 1.5 * made(*padded(SEVERAL, device)).log_softmax(-1)
    torch.testing.assert_close(made.mix(other, *padded(SEVERAL, device)), expected)


def test_a_new_classifier_leaves_the_other_one_unchanged() -> None:
    made = build_ngrams(VOCABULARY, torch.tensor([key(1, 3)]), CLASSES)
    other = torch.randn(1, CLASSES)
    torch.testing.assert_close(made.mix(other, torch.tensor([[1, 3]])), other.log_softmax(-1))


def bert(ngrams: NGramClassifier | None) -> Bert:
    """A tiny BERT, the same each time, with this n-gram classifier."""
    torch.manual_seed(1)
    sizes = {"vocab_size": len(VOCABULARY), "context": 16, "dim": 16, "depth": 1, "heads": 2, "dropout": 0.0}
    config = BertConfig(**sizes, head="classification", classes=CLASSES, ngrams=ngrams and ngrams.config)
    model = Bert(config).eval()
    if ngrams is not None:
        model.ngrams = ngrams
    return model


@pytest.mark.parametrize("device", DEVICES)
def test_a_bert_with_ngrams_returns_the_mix(device: str) -> None:
    made = classifier(device)
    ids, mask = padded(SEVERAL, device)
    attention = bert(None).to(device)(ids, padding_mask=mask)
    found = bert(made).to(device)(ids, padding_mask=mask)
    torch.testing.assert_close(found, made.mix(attention, ids, mask))


def test_training_ignores_the_ngrams() -> None:
    ids, mask = padded(SEVERAL)
    plain, both = bert(None).train(), bert(classifier()).train()
    torch.testing.assert_close(both(ids, padding_mask=mask), plain(ids, padding_mask=mask))
    assert {name for name, _ in both.named_parameters()} == {name for name, _ in plain.named_parameters()}


def test_disabled_ngrams_are_ignored() -> None:
    ids, mask = padded(SEVERAL)
    made = classifier()
    made.enabled = False
    torch.testing.assert_close(bert(made)(ids, padding_mask=mask), bert(None)(ids, padding_mask=mask))


def test_a_saved_bert_with_ngrams_gives_equal_logits(tmp_path: Path) -> None:
    model = bert(classifier())
    ids, mask = padded(SEVERAL)
    loaded = load(save(model, tmp_path / "bert"))
    assert loaded.config == model.config
    assert torch.equal(loaded(ids, padding_mask=mask), model(ids, padding_mask=mask))


@pytest.mark.parametrize("export", [to_hugging_face, to_onnx])
def test_a_bert_with_ngrams_cannot_be_exported(export: Callable[..., Path], tmp_path: Path) -> None:
    """Without its n-grams it would classify differently."""
    with pytest.raises(WeightsError, match="--no-ngrams"):
        export(bert(classifier()), tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_half_precision_weights_give_similar_logits() -> None:
    made = classifier()
    expected = made(*padded(SEVERAL))
    torch.testing.assert_close(made.bfloat16()(*padded(SEVERAL)).float(), expected, atol=0.1, rtol=0.05)
