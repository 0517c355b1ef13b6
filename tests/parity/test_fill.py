"""Predictions for masks match transformers' fill-mask pipeline."""

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM, pipeline

from softlook.recipes.inference import fill_masks, load_pipeline

TEXTS = ["the cat <mask> bread", "<mask> dog sees the moon.", "my king eats <mask>."]


def byte_level_tokenizer() -> Tokenizer:
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["the cat eats bread", "the dog sees the moon.", "my king eats fish."], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    content = json.loads(tokenizer.to_str())
    next(token for token in content["added_tokens"] if token["content"] == "<mask>")["lstrip"] = True
    return Tokenizer.from_str(json.dumps(content))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = byte_level_tokenizer()
    config = RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
        type_vocab_size=1,
    )
    RobertaForMaskedLM(config).save_pretrained(tmp_path)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_predictions_match_the_fill_mask_pipeline(folder: Path) -> None:
    mask = AddedToken("<mask>", lstrip=True, special=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(), mask_token=mask, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    reference = pipeline("fill-mask", model=RobertaForMaskedLM.from_pretrained(folder), tokenizer=tokenizer, device=-1)
    expected = [reference(text, top_k=5) for text in TEXTS]
    for result, predictions in zip(fill_masks(load_pipeline(folder, device="cpu"), TEXTS), expected, strict=True):
        assert [one.id for one in result.masks[0]] == [one["token"] for one in predictions]
        for one, other in zip(result.masks[0], predictions, strict=True):
            assert one.probability == pytest.approx(other["score"], abs=1e-6)
            assert one.token == (other["token_str"].strip() or other["token_str"])
            if one.id > 4:  # transformers drops special tokens from the text
                assert one.text == other["sequence"]
