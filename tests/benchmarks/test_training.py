"""Part J compares like with like: the same steps give the same losses, and nobody's time is counted as another's."""

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from benchmarks.training_cases import batch_tokens, cases, feature_tokens
from benchmarks.training_costs import MAX_LOSS_DIFFERENCE, chunks, loss_difference
from benchmarks.training_lanes import Lane, interleave
from benchmarks.training_texts import labeled_texts, lengths, make_corpus, translation_pairs
from softlook.train.rng import make_generator

QUICK = cases(quick=True)[1:]  # the first two are the same at these sizes


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if "Marian" in case.name else []) for case in QUICK],
    ids=lambda case: case.name.split()[0],
)
def test_both_take_the_same_steps_on_the_same_batches(case):
    assert loss_difference(case) <= MAX_LOSS_DIFFERENCE


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name.split()[0])
def test_both_count_the_same_tokens_in_the_same_batch(case):
    group = next(chunks(case.features, case.trainer_batch_size))
    missing = len(group) if case.name.startswith("GPT") else 0  # the last of a row has nothing to be followed by
    assert batch_tokens(case.same(group)) == sum(map(feature_tokens, group)) - missing


def test_one_run_at_a_time_goes_on_and_all_come_to_their_end():
    told = []

    def run(lane):
        for loss in range(3):
            told.append(lane.name)
            lane.lap_done(float(loss))

    lanes = [Lane(name, run) for name in "ab"]
    interleave(lanes)
    assert [[lap.loss for lap in lane.laps] for lane in lanes] == [[0, 1, 2]] * 2
    assert all({*told[i : i + 2]} == {"a", "b"} for i in (0, 2, 4))


def test_a_run_that_fails_says_so_outside():
    def run(lane):
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        interleave([Lane("a", run)])


def test_texts_are_the_same_each_time_and_within_their_vocabulary():
    assert make_corpus(500, 20) == make_corpus(500, 20)
    words = [*make_corpus(500, 20), *(word for text, _ in labeled_texts(20, 20, max_length=30) for word in text)]
    words += [word for pair in translation_pairs(20, 20, max_length=30) for side in pair for word in side]
    assert min(words) >= 4 and max(words) < 20


def test_lengths_are_uneven_and_kept_to_the_longest():
    drawn = lengths(2000, 32, 0.7, 127, make_generator(0))
    assert max(drawn) == 127 and min(drawn) >= 3
    assert 29 < sorted(drawn)[1000] < 35 and sum(drawn) / 2000 > 36
