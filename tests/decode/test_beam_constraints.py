"""Constrained beam search."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import bad_words, beam_search
from softlook.decode.beam.constraints import PhraseConstraint, allocate_beams, matched_prefix
from tests.decode.sessions import EOS, RandomLogitsSession, all_sequences, start_ids

WORDS = st.lists(st.integers(1, 3), min_size=1, max_size=2)


def contains(ids: Sequence[int], phrase: Sequence[int]) -> bool:
    return any(list(ids[i : i + len(phrase)]) == list(phrase) for i in range(len(ids) - len(phrase) + 1))


@given(st.integers(0, 10_000), st.lists(WORDS, max_size=2), st.integers(1, 4))
def test_all_hypotheses_contain_the_forced_phrases(seed: int, phrases: list[list[int]], beams: int) -> None:
    found = beam_search(
        RandomLogitsSession(4, 4, seed=seed),
        start_ids(),
        eos_ids=EOS,
        max_new_tokens=4,
        num_beams=beams,
        force_words=[phrases],
    )[0]
    assert found
    for one in found:
        assert all(contains(one.ids, phrase) for phrase in phrases)
    assert found == sorted(found, reverse=True)
    assert len({tuple(one.ids) for one in found}) == len(found)


@given(st.integers(0, 10_000), st.lists(WORDS, max_size=2), st.sampled_from([0.0, 1.0]))
def test_wide_constrained_search_equals_exhaustive_search(seed: int, phrases: list[list[int]], penalty: float) -> None:
    session = RandomLogitsSession(4, 4, seed=seed)
    valid = [words for words in all_sequences(4, 4) if all(contains(words, phrase) for phrase in phrases)]
    found = beam_search(
        session,
        start_ids(),
        eos_ids=EOS,
        max_new_tokens=4,
        num_beams=400,
        length_penalty=penalty,
        force_words=[phrases],
    )[0]
    scores = sorted((session.logprob(0, w) / len(w) ** penalty for w in valid), reverse=True)
    assert [one.score for one in found] == pytest.approx(scores, abs=1e-4)


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_empty_constraints_equal_plain_beam_search(seed: int, beams: int) -> None:
    plain = beam_search(
        RandomLogitsSession(4, 4, seed=seed), start_ids(), eos_ids=EOS, max_new_tokens=4, num_beams=beams
    )
    constrained = beam_search(
        RandomLogitsSession(4, 4, seed=seed),
        start_ids(),
        eos_ids=EOS,
        max_new_tokens=4,
        num_beams=beams,
        force_words=[[]],
    )
    assert [one.ids for one in constrained[0]] == [one.ids for one in plain[0]]
    assert [one.score for one in constrained[0]] == pytest.approx([one.score for one in plain[0]], abs=1e-5)


@given(st.integers(0, 10_000))
def test_each_sequence_has_its_own_phrases(seed: int) -> None:
    phrases = [[[1, 2]], [], [[3]]]
    batched = beam_search(
        RandomLogitsSession(4, 4, sequences=3, seed=seed),
        start_ids(3),
        eos_ids=EOS,
        max_new_tokens=4,
        num_beams=3,
        force_words=phrases,
    )
    for number, own in enumerate(phrases):
        alone = RandomLogitsSession(4, 4, sequences=3, seed=seed)
        alone.prefixes = [(number, ())]
        found = beam_search(alone, start_ids(), eos_ids=EOS, max_new_tokens=4, num_beams=3, force_words=[own])[0]
        assert [one.ids for one in found] == [one.ids for one in batched[number]]


def test_masked_phrases_yield_no_hypotheses() -> None:
    assert beam_search(
        RandomLogitsSession(4, 4),
        start_ids(),
        eos_ids=EOS,
        max_new_tokens=4,
        logits_processors=[bad_words([[2]])],
        force_words=[[[2]]],
    ) == [[]]


def test_num_missing_counts_partial_matches() -> None:
    phrases = PhraseConstraint([[1, 1, 2], [3], [3]])
    assert phrases.num_missing([]) == 4
    assert phrases.num_missing([1, 1, 1]) == 2  # the last two are a partial match
    assert phrases.next_tokens([1, 1]) == {1, 2, 3}
    assert phrases.num_missing([1, 1, 2, 3]) == 0
    assert matched_prefix([1, 2], [1, 2]) == 0


def test_unused_beams_go_to_other_banks() -> None:
    assert allocate_beams([[1, 2, 3, 4], [5], [6, 7]], 5) == [1, 2, 3, 5, 6]
    assert allocate_beams([[], [], [1]], 1) == [1]
    assert allocate_beams([[1], [2], [3]], 2) == [1, 2]


def test_impossible_phrases_raise_errors() -> None:
    def search(phrases: list[list[list[int]]], groups: int = 1) -> None:
        beam_search(
            RandomLogitsSession(4, 4),
            start_ids(),
            eos_ids=EOS,
            max_new_tokens=2,
            force_words=phrases,
            num_beam_groups=groups,
        )

    with pytest.raises(ConfigError, match="need 3 tokens, but max_new_tokens is 2"):
        search([[[1, 2, 3]]])
    with pytest.raises(ConfigError, match="must not contain an end-of-sequence token"):
        search([[[1, EOS]]])
    with pytest.raises(ConfigError, match="at least one token"):
        search([[[]]])
    with pytest.raises(ConfigError, match="for each of 1 prompts, got 2"):
        search([[], []])
    with pytest.raises(ConfigError, match="cannot be combined"):
        search([[[1]]], groups=2)
