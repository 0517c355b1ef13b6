"""Beam search against looking at everything there is."""

from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError, WeightsError
from softlook.decode import Continuing, Translating, beam, forbid, greedy
from softlook.decode.history import Step
from softlook.decode.penalties import gnmt
from softlook.decode.search import Found
from softlook.models import GPT, GPTConfig, Transformer, TransformerConfig
from tests.decode.slow_beam import slow_beam
from tests.decode.speakers import END, Drawn, every_sequence, start


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 4), st.sampled_from([0.0, 0.6, 1.0, 1.5]))
def test_with_room_for_everything_it_finds_the_best_there_is(
    seed: int, vocab: int, longest: int, penalty: float
) -> None:
    speaker = Drawn(vocab, longest, seed=seed)
    everything = every_sequence(vocab, longest)
    found = beam(speaker, start(), end=END, longest=longest, beams=len(everything), penalty=penalty)[0]

    def score(words: tuple[int, ...]) -> float:
        return speaker.log_probability(0, words) / len(words) ** penalty

    best = max(everything, key=score)
    assert found[0].ids == [word for word in best if word != END]
    assert found[0].score == pytest.approx(score(best), abs=1e-4)
    assert [hypothesis.score for hypothesis in found] == sorted((h.score for h in found), reverse=True)


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_sequences_that_share_a_batch_do_not_see_each_other(seed: int, beams: int) -> None:
    together = beam(Drawn(4, 4, sequences=3, seed=seed), start(3), end=END, longest=4, beams=beams)
    for number in range(3):
        alone = Drawn(4, 4, sequences=3, seed=seed)
        alone.select(torch.tensor([number]))
        found = beam(alone, start(), end=END, longest=4, beams=beams)[0]
        assert [one.ids for one in found] == [one.ids for one in together[number]]


@given(st.integers(0, 10_000))
def test_one_beam_without_a_penalty_takes_the_likeliest_word_each_time(seed: int) -> None:
    one = beam(Drawn(5, 4, seed=seed), start(), end=END, longest=4, beams=1, penalty=0.0)[0][0].ids
    assert one == greedy(Drawn(5, 4, seed=seed), start(), end=END, longest=4)[0]


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.integers(1, 3))
def test_stopping_early_changes_nothing(seed: int, penalty: float, beams: int) -> None:
    early, late = (Drawn(4, 5, seed=seed) for _ in range(2))
    found = beam(early, start(), end=END, longest=5, beams=beams, penalty=penalty)
    with mock.patch.object(Found, "is_over", lambda self, best, length: False):
        assert beam(late, start(), end=END, longest=5, beams=beams, penalty=penalty) == found
    assert early.calls <= late.calls == 5


def test_a_score_is_the_log_probability_by_the_length_with_its_end() -> None:
    speaker = Drawn(4, 4, seed=3)
    for found in beam(speaker, start(), end=END, longest=4, beams=3, penalty=0.7)[0]:
        said = (*found.ids, END) if len(found.ids) < 4 else tuple(found.ids)
        assert found.log_probability == pytest.approx(speaker.log_probability(0, said), abs=1e-4)
        assert found.score == pytest.approx(found.log_probability / len(said) ** 0.7)


def test_a_decoder_goes_on_as_if_it_read_everything_anew() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab=9, context=16, dim=16, depth=2, heads=2)).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    ids = torch.tensor([[3, 1, 4]])
    said = greedy(Continuing(model), ids, end=0, longest=6)[0]
    for word in said:
        assert model(ids)[0, -1].argmax().item() == word
        ids = torch.cat([ids, torch.tensor([[word]])], 1)


def test_padded_sources_are_translated_as_if_alone() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(vocab=9, dim=16, depth=1, heads=2)).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    source, present = torch.tensor([[3, 1, 4, 1], [5, 2, 0, 0]]), torch.tensor([[True] * 4, [True, True, False, False]])
    begin = torch.full((2, 1), 1)
    together = beam(Translating(model, source, present), begin, end=2, longest=6, beams=3)
    alone = beam(Translating(model, source[1:, :2]), begin[1:], end=2, longest=6, beams=3)[0]
    assert [one.ids for one in together[1]] == [one.ids for one in alone]
    assert [one.score for one in together[1]] == pytest.approx([one.score for one in alone], abs=1e-4)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.6, 1.5]), st.integers(1, 5))
def test_the_length_penalty_of_gnmt_divides_by_its_own_formula(seed: int, exponent: float, longest: int) -> None:
    speaker = Drawn(3, longest, seed=seed)
    everything = every_sequence(3, longest)
    found = beam(speaker, start(), end=END, longest=longest, beams=len(everything), penalty=gnmt(exponent))[0]
    scores = [speaker.log_probability(0, w) / ((5 + len(w)) / 6) ** exponent for w in everything]
    assert [one.score for one in found] == pytest.approx(sorted(scores, reverse=True), abs=1e-4)


@given(
    seed=st.integers(0, 10_000),
    groups=st.integers(1, 3),
    each=st.integers(1, 3),
    diversity=st.sampled_from([0.0, 0.5, 3.0]),
    shortest=st.integers(0, 4),
    penalty=st.sampled_from([0.0, 1.0, -0.5]),
)
def test_groups_penalties_and_lengths_are_those_of_a_search_written_down_plainly(
    seed: int, groups: int, each: int, diversity: float, shortest: int, penalty: float
) -> None:
    found = beam(
        Drawn(5, 4, seed=seed), start(), end=END, longest=4, beams=groups * each, groups=groups,
        diversity=diversity, shortest=shortest, penalty=penalty,
    )[0]  # fmt: skip
    wanted = slow_beam(
        Drawn(5, 4, seed=seed), longest=4, each=each, groups=groups, diversity=diversity,
        shortest=shortest, penalty=penalty,
    )  # fmt: skip
    assert [one.ids for one in found] == [ids for _, ids in wanted]
    assert [one.score for one in found] == pytest.approx([score for score, _ in wanted], abs=1e-4)


@given(st.integers(0, 10_000), st.integers(1, 3), st.sampled_from([0.0, 1.0]))
def test_what_is_found_is_sorted_and_never_the_same_twice(seed: int, groups: int, diversity: float) -> None:
    for found in beam(
        Drawn(4, 4, sequences=2, seed=seed), start(2), end=END, longest=4, beams=2 * groups, groups=groups,
        diversity=diversity,
    ):  # fmt: skip
        assert found == sorted(found, reverse=True)
        assert len({tuple(one.ids) for one in found}) == len(found)


def test_a_large_diversity_makes_groups_begin_differently() -> None:
    alike = beam(Drawn(6, 3, seed=2), start(), end=END, longest=3, beams=3, groups=3)[0]
    apart = beam(Drawn(6, 3, seed=2), start(), end=END, longest=3, beams=3, groups=3, diversity=50.0)[0]
    assert len(alike) == 1  # without it every group finds the same
    assert len({tuple(one.ids[:1]) for one in apart}) == 3


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_every_word_is_told_its_own_log_probability(seed: int, beams: int) -> None:
    speaker = Drawn(4, 4, seed=seed)
    for found in beam(speaker, start(), end=END, longest=4, beams=beams)[0]:
        words = (*found.ids, *([] if found.end is None else [found.end]))
        wanted = [
            speaker.log_probability(0, words[: i + 1]) - speaker.log_probability(0, words[:i])
            for i in range(len(words))
        ]
        assert found.log_probabilities == pytest.approx(wanted, abs=1e-4)
        assert found.log_probability == pytest.approx(sum(found.log_probabilities))


@given(st.integers(0, 10_000))
def test_rules_are_kept_by_everything_that_is_found(seed: int) -> None:
    found = beam(Drawn(5, 4, seed=seed), start(), end=END, longest=4, beams=4, rules=[forbid([[2], [1, 1]])])[0]
    for one in found:
        assert 2 not in one.ids
        assert (1, 1) not in zip(one.ids, one.ids[1:], strict=False)


def test_several_ends_are_told_apart() -> None:
    found = beam(Drawn(4, 3, seed=5), start(), end=[0, 3], longest=3, beams=4)[0]
    assert {one.end for one in found} <= {0, 3, None}
    assert len({(tuple(one.ids), one.end) for one in found}) == len(found)
    assert all(0 not in one.ids and 3 not in one.ids for one in found)


@given(st.integers(0, 10_000), st.sampled_from([1, 2]))
def test_the_history_tells_of_all_that_was_kept_finished_and_dropped(seed: int, groups: int) -> None:
    steps: list[Step] = []
    found = beam(
        Drawn(5, 4, sequences=2, seed=seed), start(2), end=END, longest=4, beams=4, groups=groups, tell=steps.append
    )
    for number in range(2):
        said: dict[int, list[int]] = {beam: [] for beam in range(4)}
        finished = []
        for step in (step for step in steps if step.sequence == number):
            new = {}
            for one in step.candidates:
                words = [*said[one.parent], one.word]
                assert (one.beam is not None) == (one.fate == "kept")
                if one.fate == "kept":
                    new[one.beam] = words
                elif one.fate == "finished":
                    finished.append([word for word in words if word != END])
            said = new
        assert all(one.ids in finished for one in found[number])


def test_what_cannot_be_asked_for_is_said_plainly() -> None:
    speaker = Drawn(4, 4)
    with pytest.raises(ConfigError, match="4 beams cannot be shared evenly by 3 groups"):
        beam(speaker, start(), end=END, longest=4, groups=3)
    with pytest.raises(ConfigError, match="0 <= shortest <= longest"):
        beam(speaker, start(), end=END, longest=4, shortest=5)
    with pytest.raises(ConfigError, match="could not tell when it is over"):
        beam(speaker, start(), end=END, longest=4, groups=2, diversity=-1.0)
    with pytest.raises(ConfigError, match="above 0 for every length"):
        beam(speaker, start(), end=END, longest=4, penalty=lambda length: length - 2.0)
    with pytest.raises(ConfigError, match="looks cannot be seen"):
        beam(speaker, start(), end=END, longest=4, align=True)
    with pytest.raises(ConfigError, match="at least one id to begin with"):
        beam(speaker, [[]], end=END, longest=4)


def test_scores_that_are_no_numbers_are_not_searched() -> None:
    speaker = Drawn(4, 4)
    speaker.rows[0][()] = torch.full((4,), torch.nan)
    with pytest.raises(WeightsError, match="NaN or infinite in row 0"):
        beam(speaker, start(), end=END, longest=4)


def test_no_sequences_are_no_work() -> None:
    assert beam(Drawn(4, 4, sequences=1), start(0), end=END, longest=4) == []
