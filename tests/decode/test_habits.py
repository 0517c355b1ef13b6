"""How answers are found where nobody says how."""

import torch

from softlook.decode import Said, Token
from softlook.decode.habits import Habits, alone


def test_rules_hold_at_the_first_word_and_at_the_last() -> None:
    rules = Habits(first=1, last=(2,), never=((0,),), anew=True).rules(3)

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
