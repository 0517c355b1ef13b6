"""Generation configs of Hugging Face's: every field is applied, refused, or known not to matter."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from softlook.base.errors import ConfigError
from softlook.decode.generation_config import HONOURED, IRRELEVANT, REFUSED, habits_in, told_by
from softlook.decode.habits import Habits
from softlook.decode.search import Hypothesis

PLAIN = told_by({"vocab_size": 5})
TELLING: dict[str, Any] = {
    "bad_words_ids": [[9], [4, 5]], "begin_suppress_tokens": [3], "early_stopping": "never",
    "encoder_no_repeat_ngram_size": 2, "encoder_repetition_penalty": 1.5,
    "exponential_decay_length_penalty": [3, 1.2], "forced_bos_token_id": 0, "forced_eos_token_id": [2, 3],
    "length_penalty": 0.6, "max_length": 142, "max_new_tokens": 9, "min_length": 56, "min_new_tokens": 4,
    "no_repeat_ngram_size": 3, "num_beams": 6, "renormalize_logits": True, "repetition_penalty": 1.2,
    "suppress_tokens": [7],
}  # fmt: skip
"""A value of each field that is honoured by habits; ids of special tokens are read with the tokenizer."""
IDS = {"bos_token_id", "decoder_start_token_id", "eos_token_id"}


def test_every_field_of_the_installed_class_is_classified_once() -> None:
    fields = set(vars(GenerationConfig()))
    assert fields == {*HONOURED, *IRRELEVANT, *REFUSED}
    assert not (HONOURED & IRRELEVANT or HONOURED & REFUSED.keys() or IRRELEVANT & REFUSED.keys())
    assert {*TELLING, *IDS} == HONOURED


@pytest.mark.parametrize("name", TELLING)
def test_a_field_that_is_honoured_changes_how_answers_are_found(name: str) -> None:
    assert told_by({name: TELLING[name]}) != PLAIN
    assert not told_by({name: TELLING[name]}).refused


@pytest.mark.parametrize("name", [name for name in TELLING if name != "renormalize_logits"])
@pytest.mark.parametrize("odd", ["4", -1, 1e30, {"a": 1}, [[-1]], [None]], ids=repr)
def test_a_value_that_makes_no_sense_is_refused(name: str, odd: Any) -> None:
    if (name, odd) in [("length_penalty", -1), ("length_penalty", 1e30)] or (name.endswith("penalty") and odd == 1e30):
        pytest.skip("a number like any other")
    with pytest.raises(ConfigError, match=f"what softlook does not do: {name}: "):
        told_by({name: odd}).check()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_field_that_is_refused_is_named_where_a_translation_is_asked_for(name: str) -> None:
    found = told_by({name: 2})
    with pytest.raises(ConfigError, match=rf"what softlook does not do: {name}: 2\. Remove it from generation_config"):
        found.check()
    told_by({name: None}).check()


def test_defaults_of_hugging_face_are_refused_by_nobody() -> None:
    defaults = GenerationConfig._get_default_generation_params()
    told_by(defaults).check()
    assert told_by({**defaults, "max_length": None}) == PLAIN


def test_whoever_asks_for_beams_is_not_refused_for_a_file_that_would_draw_words() -> None:
    with pytest.raises(ConfigError, match="or say how many beams to search with"):
        told_by({"do_sample": True}).check()
    told_by({"do_sample": True}).check(searching=True)
    with pytest.raises(ConfigError, match="dola_layers"):
        told_by({"do_sample": True, "dola_layers": "high"}).check(searching=True)


def test_irrelevant_fields_change_nothing() -> None:
    assert told_by(dict.fromkeys(IRRELEVANT, 3)) == PLAIN


def test_new_tokens_take_precedence_over_lengths_that_count_the_first() -> None:
    assert told_by({"max_length": 142, "min_length": 56}) == Habits(1, longest=141, shortest=55, early=False)
    both = told_by({"max_length": 142, "max_new_tokens": 9, "min_length": 56, "min_new_tokens": 4})
    assert (both.longest, both.shortest) == (9, 4)
    assert both.room(3) == both.room(300) == 9


def test_an_answer_is_cut_where_its_end_is_missing_or_forced() -> None:
    whole, cut = Hypothesis(0.0, [1, 2], 0.0, end=5), Hypothesis(0.0, [1, 2, 3], 0.0)
    assert [Habits().is_cut(one, 3) for one in (whole, cut)] == [False, True]
    assert Habits(last=(5,)).is_cut(whole, 3)


def test_a_run_is_asked_as_it_was_tested(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"values": {"decode.beams": 3, "decode.penalty": 0.5}}))
    assert habits_in(tmp_path, {}) == Habits()
    (tmp_path / "best.json").write_text("{}")
    assert habits_in(tmp_path, {}) == Habits(beams=3, penalty=0.5)


def test_a_model_config_has_a_say_only_without_a_generation_config(tmp_path: Path) -> None:
    assert habits_in(tmp_path, {"num_beams": 3}).beams == 3
    (tmp_path / "generation_config.json").write_text(json.dumps({"length_penalty": 2.0}))
    assert habits_in(tmp_path, {"num_beams": 3, "length_penalty": 2.0}) == told_by({"length_penalty": 2.0})
