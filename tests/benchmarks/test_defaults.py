"""The first hour of a user: commands with a time limit on public texts, on a quiet and on a busy machine."""

from pathlib import Path

import pytest

from benchmarks.defaults import CASES, LOWER_IS_BETTER, METRICS, SHARED, Case, busy_cores, format_score, measure

MINUTES, TOLERANCE = 1.0, 0.1
AFTERNOON = (
    *("TREC questions", "SST-2", "SST-2, 1,000 sentences"),
    *("Shakespeare", "Shakespeare, 1,000 lines", "Shakespeare, masked"),
    *("Tatoeba en-es", "Tatoeba en-es, 1,000 pairs"),
)
"""Eight commands on four public texts."""


def test_an_afternoon_is_eight_commands_on_four_texts() -> None:
    chosen = [case for case in CASES if case.name in AFTERNOON]
    assert len(chosen) == len(AFTERNOON) == 8
    assert len({Path(case.train).parent for case in chosen}) == 4


def test_scores_are_formatted_with_four_digits() -> None:
    assert [format_score(score) for score in (None, 0.91234, 31.234)] == ["", "0.9123", "31.23"]


@pytest.mark.slow
@pytest.mark.parametrize("busy", [0, 2], ids=["quiet", "busy"])
@pytest.mark.parametrize("case", [case for case in CASES if case.name in AFTERNOON], ids=lambda case: case.name)
def test_a_command_keeps_its_time_limit_and_beats_its_baseline(case: Case, busy: int) -> None:
    data_dir = Path(__file__).parents[2] / SHARED
    if not data_dir.is_dir():
        pytest.skip(f"the public data sets are not in {data_dir}")
    with busy_cores(busy):
        outcome = measure(case, data_dir, MINUTES, seed=0)
    assert outcome.wall_seconds == pytest.approx(60 * MINUTES, rel=TOLERANCE)
    assert outcome.baseline is not None
    if METRICS[case.task] in LOWER_IS_BETTER:
        assert outcome.validation < outcome.baseline
    else:
        assert outcome.validation >= outcome.baseline
