"""Multilingual translation models: language tokens as in Hugging Face."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import MBartConfig, MBartForConditionalGeneration

from softlook.base.errors import ConfigError
from softlook.recipes.inference import load_pipeline, translate, with_languages

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "en_XX", "fr_XX", "de_DE"]
WORDS = ["a", "soft", "look", "at", "word", "is", "this", "one"]
SIZES: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
}
HEADS: dict[str, Any] = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}


@pytest.fixture(params=["$A </s> en_XX", "en_XX $A </s>"], ids=["as in mBART", "as in mBART-50"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    vocab = len(SPECIAL) + len(WORDS)
    config = MBartConfig(
        vocab_size=vocab, **SIZES, **HEADS, decoder_start_token_id=2, forced_eos_token_id=None, init_std=0.6
    )
    model: Any = MBartForConditionalGeneration(config)
    model.generation_config.update(max_length=9, num_beams=2)
    model.save_pretrained(tmp_path)
    pieces = [(word, 0.0) for word in SPECIAL] + [(f"\N{LOWER ONE EIGHTH BLOCK}{word}", -1.0) for word in WORDS]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    special = [(token, number) for number, token in enumerate(SPECIAL)]
    tokenizer.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single=request.param, pair=None, special_tokens=special
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("source", ["en_XX", "de_DE"])
@pytest.mark.parametrize("target", ["fr_XX", "de_DE"])
def test_translations_between_languages_equal_hugging_face(source: str, target: str, folder: Path) -> None:
    run = with_languages(load_pipeline(folder, device="cpu"), source, target)
    reference: Any = MBartForConditionalGeneration.from_pretrained(folder).eval()
    text = run.tokenizer.encode(["this is a soft look"])[0]
    is_suffix = load_pipeline(folder, device="cpu").special_tokens.prefix == ()
    language = SPECIAL.index(source)
    row = [*text, 2, language] if is_suffix else [language, *text, 2]
    expected = reference.generate(torch.tensor([row]), forced_bos_token_id=SPECIAL.index(target))[0].tolist()
    assert expected[1] == SPECIAL.index(target)
    assert translate(run, ["this is a soft look"])[0].text == run.tokenizer.decode(
        [id for id in expected[1:] if id > 6]
    )


def test_languages_default_to_the_files(folder: Path) -> None:
    run = load_pipeline(folder, device="cpu")
    assert with_languages(run) == run
    assert with_languages(run, "en_XX").special_tokens == run.special_tokens
    assert with_languages(run, target="fr_XX").special_tokens == run.special_tokens


def test_an_unknown_language_is_an_error_that_names_some(folder: Path) -> None:
    run = load_pipeline(folder, device="cpu")
    with pytest.raises(ConfigError, match="no special token for the language 'xx_XX'. It has de_DE, en_XX, fr_XX"):
        with_languages(run, target="xx_XX")
    with pytest.raises(ConfigError, match="no special token for the language 'soft'"):
        with_languages(run, target="soft")


def test_a_monolingual_model_has_no_languages() -> None:
    with pytest.raises(ConfigError, match="It has no language tokens"):
        with_languages(load_pipeline("dates", device="cpu"), target="fr_XX")
