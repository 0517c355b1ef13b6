"""Beam search against looking at everything there is."""

from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.decode import Continuing, Translating, beam, greedy
from softlook.decode.beam import Search
from softlook.models import GPT, GPTConfig, Transformer, TransformerConfig
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
    with mock.patch.object(Search, "is_over", lambda self, best, length: False):
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
