"""Hugging Face generation configs: every field is supported, unsupported or ignored."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig as HFGenerationConfig

from softlook.base.errors import ConfigError
from softlook.decode import GeneratedToken, SequenceView
from softlook.decode.beam.hypotheses import Hypothesis
from softlook.decode.generation_config import (
    UNSUPPORTED_FIELDS,
    GenerationConfig,
    hypothesis_from_tokens,
    load_generation_config,
    parse_generation_config,
)

PLAIN = parse_generation_config({"vocab_size": 5})
VALUES: dict[str, Any] = {
    "bad_words_ids": [[9], [4, 5]], "begin_suppress_tokens": [3], "early_stopping": "never",
    "encoder_no_repeat_ngram_size": 2, "encoder_repetition_penalty": 1.5,
    "exponential_decay_length_penalty": [3, 1.2], "forced_bos_token_id": 0, "forced_eos_token_id": [2, 3],
    "length_penalty": 0.6, "max_length": 142, "max_new_tokens": 9, "min_length": 56, "min_new_tokens": 4,
    "no_repeat_ngram_size": 3, "num_beams": 6, "renormalize_logits": True, "repetition_penalty": 1.2,
    "suppress_tokens": [7],
}  # fmt: skip
"""A value for each supported field; the ids of special tokens are read with the tokenizer."""
IDS = {"bos_token_id", "decoder_start_token_id", "eos_token_id"}
SUPPORTED_FIELDS = {*VALUES, *IDS}
IGNORED_FIELDS = frozenset({
    # how the same tokens are computed: drafts, caches, compilation
    "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight", "assistant_lookbehind",
    "cache_config", "cache_implementation", "compile_config", "continuous_batching_config", "disable_compile",
    "is_assistant", "low_memory", "max_cache_len", "max_matching_ngram_size", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "prefill_chunk_size", "prompt_lookup_num_tokens", "speculation_type",
    "target_lookbehind", "use_cache", "use_mtp",
    # additional outputs
    "num_return_sequences", "output_attentions", "output_hidden_states", "output_logits", "output_scores",
    "return_dict_in_generate",
    # sampling parameters, which only `do_sample` enables
    "epsilon_cutoff", "eta_cutoff", "min_p", "temperature", "top_h", "top_k", "top_p", "typical_p",
    # padding, invalid logits (which fail their row) and the origin of the file
    "_from_model_config", "pad_token_id", "remove_invalid_values", "transformers_version",
})  # fmt: skip
"""Fields that do not change which tokens are generated."""


def test_every_field_of_the_installed_class_is_classified_once() -> None:
    fields = set(vars(HFGenerationConfig()))
    assert fields == {*SUPPORTED_FIELDS, *IGNORED_FIELDS, *UNSUPPORTED_FIELDS}
    assert not (
        SUPPORTED_FIELDS & IGNORED_FIELDS
        or SUPPORTED_FIELDS & UNSUPPORTED_FIELDS.keys()
        or IGNORED_FIELDS & UNSUPPORTED_FIELDS.keys()
    )


@pytest.mark.parametrize("name", VALUES)
def test_supported_fields_change_the_config(name: str) -> None:
    assert parse_generation_config({name: VALUES[name]}) != PLAIN
    assert not parse_generation_config({name: VALUES[name]}).unsupported


@pytest.mark.parametrize("name", [name for name in VALUES if name != "renormalize_logits"])
@pytest.mark.parametrize("invalid", ["4", -1, 1e30, {"a": 1}, [[-1]], [None]], ids=repr)
def test_invalid_values_are_unsupported(name: str, invalid: Any) -> None:
    if (name, invalid) in [("length_penalty", -1), ("length_penalty", 1e30)] or (
        name.endswith("penalty") and invalid == 1e30
    ):
        pytest.skip("a valid number")
    with pytest.raises(ConfigError, match=f"sets unsupported fields: {name}: "):
        parse_generation_config({name: invalid}).check_supported()


@pytest.mark.parametrize("name", sorted(UNSUPPORTED_FIELDS))
def test_unsupported_fields_are_named_in_the_error(name: str) -> None:
    found = parse_generation_config({name: 2})
    with pytest.raises(ConfigError, match=rf"sets unsupported fields: {name}: 2\. Remove them from generation_config"):
        found.check_supported()
    parse_generation_config({name: None}).check_supported()


def test_hugging_face_defaults_are_supported() -> None:
    defaults = HFGenerationConfig._get_default_generation_params()
    parse_generation_config(defaults).check_supported()
    assert parse_generation_config({**defaults, "max_length": None}) == PLAIN


def test_beam_search_overrides_do_sample() -> None:
    with pytest.raises(ConfigError, match="or set num_beams"):
        parse_generation_config({"do_sample": True}).check_supported()
    parse_generation_config({"do_sample": True}).check_supported(beam_search=True)
    with pytest.raises(ConfigError, match="dola_layers"):
        parse_generation_config({"do_sample": True, "dola_layers": "high"}).check_supported(beam_search=True)


def test_ignored_fields_have_no_effect() -> None:
    assert parse_generation_config(dict.fromkeys(IGNORED_FIELDS, 3)) == PLAIN


def test_max_new_tokens_takes_precedence_over_max_length() -> None:
    assert parse_generation_config({"max_length": 142, "min_length": 56}) == GenerationConfig(
        1, max_new_tokens=141, min_new_tokens=55, early_stopping=False
    )
    both = parse_generation_config({"max_length": 142, "max_new_tokens": 9, "min_length": 56, "min_new_tokens": 4})
    assert (both.max_new_tokens, both.min_new_tokens) == (9, 4)
    assert both.max_tokens_for(3) == both.max_tokens_for(300) == 9


def test_truncated_without_eos_or_with_forced_eos() -> None:
    complete, truncated = Hypothesis(0.0, [1, 2], 0.0, eos_id=5), Hypothesis(0.0, [1, 2, 3], 0.0)
    assert [GenerationConfig().is_truncated(one, 3) for one in (complete, truncated)] == [False, True]
    assert GenerationConfig(forced_eos_token_ids=(5,)).is_truncated(complete, 3)


def test_run_directory_config(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(
        json.dumps({"values": {"decode.num_beams": 3, "decode.length_penalty": 0.5}})
    )
    assert load_generation_config(tmp_path, {}) == GenerationConfig()
    (tmp_path / "best.json").write_text("{}")
    assert load_generation_config(tmp_path, {}) == GenerationConfig(num_beams=3, length_penalty=0.5)


def test_model_config_counts_only_without_generation_config(tmp_path: Path) -> None:
    assert load_generation_config(tmp_path, {"num_beams": 3}).num_beams == 3
    (tmp_path / "generation_config.json").write_text(json.dumps({"length_penalty": 2.0}))
    assert load_generation_config(tmp_path, {"num_beams": 3, "length_penalty": 2.0}) == parse_generation_config(
        {"length_penalty": 2.0}
    )


def test_processors_apply_at_the_first_and_last_token() -> None:
    processors = GenerationConfig(
        forced_bos_token_id=1, forced_eos_token_ids=(2,), bad_words_ids=((0,),), renormalize_logits=True
    ).logits_processors(3)

    def probabilities(*generated: int) -> list[float]:
        logits = torch.zeros(1, 4)
        for process in processors:
            logits = process(logits, [SequenceView([3], generated)])
        return [round(value, 3) for value in logits.exp()[0].tolist()]

    assert probabilities() == [0, 1, 0, 0]
    assert probabilities(1) == [0, 0.333, 0.333, 0.333]
    assert probabilities(1, 3) == [0, 0, 1, 0]


def test_greedy_hypothesis_score() -> None:
    found = hypothesis_from_tokens(
        [GeneratedToken(5, -1.0, 1), GeneratedToken(6, -2.0, 1)], GeneratedToken(2, -3.0, 1), 1.0
    )
    assert (found.score, found.ids, found.logprob, found.eos_id) == (-2.0, [5, 6], -6.0, 2)
    assert hypothesis_from_tokens([GeneratedToken(5, -1.0, 1), GeneratedToken(6, -3.0, 1)], None, 0.0).score == -4.0
