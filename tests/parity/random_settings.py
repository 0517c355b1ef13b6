"""Random generation settings, and what Hugging Face's `generate` and softlook answer under them by the same weights."""

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

Found = list[list[tuple[list[int], float]]]
"""For each row the answers, best first, each with its score."""
NEAR = 2e-5
"""Scores that lie nearer to each other than this may change places."""
WORDS = [id for id in range(VOCAB) if id != PAD]


def drawn_settings(seed: int, *, encodes: bool) -> dict[str, Any]:
    """Fields of a generation config: a few of them set, at random, to values that matter."""
    draw = Random(seed)
    ends = draw.sample(WORDS, draw.choice([1, 1, 1, 2]))
    settings: dict[str, Any] = {
        "num_beams": draw.choice([1, 1, 2, 3, 5]),
        "eos_token_id": ends,
        "max_new_tokens": draw.randint(1, 12),
        "early_stopping": draw.choice([True, False, "never", None]),
        "length_penalty": draw.choice([-1.0, 0.0, 0.6, 1.0, 2.0]),
    }
    optional: dict[str, Any] = {
        "no_repeat_ngram_size": draw.choice([1, 2, 3]),
        "repetition_penalty": draw.choice([0.8, 1.2, 1.7]),
        "min_new_tokens": draw.randint(1, 8),
        "bad_words_ids": [draw.sample(WORDS, draw.choice([1, 1, 2])) for _ in range(3)] + [[ends[0]]],
        "suppress_tokens": draw.sample(WORDS, 4),
        "begin_suppress_tokens": draw.sample(WORDS, 8),
        "forced_eos_token_id": draw.choice([ends[0], ends]),
        "exponential_decay_length_penalty": [draw.randint(0, 4), draw.choice([1.1, 1.5])],
        "renormalize_logits": True,
    }
    if encodes:
        optional |= {
            "forced_bos_token_id": draw.choice(WORDS),  # in theirs only behind a prompt of one token
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


def drawn_rows(seed: int, *, alike: bool) -> list[list[int]]:
    draw = Random(f"rows {seed}")
    length = draw.randint(2, 8)
    return [[draw.choice(WORDS) for _ in range(length if alike else draw.randint(2, 8))] for _ in range(3)]


def theirs_found(reference: Any, rows: Sequence[Sequence[int]], settings: dict[str, Any]) -> Found:
    """What `generate` answers to these rows, filled up to one length."""
    longest, beams = max(map(len, rows)), settings["num_beams"]
    ids = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    present = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    own = {"pad_token_id": PAD, "decoder_start_token_id": PAD} if reference.config.is_encoder_decoder else {}
    config = GenerationConfig(
        **{**settings, "pad_token_id": PAD, **own}, do_sample=False, num_return_sequences=beams,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some settings contradict each other; both have to do something
        output = reference.generate(ids, attention_mask=present, generation_config=config)
    new = output.sequences[:, 1 if reference.config.is_encoder_decoder else longest :].tolist()
    scores = output.sequences_scores.tolist() if beams > 1 else [0.0] * len(new)
    fields = [(_until(row, settings["eos_token_id"]), score) for row, score in zip(new, scores, strict=True)]
    return [[one for one in fields[i : i + beams] if one[1] > -1e8] for i in range(0, len(fields), beams)]


def _until(row: list[int], ends: list[int]) -> list[int]:
    return next((row[:place] for place, id in enumerate(row) if id in ends), row)


def ours_translated(actual: Any, rows: Sequence[Sequence[int]], settings: dict[str, Any]) -> Found:
    """What softlook answers to sources, by the habits that the same settings make."""
    habits = parse_generation_config(settings)
    habits.check_supported()
    found = search_translations(
        actual, rows, begin=PAD, end=settings["eos_token_id"], pad=PAD,
        beams=habits.num_beams, penalty=habits.length_penalty, habits=habits,
    )  # fmt: skip
    return [[(one.ids, one.score) for one in several] for several in found]


def ours_continued(actual: Any, rows: Sequence[Sequence[int]], settings: dict[str, Any]) -> Found:
    """What softlook goes on with after prompts."""
    habits, ends, longest = parse_generation_config(settings), settings["eos_token_id"], settings["max_new_tokens"]
    rules = habits.logits_processors(longest, ends)
    if habits.num_beams == 1:
        answers = generate(actual, rows, eos_ids=ends, max_new_tokens=longest, logits_processors=rules)
        return [[(answer.ids, 0.0)] for answer in answers]
    found = beam_search(
        CausalLMSession(actual), rows, eos_ids=ends, max_new_tokens=longest, logits_processors=rules,
        num_beams=habits.num_beams, length_penalty=habits.length_penalty, early_stopping=habits.early_stopping,
    )  # fmt: skip
    return [[(one.ids, one.score) for one in several] for several in found]


def differences(actual: Found, reference: Found, *, searched: bool) -> list[str]:
    """What differs, but for answers that are as good as each other."""
    fields: list[str] = []
    for number, (found, expected) in enumerate(zip(actual, reference, strict=True)):
        if [ids for ids, _ in found] == [ids for ids, _ in expected]:
            both = zip(found, expected, strict=True)
            apart = max((abs(a - b) / (1 + abs(b)) for (_, a), (_, b) in both), default=0.0)
            fields += [f"row {number}: scores {apart:.1e} apart"] * (searched and apart > 1e-3)
        elif not (searched and _as_good(found, expected)):
            fields.append(f"row {number}: {found} for {expected}")
    return fields


def _as_good(found: list[tuple[list[int], float]], expected: list[tuple[list[int], float]]) -> bool:
    close = len(found) == len(expected)
    return close and all(abs(a - b) < NEAR * (1 + abs(b)) for (_, a), (_, b) in zip(found, expected, strict=True))
