"""Predictions for masks: the tokens a masked language model has been trained to predict, put into the text."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from softlook.base.errors import ConfigError, DataError
from softlook.models import Bert, BertConfig
from softlook.recipes.inference import Pipeline, TextInput, fill_masks, load_pipeline
from softlook.recipes.inference import fill as fill_module
from softlook.recipes.inference.fill import _mask_parser
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.weights.assets import SpecialTokens
from tests.recipes.trained_runs import train_runs

TEXT = "the cat eats bread, and the dog sees the moon."
CPU = torch.device("cpu")


def word_pieces() -> TextTokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "walk", "##ing", "##s", "sat", "."]
    tokenizer = Tokenizer(models.WordPiece({word: id for id, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in words[:5]])
    return TextTokenizer(tokenizer)


def pipeline_of(tokenizer: TextTokenizer, **changes: Any) -> Pipeline:
    options: dict[str, Any] = {"context": 32, "dim": 16, "depth": 1, "heads": 2, "head": "masked_lm"} | changes
    model = Bert(BertConfig(vocab_size=tokenizer.vocab_size, **options)).eval()
    return Pipeline("tiny", model, tokenizer, SpecialTokens(), [], CPU)


def prefer(pipeline: Pipeline, token: str) -> Pipeline:
    """The same model, which predicts this token everywhere."""
    id = pipeline.tokenizer.tokenizer.token_to_id(token)
    with torch.no_grad():
        pipeline.model.head.to_logits.bias[id] += 100
    return pipeline


def test_probabilities_are_the_softmax_of_the_logits_at_the_mask() -> None:
    pipeline = pipeline_of(word_pieces())
    ((predictions,),) = (result.masks for result in fill_masks(pipeline, ["the [MASK] sat"], top_k=12))
    with torch.no_grad():
        logits = pipeline.model(torch.tensor([[2, 5, 4, 10, 3]]))[0, 2]
    expected = logits.softmax(-1)
    assert [one.id for one in predictions] == expected.argsort(descending=True).tolist()
    assert sum(one.probability for one in predictions) == pytest.approx(1)
    torch.testing.assert_close(torch.tensor([one.probability for one in predictions]), expected.sort().values.flip(0))


@pytest.mark.parametrize("spelling", ["[MASK]", "<mask>"])
@pytest.mark.parametrize("tokenizer", [word_pieces(), TextTokenizer(train_tokenizer([TEXT], model_type="words"))])
def test_a_mask_may_be_written_as_in_any_model(spelling: str, tokenizer: TextTokenizer) -> None:
    (result,) = fill_masks(prefer(pipeline_of(tokenizer), "cat"), [f"the {spelling} ."])
    assert (result.masks[0][0].token, result.filled) == ("cat", "the cat .")


@pytest.mark.parametrize(
    ("text", "token", "filled"),
    [
        ("The [MASK] sat.", "cat", "The cat sat."),
        ("[MASK] sat", "cat", "cat sat"),
        ("the cat walk [MASK].", "##ing", "the cat walking."),
        ("the [MASK]", "[UNK]", "the [UNK]"),
        ("[MASK] [MASK]", "cat", "cat cat"),
    ],
)
def test_word_pieces_are_joined_to_the_word_before_them(text: str, token: str, filled: str) -> None:
    assert fill_masks(prefer(pipeline_of(word_pieces()), token), [text])[0].filled == filled


def test_each_prediction_fills_its_own_mask_and_leaves_the_others() -> None:
    (result,) = fill_masks(prefer(pipeline_of(word_pieces()), "cat"), ["the [MASK] sat <mask>"], top_k=1)
    assert [one.text for (one,) in result.masks] == ["the cat sat <mask>", "the [MASK] sat cat"]


def test_the_mask_of_a_bpe_model_replaces_a_word_with_its_space() -> None:
    tokenizer = TextTokenizer(train_tokenizer([TEXT] * 9, vocab_size=400))
    parser, prefix = _mask_parser(tokenizer)
    words = TEXT.replace(",", " ,").replace(".", " .").split()
    plain = tokenizer.encode([TEXT])[0]
    for word in set(words):
        ids = parser.encode(prefix + TEXT.replace(word, "<mask>", 1), add_special_tokens=False).ids
        assert len(ids) == len(plain) and ids.count(tokenizer.mask_id) == 1
        assert [one for one, other in zip(ids, plain, strict=True) if one != other] == [tokenizer.mask_id]


def test_the_filled_text_of_a_bpe_model_has_its_spaces() -> None:
    tokenizer = TextTokenizer(train_tokenizer([TEXT] * 9, vocab_size=400))
    pipeline = prefer(pipeline_of(tokenizer), "Ġcat")
    results = fill_masks(pipeline, ["the [MASK] eats bread.", "[MASK]!", "the dog, [MASK], sees"])
    assert [result.filled for result in results] == ["the cat eats bread.", "cat!", "the dog, cat, sees"]


def test_a_space_that_is_a_token_is_kept() -> None:
    tokenizer = TextTokenizer(train_tokenizer([TEXT], model_type="characters"))
    assert fill_masks(prefer(pipeline_of(tokenizer), "m"), ["the [MASK]oon"])[0].filled == "the moon"


def test_results_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = pipeline_of(word_pieces())
    texts = ["the [MASK]", "the cat sat . the [MASK] sat", "[MASK]", "the cat [MASK] the cat"]
    together = fill_masks(pipeline, texts)
    monkeypatch.setattr(fill_module, "MAX_BATCH_TOKENS", 1)
    alone = fill_masks(pipeline, texts)
    assert [one.text for one in together] == texts
    for one, other in zip(together, alone, strict=True):
        assert [p.id for p in one.masks[0]] == [p.id for p in other.masks[0]]
        assert one.masks[0][0].probability == pytest.approx(other.masks[0][0].probability, abs=1e-6)


def test_a_pretraining_head_predicts_masks_too() -> None:
    assert len(fill_masks(pipeline_of(word_pieces(), head="pretraining"), ["the [MASK]"])[0].masks[0]) == 5


def test_a_trained_run_fills_masks_and_still_embeds(tmp_path: Path) -> None:
    pipeline = load_pipeline(train_runs(tmp_path, "mlm")["mlm"], device="cpu")
    assert pipeline.task == "embed"
    assert fill_masks(pipeline, [TextInput("the c[MASK]t")])[0].filled.startswith("the c")


def test_texts_and_models_without_masks_are_errors() -> None:
    pipeline = pipeline_of(word_pieces())
    with pytest.raises(DataError, match="this text has no mask"):
        fill_masks(pipeline, ["the cat"])
    with pytest.raises(DataError, match="the text has 42 tokens; the model reads 32"):
        fill_masks(pipeline, ["cat " * 39 + "[MASK]"])
    with pytest.raises(ConfigError, match="no masked language modeling head"):
        fill_masks(pipeline_of(word_pieces(), head="pooled"), ["[MASK]"])
    with pytest.raises(ConfigError, match="top_k of at least 1"):
        fill_masks(pipeline, ["[MASK]"], top_k=0)
