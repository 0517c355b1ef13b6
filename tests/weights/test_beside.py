"""What stands around texts: softlook's own signs, or what other people's files say, and never a guess between them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing

from softlook.models import GPT, GPTConfig, Transformer, TransformerConfig
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.weights import save
from softlook.weights.beside import Signs, beside, signs_of, theirs_in

SIZES: dict[str, Any] = {"vocab": 300, "dim": 8, "depth": 1, "heads": 1}
GPT_MODEL, TRANSLATOR = GPT(GPTConfig(context=8, **SIZES)), Transformer(TransformerConfig(**SIZES))


def stranger(template: str | None = None) -> TextTokenizer:
    """Somebody else's: <s> is 0, </s> is 1."""
    words = Tokenizer(WordLevel({"<s>": 0, "</s>": 1, "a": 2}, "a"))
    if template is not None:
        signs = [("<s>", 0), ("</s>", 1)]
        words.post_processor = TemplateProcessing(single=template, special_tokens=signs)  # pyright: ignore[reportAttributeAccessIssue]
    return TextTokenizer(words)


def test_softlooks_own_signs_are_those_of_training() -> None:
    own = TextTokenizer(train_tokenizer([], kind="bytes"))
    begin, end = (own.begin,), (own.end,)
    assert signs_of(own, {}, GPT_MODEL) == Signs(begin, (), begin, end)
    assert signs_of(own, {}, TRANSLATOR) == Signs((), end, begin, end)


def test_other_peoples_tokenizers_and_files_say_theirs() -> None:
    told = {"eos_token_id": 1, "decoder_start_token_id": 2, "bos_token_id": 0}
    assert signs_of(stranger("<s> $A </s>"), told, TRANSLATOR) == Signs((0,), (1,), (2,), (1,))
    assert signs_of(stranger("<s> $A"), told, GPT_MODEL) == Signs((0,), (), (0,), (1,))
    assert signs_of(stranger(), told, GPT_MODEL) == Signs((), (), (0,), (1,))


def test_a_source_ends_even_where_the_tokenizer_says_nothing() -> None:
    assert signs_of(stranger(), {"eos_token_id": [1, 2]}, TRANSLATOR) == Signs((), (1,), (0,), (1, 2))


@pytest.mark.parametrize("odd", ["1", True, -3, [None, "x"], {}])
def test_ids_that_are_none_are_as_though_not_said(odd: Any) -> None:
    assert signs_of(stranger(), {"eos_token_id": odd}, GPT_MODEL).end == (1,)


def test_the_file_about_answers_has_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 1, "bos_token_id": 5}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "bos_token_id": None}))
    assert theirs_in(tmp_path) == {"eos_token_id": 2, "bos_token_id": 5}


def test_a_checkpoint_brings_all_of_it(tmp_path: Path) -> None:
    train_tokenizer([], kind="bytes").save(str(tmp_path / "words.json"))
    folder = save(GPT_MODEL, tmp_path / "mine", tokenizer=tmp_path / "words.json")
    found = beside(folder, GPT_MODEL)
    assert found.theirs == {} and found.labels == [] and found.signs.before == (found.tokenizer.begin,)
