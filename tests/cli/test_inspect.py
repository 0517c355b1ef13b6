"""`softlook inspect` draws the attention of a model in the terminal, as figures and as JSON."""

from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand
from tests.recipes.trained_runs import train_runs

DATE = "25 décembre 1999"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return train_runs(tmp_path_factory.mktemp("inspect"), "lm", "classify")


def test_the_last_layer_is_drawn_as_the_mean_over_heads_with_a_line_for_each_head(command: RunCommand) -> None:
    completed = command("inspect", "dates", DATE)
    assert completed.code == 0 and completed.lines[0] == "layer 1: cross-attention"
    assert "mean over heads" in completed.lines[1]
    table = completed.lines[next(n for n, line in enumerate(completed.lines) if "entropy" in line) :]
    assert [line.split()[:2] for line in table[3:]] == [["head", str(number)] for number in range(4)]
    assert not any("\x1b" in line for line in completed.lines)


def test_maps_of_all_heads_wrap_within_the_terminal(command: RunCommand) -> None:
    for line in command("inspect", "dates", DATE, "--head", "all").lines:
        assert len(line) <= 100


def test_json_holds_the_exact_weights(command: RunCommand) -> None:
    (content,) = command("--json", "inspect", "dates", DATE, "--head", "0", "2", "--layer", "0").objects
    assert [(one["layer"], one["head"]) for one in content["maps"]] == [(0, "head 0"), (0, "head 2")]
    first = content["maps"][0]
    assert "".join(first["queries"]) == "1999-12-25</s>" and len(first["weights"]) == len(first["queries"])
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in first["weights"])
    assert [len(layer["heads"]) for layer in content["layers"]] == [4, 4]


def test_each_type_of_attention_of_an_encoder_decoder_can_be_chosen(command: RunCommand) -> None:
    completed = command("inspect", "dates", "3 mai", "--attention", "encoder", "decoder")
    headings = [line for line in completed.lines if line.startswith("layer") and "." not in line]
    assert headings == ["layer 1: encoder self-attention", "layer 1: decoder self-attention"]


def test_figures_of_all_heads_are_written_to_new_files_only(command: RunCommand, tmp_path: Path) -> None:
    arguments = ("inspect", "dates", DATE, "--layer", "all", "--html", "a.html", "--svg", "a.svg")
    assert command(*arguments).code == 0
    page, figure = (tmp_path / "a.html").read_text("utf-8"), (tmp_path / "a.svg").read_text("utf-8")
    assert "softlook-config" in page and "decoder.blocks.1.cross_attn" in page and figure.count("layer 1, head 3") >= 1
    again = command(*arguments)
    assert again.code == 74 and "already exists" in again.err and not again.out


def test_language_models_and_classifiers_have_self_attention(command: RunCommand, runs: dict[str, Path]) -> None:
    assert "layer 0: self-attention" in command("inspect", runs["lm"], "the cat").out
    assert command("inspect", runs["classify"], "film was", "dull", "--head", "-1").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--head", "4"), "--head: expected a number from 0 to 3, or -4 to -1; got 4"),
        (("--layer", "2"), "--layer: expected a number from 0 to 1, or -2 to -1; got 2"),
        (("--layer", "last"), "last"),
        (("--attention", "encoder", "cross", "--svg", "a.svg"), "a figure shows one type of attention"),
    ],
)
def test_a_wrong_choice_is_an_error_before_anything_is_written(
    command: RunCommand, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    completed = command("inspect", "dates", DATE, *arguments)
    assert completed.code != 0 and message in completed.err and not completed.out
    assert not list(tmp_path.iterdir())


def test_cross_attention_of_a_language_model_is_an_error(command: RunCommand, runs: dict[str, Path]) -> None:
    completed = command("inspect", runs["lm"], "the cat", "--attention", "cross")
    assert completed.code == 65 and "has only self-attention" in completed.err


def test_scores_name_the_heads_of_each_kind(command: RunCommand, runs: dict[str, Path]) -> None:
    lines = command("inspect", runs["lm"], "the cat and the dog", "--scores").lines
    start = next(n for n, line in enumerate(lines) if line.startswith("kind"))
    kinds = {line.split("  ")[0] for line in lines[start + 1 :]}
    assert {"sink", "previous", "local", "induction", "copying"} <= kinds
    (content,) = command("--json", "inspect", runs["lm"], "the cat", "--scores").objects
    heads = sum(len(layer["heads"]) for layer in content["layers"])
    assert len(content["scores"]) == heads and 0 <= content["scores"][0]["previous"] <= 1
    refused = command("inspect", "dates", DATE, "--scores")
    assert refused.code != 0 and "head scores need an encoder or a language model" in refused.err
