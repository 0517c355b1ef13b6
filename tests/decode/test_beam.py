"""Beam search against exhaustive search."""

from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError, WeightsError
from softlook.decode import CausalLMSession, Seq2SeqSession, bad_words, beam_search
from softlook.decode.beam.hypotheses import BeamStep, FinishedHypotheses, gnmt_penalty
from softlook.models import GPT, GPTConfig, Transformer, TransformerConfig
from tests.decode.reference_beam import reference_beam_search
from tests.decode.sessions import EOS, RandomLogitsSession, all_sequences, greedy_ids, start_ids


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 4), st.sampled_from([0.0, 0.6, 1.0, 1.5]))
def test_wide_beam_search_equals_exhaustive_search(seed: int, vocab: int, max_length: int, penalty: float) -> None:
    session = RandomLogitsSession(vocab, max_length, seed=seed)
    everything = all_sequences(vocab, max_length)
    found = beam_search(
        session, start_ids(), eos_ids=EOS, max_new_tokens=max_length, num_beams=len(everything), length_penalty=penalty
    )[0]

    def score(tokens: tuple[int, ...]) -> float:
        return session.logprob(0, tokens) / len(tokens) ** penalty

    best = max(everything, key=score)
    assert found[0].ids == [token for token in best if token != EOS]
    assert found[0].score == pytest.approx(score(best), abs=1e-4)
    assert [hypothesis.score for hypothesis in found] == sorted((h.score for h in found), reverse=True)


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_sequences_of_a_batch_are_independent(seed: int, beams: int) -> None:
    batched = beam_search(
        RandomLogitsSession(4, 4, sequences=3, seed=seed), start_ids(3), eos_ids=EOS, max_new_tokens=4, num_beams=beams
    )
    for number in range(3):
        alone = RandomLogitsSession(4, 4, sequences=3, seed=seed)
        alone.reorder(torch.tensor([number]))
        found = beam_search(alone, start_ids(), eos_ids=EOS, max_new_tokens=4, num_beams=beams)[0]
        assert [one.ids for one in found] == [one.ids for one in batched[number]]


@given(st.integers(0, 10_000))
def test_one_beam_equals_greedy_decoding(seed: int) -> None:
    one = beam_search(
        RandomLogitsSession(5, 4, seed=seed),
        start_ids(),
        eos_ids=EOS,
        max_new_tokens=4,
        num_beams=1,
        length_penalty=0.0,
    )[0][0].ids
    assert one == greedy_ids(RandomLogitsSession(5, 4, seed=seed), start_ids(), eos_ids=EOS, max_new_tokens=4)[0]


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.integers(1, 3))
def test_early_exit_does_not_change_the_result(seed: int, penalty: float, beams: int) -> None:
    early, late = (RandomLogitsSession(4, 5, seed=seed) for _ in range(2))
    found = beam_search(early, start_ids(), eos_ids=EOS, max_new_tokens=5, num_beams=beams, length_penalty=penalty)
    with mock.patch.object(FinishedHypotheses, "is_done", lambda self, best, length: False):
        assert (
            beam_search(late, start_ids(), eos_ids=EOS, max_new_tokens=5, num_beams=beams, length_penalty=penalty)
            == found
        )
    assert early.calls <= late.calls == 5


def test_score_is_length_normalized_logprob() -> None:
    session = RandomLogitsSession(4, 4, seed=3)
    for found in beam_search(session, start_ids(), eos_ids=EOS, max_new_tokens=4, num_beams=3, length_penalty=0.7)[0]:
        generated = (*found.ids, EOS) if len(found.ids) < 4 else tuple(found.ids)
        assert found.logprob == pytest.approx(session.logprob(0, generated), abs=1e-4)
        assert found.score == pytest.approx(found.logprob / len(generated) ** 0.7)


def test_cached_decoding_equals_uncached_decoding() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=9, context=16, dim=16, depth=2, heads=2)).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    ids = torch.tensor([[3, 1, 4]])
    generated = greedy_ids(CausalLMSession(model), ids, eos_ids=0, max_new_tokens=6)[0]
    for token in generated:
        assert model(ids)[0, -1].argmax().item() == token
        ids = torch.cat([ids, torch.tensor([[token]])], 1)


def test_source_padding_does_not_change_translations() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(vocab_size=9, dim=16, depth=1, heads=2)).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    source, source_mask = (
        torch.tensor([[3, 1, 4, 1], [5, 2, 0, 0]]),
        torch.tensor([[True] * 4, [True, True, False, False]]),
    )
    begin = torch.full((2, 1), 1)
    batched = beam_search(Seq2SeqSession(model, source, source_mask), begin, eos_ids=2, max_new_tokens=6, num_beams=3)
    alone = beam_search(Seq2SeqSession(model, source[1:, :2]), begin[1:], eos_ids=2, max_new_tokens=6, num_beams=3)[0]
    assert [one.ids for one in batched[1]] == [one.ids for one in alone]
    assert [one.score for one in batched[1]] == pytest.approx([one.score for one in alone], abs=1e-4)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.6, 1.5]), st.integers(1, 5))
def test_gnmt_length_penalty_formula(seed: int, exponent: float, max_length: int) -> None:
    session = RandomLogitsSession(3, max_length, seed=seed)
    everything = all_sequences(3, max_length)
    found = beam_search(
        session,
        start_ids(),
        eos_ids=EOS,
        max_new_tokens=max_length,
        num_beams=len(everything),
        length_penalty=gnmt_penalty(exponent),
    )[0]
    scores = [session.logprob(0, w) / ((5 + len(w)) / 6) ** exponent for w in everything]
    assert [one.score for one in found] == pytest.approx(sorted(scores, reverse=True), abs=1e-4)


@given(
    seed=st.integers(0, 10_000),
    groups=st.integers(1, 3),
    group_size=st.integers(1, 3),
    diversity=st.sampled_from([0.0, 0.5, 3.0]),
    min_length=st.integers(0, 4),
    penalty=st.sampled_from([0.0, 1.0, -0.5]),
)
def test_groups_and_penalties_equal_reference_beam_search(
    seed: int, groups: int, group_size: int, diversity: float, min_length: int, penalty: float
) -> None:
    found = beam_search(
        RandomLogitsSession(5, 4, seed=seed), start_ids(), eos_ids=EOS, max_new_tokens=4, num_beams=groups * group_size,
        num_beam_groups=groups, diversity_penalty=diversity, min_new_tokens=min_length, length_penalty=penalty,
    )[0]  # fmt: skip
    expected = reference_beam_search(
        RandomLogitsSession(5, 4, seed=seed), max_length=4, group_size=group_size, groups=groups, diversity=diversity,
        min_length=min_length, penalty=penalty,
    )  # fmt: skip
    assert [one.ids for one in found] == [ids for _, ids in expected]
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


@given(st.integers(0, 10_000), st.integers(1, 3), st.sampled_from([0.0, 1.0]))
def test_hypotheses_are_sorted_and_unique(seed: int, groups: int, diversity: float) -> None:
    for found in beam_search(
        RandomLogitsSession(4, 4, sequences=2, seed=seed), start_ids(2), eos_ids=EOS, max_new_tokens=4,
        num_beams=2 * groups, num_beam_groups=groups, diversity_penalty=diversity,
    ):  # fmt: skip
        assert found == sorted(found, reverse=True)
        assert len({tuple(one.ids) for one in found}) == len(found)


def test_large_diversity_penalty_separates_groups() -> None:
    equal = beam_search(
        RandomLogitsSession(6, 3, seed=2), start_ids(), eos_ids=EOS, max_new_tokens=3, num_beams=3, num_beam_groups=3
    )[0]
    diverse = beam_search(
        RandomLogitsSession(6, 3, seed=2),
        start_ids(),
        eos_ids=EOS,
        max_new_tokens=3,
        num_beams=3,
        num_beam_groups=3,
        diversity_penalty=50.0,
    )[0]
    assert len(equal) == 1  # without a penalty every group finds the same hypothesis
    assert len({tuple(one.ids[:1]) for one in diverse}) == 3


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_hypotheses_have_logprobs_of_each_token(seed: int, beams: int) -> None:
    session = RandomLogitsSession(4, 4, seed=seed)
    for found in beam_search(session, start_ids(), eos_ids=EOS, max_new_tokens=4, num_beams=beams)[0]:
        tokens = (*found.ids, *([] if found.eos_id is None else [found.eos_id]))
        expected = [session.logprob(0, tokens[: i + 1]) - session.logprob(0, tokens[:i]) for i in range(len(tokens))]
        assert found.logprobs == pytest.approx(expected, abs=1e-4)
        assert found.logprob == pytest.approx(sum(found.logprobs))


@given(st.integers(0, 10_000))
def test_logits_processors_apply_to_all_hypotheses(seed: int) -> None:
    found = beam_search(
        RandomLogitsSession(5, 4, seed=seed),
        start_ids(),
        eos_ids=EOS,
        max_new_tokens=4,
        num_beams=4,
        logits_processors=[bad_words([[2], [1, 1]])],
    )[0]
    for one in found:
        assert 2 not in one.ids
        assert (1, 1) not in zip(one.ids, one.ids[1:], strict=False)


def test_several_eos_ids() -> None:
    found = beam_search(RandomLogitsSession(4, 3, seed=5), start_ids(), eos_ids=[0, 3], max_new_tokens=3, num_beams=4)[
        0
    ]
    assert {one.eos_id for one in found} <= {0, 3, None}
    assert len({(tuple(one.ids), one.eos_id) for one in found}) == len(found)
    assert all(0 not in one.ids and 3 not in one.ids for one in found)


@given(st.integers(0, 10_000), st.sampled_from([1, 2]))
def test_trace_contains_every_candidate(seed: int, groups: int) -> None:
    steps: list[BeamStep] = []
    found = beam_search(
        RandomLogitsSession(5, 4, sequences=2, seed=seed),
        start_ids(2),
        eos_ids=EOS,
        max_new_tokens=4,
        num_beams=4,
        num_beam_groups=groups,
        on_step=steps.append,
    )
    for number in range(2):
        generated: dict[int, list[int]] = {beam: [] for beam in range(4)}
        finished = []
        for step in (step for step in steps if step.sequence == number):
            new = {}
            for one in step.candidates:
                tokens = [*generated[one.parent], one.token]
                assert (one.beam is not None) == (one.status == "kept")
                if one.status == "kept":
                    new[one.beam] = tokens
                elif one.status == "finished":
                    finished.append([token for token in tokens if token != EOS])
            generated = new
        assert all(one.ids in finished for one in found[number])


def test_invalid_parameters_raise_errors() -> None:
    session = RandomLogitsSession(4, 4)
    with pytest.raises(ConfigError, match="num_beams must be a multiple of num_beam_groups, got 4 and 3"):
        beam_search(session, start_ids(), eos_ids=EOS, max_new_tokens=4, num_beam_groups=3)
    with pytest.raises(ConfigError, match="max_new_tokens >= 1 and min_new_tokens <= max_new_tokens"):
        beam_search(session, start_ids(), eos_ids=EOS, max_new_tokens=4, min_new_tokens=5)
    with pytest.raises(ConfigError, match="diversity_penalty and coverage_penalty must be >= 0"):
        beam_search(session, start_ids(), eos_ids=EOS, max_new_tokens=4, num_beam_groups=2, diversity_penalty=-1.0)
    with pytest.raises(ConfigError, match="> 0 for every length"):
        beam_search(session, start_ids(), eos_ids=EOS, max_new_tokens=4, length_penalty=lambda length: length - 2.0)
    with pytest.raises(ConfigError, match="has no cross-attention to record"):
        beam_search(session, start_ids(), eos_ids=EOS, max_new_tokens=4, return_alignment=True)
    with pytest.raises(ConfigError, match="every prompt must have at least one id"):
        beam_search(session, [[]], eos_ids=EOS, max_new_tokens=4)


def test_nan_logits_raise_an_error() -> None:
    session = RandomLogitsSession(4, 4)
    session.rows[0][()] = torch.full((4,), torch.nan)
    with pytest.raises(WeightsError, match="NaN or infinite in row 0"):
        beam_search(session, start_ids(), eos_ids=EOS, max_new_tokens=4)


def test_empty_batch() -> None:
    assert beam_search(RandomLogitsSession(4, 4, sequences=1), start_ids(0), eos_ids=EOS, max_new_tokens=4) == []
