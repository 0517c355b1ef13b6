"""Random generation configs, and the outputs of Hugging Face's `generate` and softlook with the same weights."""

import warnings
from collections.abc import Sequence
from random import Random
from typing import Any

import torch
from transformers import GenerationConfig

from softlook.decode import CausalLMSession, beam_search, generate
from softlook.decode.generation_config import parse_generation_config
from softlook.recipes.inference.translation import search_translations
from tests.parity.test_generate import PAD, VOCAB

Candidates = list[list[tuple[list[int], float]]]
"""For each row the candidates, best first, each with its score."""
TIE = 2e-5
"""Candidates whose scores differ by less may swap ranks."""
TOKENS = [id for id in range(VOCAB) if id != PAD]


def draw_settings(seed: int, *, seq2seq: bool) -> dict[str, Any]:
    """Random fields of a generation config, with values that change the output."""
    draw = Random(seed)
    eos_ids = draw.sample(TOKENS, draw.choice([1, 1, 1, 2]))
    settings: dict[str, Any] = {
        "num_beams": draw.choice([1, 1, 2, 3, 5]),
        "eos_token_id": eos_ids,
        "max_new_tokens": draw.randint(1, 12),
        "early_stopping": draw.choice([True, False, "never", None]),
        "length_penalty": draw.choice([-1.0, 0.0, 0.6, 1.0, 2.0]),
    }
    optional: dict[str, Any] = {
        "no_repeat_ngram_size": draw.choice([1, 2, 3]),
        "repetition_penalty": draw.choice([0.8, 1.2, 1.7]),
        "min_new_tokens": draw.randint(1, 8),
        "bad_words_ids": [draw.sample(TOKENS, draw.choice([1, 1, 2])) for _ in range(3)] + [[eos_ids[0]]],
        "suppress_tokens": draw.sample(TOKENS, 4),
        "begin_suppress_tokens": draw.sample(TOKENS, 8),
        "forced_eos_token_id": draw.choice([eos_ids[0], eos_ids]),
        "exponential_decay_length_penalty": [draw.randint(0, 4), draw.choice([1.1, 1.5])],
        "renormalize_logits": True,
    }
    if seq2seq:
        optional |= {
            "forced_bos_token_id": draw.choice(TOKENS),  # transformers applies it only after a prompt of one token
            "encoder_no_repeat_ngram_size": draw.choice([1, 2]),
            "encoder_repetition_penalty": draw.choice([0.7, 1.5]),
            "min_length": draw.randint(1, 8),
            "max_length": draw.randint(2, 12),
        }
    settings |= {name: optional[name] for name in draw.sample(sorted(optional), draw.randint(0, 4))}
    if "max_length" in settings:
        del settings["max_new_tokens"]
    if "min_new_tokens" in settings:
        settings.pop("min_length", None)
    return settings


def draw_rows(seed: int, *, equal_lengths: bool) -> list[list[int]]:
    draw = Random(f"rows {seed}")
    length = draw.randint(2, 8)
    return [[draw.choice(TOKENS) for _ in range(length if equal_lengths else draw.randint(2, 8))] for _ in range(3)]


def run_reference(reference: Any, rows: Sequence[Sequence[int]], settings: dict[str, Any]) -> Candidates:
    """The outputs of `generate` for right-padded rows."""
    width, num_beams = max(map(len, rows)), settings["num_beams"]
    ids = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])
    padding_mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    own = {"pad_token_id": PAD, "decoder_start_token_id": PAD} if reference.config.is_encoder_decoder else {}
    config = GenerationConfig(
        **{**settings, "pad_token_id": PAD, **own}, do_sample=False, num_return_sequences=num_beams,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of settings that contradict each other
        output = reference.generate(ids, attention_mask=padding_mask, generation_config=config)
    new = output.sequences[:, 1 if reference.config.is_encoder_decoder else width :].tolist()
    scores = output.sequences_scores.tolist() if num_beams > 1 else [0.0] * len(new)
    flat = [(_before_eos(row, settings["eos_token_id"]), score) for row, score in zip(new, scores, strict=True)]
    return [[one for one in flat[i : i + num_beams] if one[1] > -1e8] for i in range(0, len(flat), num_beams)]


def _before_eos(row: list[int], eos_ids: list[int]) -> list[int]:
    return next((row[:index] for index, id in enumerate(row) if id in eos_ids), row)


def run_translation(actual: Any, rows: Sequence[Sequence[int]], settings: dict[str, Any]) -> Candidates:
    """softlook's translations with the same generation config."""
    config = parse_generation_config(settings)
    config.check_supported()
    found = search_translations(
        actual, rows, bos_id=PAD, eos_ids=settings["eos_token_id"],
        num_beams=config.num_beams, length_penalty=config.length_penalty, config=config,
    )  # fmt: skip
    return [[(one.ids, one.score) for one in several] for several in found]


def run_generation(actual: Any, rows: Sequence[Sequence[int]], settings: dict[str, Any]) -> Candidates:
    """softlook's continuations with the same generation config."""
    config, eos_ids, max_tokens = (
        parse_generation_config(settings),
        settings["eos_token_id"],
        settings["max_new_tokens"],
    )
    processors = config.logits_processors(max_tokens, eos_ids)
    if config.num_beams == 1:
        outputs = generate(actual, rows, eos_ids=eos_ids, max_new_tokens=max_tokens, logits_processors=processors)
        return [[(output.ids, 0.0)] for output in outputs]
    found = beam_search(
        CausalLMSession(actual), rows, eos_ids=eos_ids, max_new_tokens=max_tokens, logits_processors=processors,
        num_beams=config.num_beams, length_penalty=config.length_penalty, early_stopping=config.early_stopping,
    )  # fmt: skip
    return [[(one.ids, one.score) for one in several] for several in found]


def differences(actual: Candidates, reference: Candidates, *, searched: bool) -> list[str]:
    """The differences, one line each; candidates with tied scores may differ."""
    lines: list[str] = []
    for number, (found, expected) in enumerate(zip(actual, reference, strict=True)):
        if [ids for ids, _ in found] == [ids for ids, _ in expected]:
            both = zip(found, expected, strict=True)
            error = max((abs(a - b) / (1 + abs(b)) for (_, a), (_, b) in both), default=0.0)
            lines += [f"row {number}: scores differ by {error:.1e}"] * (searched and error > 1e-3)
        elif not (searched and _is_tied(found, expected)):
            lines.append(f"row {number}: got {found}, expected {expected}")
    return lines


def _is_tied(found: list[tuple[list[int], float]], expected: list[tuple[list[int], float]]) -> bool:
    close = len(found) == len(expected)
    return close and all(abs(a - b) < TIE * (1 + abs(b)) for (_, a), (_, b) in zip(found, expected, strict=True))
