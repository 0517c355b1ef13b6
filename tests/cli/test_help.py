"""Help of every command: defaults, common and advanced options, width; short names of options."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softlook.cli.config_app import COMMON_FIELDS, SELECTED_FIELDS, SHORT_NAMES
from softlook.cli.main import app, main
from softlook.recipes.config.resolve import ConfigOverrides, default_values, explicit_overrides
from softlook.recipes.config.schema import CausalLMConfig
from softlook.recipes.config.tabular_schema import TuneConfig
from softlook.recipes.tasks import TASKS, dry_run
from tests.recipes.small import digits, entities, reviews, sentences, squares

Run = Callable[..., tuple[int, str]]
COMMANDS = [
    *(f"train {task}" for task in TASKS),
    *(
        "tune",
        "serve",
        "import",
        "check",
        "plan",
        "eval",
        "runs",
        "generate",
        "translate",
        "classify",
        "embed",
        "predict",
    ),
    *("demo", "info", "export hf", "export onnx", "tokenizer train", "tokenizer show"),
]


@pytest.fixture
def run(capsys: Any, monkeypatch: Any) -> Run:
    """Runs a command on a terminal of 80 columns: the exit code and what it prints."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*args: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as exited:
            main(args)
        captured = capsys.readouterr()
        return int(exited.value.code or 0), captured.out + captured.err

    return run


def entries(help: str) -> list[str]:
    """The options of a help page, each with its description in one line."""
    rows = [line[2:-2] for line in help.splitlines() if line.startswith("│")]
    joined: list[str] = []
    for row in rows:
        if re.match(r"(\*  |   )?--", row):  # two spaces indent the second line of a name
            joined.append(row.strip())
        elif joined and row.startswith(" "):
            joined[-1] += " " + row.strip()
    return [re.sub(r"\s+", " ", one) for one in joined]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_the_default_of_every_option_within_80_columns(command: str, run: Run) -> None:
    code, text = run(*command.split(), "--help-all")
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80
    marks = ("[default: ", "by default", "required", "--json", "--quiet", "--debug")
    assert [one for one in entries(text) if not any(mark in one for mark in marks)] == []


@pytest.mark.parametrize("task", TASKS)
def test_help_of_a_task_shows_the_common_options_and_names_the_way_to_all(task: str, run: Run) -> None:
    (_, short), (_, full) = run("train", task, "--help"), run("train", task, "--help-all")
    assert "Advanced" not in short and "--help-all shows all options" in short
    assert "Advanced" in full and len(entries(short)) < 25 < len(entries(full))
    for option in (
        "--data",
        "--valid",
        "--test",
        "--run-dir",
        "--max-minutes",
        "--lr",
        "--device",
        "--seed",
        "--dry-run",
    ):
        assert any(one.startswith(f"{option} ") for one in entries(short)), option


def test_automatic_values_are_said_to_be_selected_for_the_data(run: Run) -> None:
    _, text = run("train", "lm", "--help")
    assert "--lr FLOAT peak learning rate [default: selected for the data]" in entries(text)


def test_every_value_that_is_selected_for_the_data_is_described_so(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    digits(tmp_path / "digits.tsv", 60)
    sentences(tmp_path / "words.txt", 12)
    reviews(tmp_path / "reviews.csv", 60)
    entities(tmp_path / "train.conll", 60)
    squares(tmp_path / "squares")
    files = {"translate": "digits.tsv", "classify": "reviews.csv", "tag": "train.conll", "images": "squares"}
    for task, schema in TASKS.items():
        if task != "table":
            config = schema.model_validate({"data": (Path(files.get(task, "words.txt")),)})
            overrides: ConfigOverrides[Any] = explicit_overrides(config)
            origins = dry_run(task, overrides).resolved.origins
            described = {*SELECTED_FIELDS, "pooling", "batch_size", "model.image_size", "model.patch_size"}
            assert {name for name, origin in origins.items() if origin == "auto"} <= described, task


def test_short_names_and_common_fields_are_fields_of_some_task() -> None:
    known = {name for schema in (*TASKS.values(), TuneConfig) for name in default_values(schema)} | {"dry_run"}
    assert {*SHORT_NAMES, *COMMON_FIELDS, *SELECTED_FIELDS} <= known


SHORT = {
    "--lr": ("optim.lr", "0.5"),
    "--warmup": ("optim.warmup", "7"),
    "--steps": ("training.max_steps", "7"),
    "--max-steps": ("training.max_steps", "7"),
    "--minutes": ("training.max_minutes", "7"),
    "--max-minutes": ("training.max_minutes", "7"),
    "--batch-tokens": ("batch.max_tokens", "7"),
    "--max-length": ("batch.max_length", "7"),
    "--dropout": ("model.dropout", "0.5"),
    "--device": ("training.device", "cpu"),
    "--precision": ("training.precision", "float32"),
    "--seed": ("training.seed", "7"),
}


@pytest.mark.parametrize("option", SHORT)
def test_a_short_name_sets_the_same_field_as_the_dotted_name(option: str) -> None:
    name, value = SHORT[option]
    dotted = f"--{name.replace('_', '-')}"
    parsed: list[CausalLMConfig] = []
    for flag in (option, dotted):
        _, bound, _ = app.parse_args(["train", "lm", "words.txt", flag, value], exit_on_error=False, print_error=False)
        parsed.append(bound.arguments["config"])
    assert parsed[0] == parsed[1] != CausalLMConfig()
    assert [*explicit_overrides(parsed[0]).values] == [name]


def test_limits_of_a_run_are_said_to_be_selected_for_the_data(run: Run) -> None:
    """The defaults of the schema are those of `fit`, which knows no data."""
    _, text = run("train", "lm", "--help")
    assert "--max-steps INT optimizer steps [default: selected for the data]" in entries(text)


def test_batches_of_tables_are_counted_in_rows() -> None:
    args = ["train", "table", "a.csv", "--batch-size", "64", "--epochs", "3"]
    _, bound, _ = app.parse_args(args, exit_on_error=False, print_error=False)
    config = bound.arguments["config"]
    assert (config.optim.batch_size, config.training.epochs) == (64, 3)
