"""`softlook fill` prints predictions for masked tokens."""

from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand
from tests.recipes.trained_runs import train_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return train_runs(tmp_path_factory.mktemp("fill"), "mlm", "lm")


def test_each_prediction_is_a_line_of_token_probability_and_text(command: RunCommand, runs: dict[str, Path]) -> None:
    completed = command("fill", runs["mlm"], "the c[MASK]t", "the <mask>og", "--top-k", "3")
    rows = [line.split("\t") for line in completed.lines]
    assert completed.code == 0 and len(rows) == 6
    probabilities = [float(row[1]) for row in rows[:3]]
    assert probabilities == sorted(probabilities, reverse=True) and 0 < probabilities[0] < 1
    assert rows[0][2] == f"the c{rows[0][0]}t" and rows[3][2] == f"the {rows[3][0]}og"


def test_files_stdin_and_arguments_give_the_same_predictions(
    command: RunCommand, runs: dict[str, Path], tmp_path: Path
) -> None:
    texts = ["the c[MASK]t", "", "the d<mask>g"]
    (tmp_path / "masked.txt").write_text("\n".join(texts) + "\n")
    piped = command("fill", runs["mlm"], "--top-k", "1", stdin="\n".join(texts) + "\n")
    assert len(piped.lines) == 3 and piped.lines[1] == ""
    assert command("fill", runs["mlm"], "--top-k", "1", "--file", "masked.txt") == piped


def test_json_has_one_object_per_text_with_all_masks(command: RunCommand, runs: dict[str, Path]) -> None:
    (content,) = command("--json", "fill", runs["mlm"], "the c[MASK]t e[MASK]ts").objects
    assert [len(mask) for mask in content["masks"]] == [5, 5]
    assert content["masks"][0][0].keys() == {"token", "id", "probability"} and "[MASK]" not in content["filled"]


def test_a_text_without_a_mask_and_a_model_that_fills_none_are_errors(
    command: RunCommand, runs: dict[str, Path]
) -> None:
    no_mask = command("fill", runs["mlm"], "the cat")
    assert no_mask.code == 65 and "has no mask" in no_mask.err and "write [MASK]" in no_mask.err
    no_head = command("fill", runs["lm"], "the [MASK]")
    assert no_head.code == 65 and "softlook train mlm" in no_head.err
