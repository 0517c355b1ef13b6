"""How answers are found where nobody says how."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.decode import Said, Token
from softlook.decode.habits import Habits, alone, habits_in, told_by


def test_what_other_people_say_is_done_as_far_as_softlook_does_it() -> None:
    told = {
        "num_beams": 6, "length_penalty": 0.6, "max_length": 142, "min_length": 56, "no_repeat_ngram_size": 3,
        "forced_bos_token_id": 0, "forced_eos_token_id": 2, "bad_words_ids": [[9], [4, 5]], "renormalize_logits": True,
    }  # fmt: skip
    assert told_by(told) == Habits(6, 0.6, 1.0, 3, ((9,), (4, 5)), 55, 141, 0, 2, anew=True)
    assert told_by({"vocab_size": 5}) == Habits(beams=1)


@pytest.mark.parametrize("odd", ["4", None, -1, 1e30, True, [], {"a": 1}])
def test_what_makes_no_sense_is_as_though_not_said(odd: Any) -> None:
    names = ("num_beams", "length_penalty", "no_repeat_ngram_size", "forced_bos_token_id", "max_length")
    found = told_by({name: odd for name in names if name != "length_penalty" or odd != -1} | {"bad_words_ids": odd})
    assert found == Habits(beams=1)


def test_a_run_is_asked_as_it_was_tested(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"values": {"decode.beams": 3, "decode.penalty": 0.5}}))
    assert habits_in(tmp_path, {}) == Habits()
    (tmp_path / "best.json").write_text("{}")
    assert habits_in(tmp_path, {}) == Habits(beams=3, penalty=0.5)


def test_rules_hold_at_the_first_word_and_at_the_last() -> None:
    rules = Habits(first=1, last=2, never=((0,),), anew=True).rules(3)

    def chances(*new: int) -> list[float]:
        scores = torch.zeros(1, 4)
        for rule in rules:
            scores = rule(scores, [Said([3], new)])
        return [round(chance, 3) for chance in scores.exp()[0].tolist()]

    assert chances() == [0, 1, 0, 0]
    assert chances(1) == [0, 0.333, 0.333, 0.333]
    assert chances(1, 3) == [0, 0, 1, 0]


def test_an_answer_found_without_a_search_is_worth_what_a_search_would_say() -> None:
    found = alone([Token(5, -1.0, 1), Token(6, -2.0, 1)], Token(2, -3.0, 1), 1.0)
    assert (found.score, found.ids, found.log_probability, found.end) == (-2.0, [5, 6], -6.0, 2)
    assert alone([Token(5, -1.0, 1), Token(6, -3.0, 1)], None, 0.0).score == -4.0
