"""Part J compares fairly: the same steps have the same losses, and runs are timed one at a time."""

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from benchmarks.training_cases import batch_tokens, cases, feature_tokens
from benchmarks.training_costs import MAX_LOSS_DIFFERENCE, chunks, loss_difference
from benchmarks.training_data import labeled_texts, lengths, make_corpus, translation_pairs
from benchmarks.training_interleaving import InterleavedRun, interleave
from softlook.train.rng import make_generator

QUICK = cases(quick=True)[1:]  # the first two are the same at these sizes


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if "Marian" in case.name else []) for case in QUICK],
    ids=lambda case: case.name.split()[0],
)
def test_both_libraries_have_the_same_losses_on_the_same_batches(case):
    assert loss_difference(case) <= MAX_LOSS_DIFFERENCE


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name.split()[0])
def test_both_libraries_count_the_same_tokens_in_the_same_batch(case):
    group = next(chunks(case.features, case.trainer_batch_size))
    unlabeled = len(group) if case.name.startswith("GPT") else 0  # the last token of a row has no label
    assert batch_tokens(case.to_softlook(group)) == sum(map(feature_tokens, group)) - unlabeled


def test_interleaved_runs_take_turns_and_all_finish():
    order = []

    def train(run):
        for loss in range(3):
            order.append(run.name)
            run.end_turn(float(loss))

    runs = [InterleavedRun(name, train) for name in "ab"]
    interleave(runs)
    assert [[turn.loss for turn in run.turns] for run in runs] == [[0, 1, 2]] * 2
    assert all({*order[i : i + 2]} == {"a", "b"} for i in (0, 2, 4))


def test_the_error_of_a_run_is_raised_in_the_main_thread():
    def train(run):
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        interleave([InterleavedRun("a", train)])


def test_texts_are_deterministic_and_within_their_vocabulary():
    assert make_corpus(500, 20) == make_corpus(500, 20)
    words = [*make_corpus(500, 20), *(word for text, _ in labeled_texts(20, 20, max_length=30) for word in text)]
    words += [word for pair in translation_pairs(20, 20, max_length=30) for side in pair for word in side]
    assert min(words) >= 4 and max(words) < 20


def test_lengths_vary_up_to_the_maximum():
    samples = lengths(2000, 32, 0.7, 127, make_generator(0))
    assert max(samples) == 127 and min(samples) >= 3
    assert 29 < sorted(samples)[1000] < 35 and sum(samples) / 2000 > 36
