"""Words that must appear."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import beam, forbid
from softlook.decode.phrases import Phrases, begun, said, shared_out
from tests.decode.speakers import END, Drawn, every_sequence, start

WORDS = st.lists(st.integers(1, 3), min_size=1, max_size=2)


@given(st.integers(0, 10_000), st.lists(WORDS, max_size=2), st.integers(1, 4))
def test_whatever_is_found_says_all_that_it_must_with_any_number_of_beams(
    seed: int, phrases: list[list[int]], beams: int
) -> None:
    found = beam(Drawn(4, 4, seed=seed), start(), end=END, longest=4, beams=beams, phrases=[phrases])[0]
    assert found
    for one in found:
        assert all(said(phrase, one.ids) for phrase in phrases)
    assert found == sorted(found, reverse=True)
    assert len({tuple(one.ids) for one in found}) == len(found)


@given(st.integers(0, 10_000), st.lists(WORDS, max_size=2), st.sampled_from([0.0, 1.0]))
def test_with_room_for_everything_it_finds_the_best_that_says_it(
    seed: int, phrases: list[list[int]], penalty: float
) -> None:
    speaker = Drawn(4, 4, seed=seed)
    able = [words for words in every_sequence(4, 4) if all(said(phrase, words) for phrase in phrases)]
    found = beam(speaker, start(), end=END, longest=4, beams=400, penalty=penalty, phrases=[phrases])[0]
    scores = sorted((speaker.log_probability(0, w) / len(w) ** penalty for w in able), reverse=True)
    assert [one.score for one in found] == pytest.approx(scores, abs=1e-4)


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_nothing_that_must_appear_is_a_plain_search(seed: int, beams: int) -> None:
    plain = beam(Drawn(4, 4, seed=seed), start(), end=END, longest=4, beams=beams)
    led = beam(Drawn(4, 4, seed=seed), start(), end=END, longest=4, beams=beams, phrases=[[]])
    assert [one.ids for one in led[0]] == [one.ids for one in plain[0]]
    assert [one.score for one in led[0]] == pytest.approx([one.score for one in plain[0]], abs=1e-5)


@given(st.integers(0, 10_000))
def test_sequences_have_phrases_of_their_own(seed: int) -> None:
    phrases = [[[1, 2]], [], [[3]]]
    together = beam(Drawn(4, 4, sequences=3, seed=seed), start(3), end=END, longest=4, beams=3, phrases=phrases)
    for number, own in enumerate(phrases):
        alone = Drawn(4, 4, sequences=3, seed=seed)
        alone.heard = [(number, ())]
        found = beam(alone, start(), end=END, longest=4, beams=3, phrases=[own])[0]
        assert [one.ids for one in found] == [one.ids for one in together[number]]


def test_what_a_rule_forbids_is_not_said_even_if_it_must_be() -> None:
    assert beam(Drawn(4, 4), start(), end=END, longest=4, rules=[forbid([[2]])], phrases=[[[2]]]) == [[]]


def test_how_much_is_missing_counts_what_was_just_begun() -> None:
    phrases = Phrases([[1, 1, 2], [3], [3]])
    assert phrases.missing([]) == 4
    assert phrases.missing([1, 1, 1]) == 2  # the last two go on
    assert phrases.next([1, 1]) == {1, 2, 3}
    assert phrases.missing([1, 1, 2, 3]) == 0
    assert begun([1, 2], [1, 2]) == 0


def test_room_that_one_bank_does_not_use_goes_to_others() -> None:
    assert shared_out([[1, 2, 3, 4], [5], [6, 7]], 5) == [1, 2, 3, 5, 6]
    assert shared_out([[], [], [1]], 1) == [1]
    assert shared_out([[1], [2], [3]], 2) == [1, 2]


def test_phrases_that_cannot_be_said_are_refused() -> None:
    def search(phrases: list[list[list[int]]], groups: int = 1) -> None:
        beam(Drawn(4, 4), start(), end=END, longest=2, phrases=phrases, groups=groups)

    with pytest.raises(ConfigError, match="phrases of 3 words have no room in at most 2"):
        search([[[1, 2, 3]]])
    with pytest.raises(ConfigError, match="an end cannot be among"):
        search([[[1, END]]])
    with pytest.raises(ConfigError, match="at least one word"):
        search([[[]]])
    with pytest.raises(ConfigError, match="for each of the 1 sequences; 2 came"):
        search([[], []])
    with pytest.raises(ConfigError, match="do not go together"):
        search([[[1]]], groups=2)
