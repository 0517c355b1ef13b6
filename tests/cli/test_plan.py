"""`softlook plan`: its table, its object, and its errors."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from softlook.cli import main
from tests.cli.conftest import Completed

RunPlan = Callable[..., Completed]


@pytest.fixture
def plan(capsys: Any) -> RunPlan:
    """Runs the command, which needs no device."""

    def call(*args: str) -> Completed:
        with pytest.raises(SystemExit) as exited:
            main(args)
        return Completed(int(exited.value.code or 0), *capsys.readouterr())

    return call


def test_a_plan_names_memory_time_and_communication(plan: RunPlan) -> None:
    run = plan("plan", "--params", "7B", "--gpus", "64", "--context", "32k", "--batch", "4M", "--tokens", "1T")
    assert run.code == 0
    words = ["model", "step", "memory", "time", "computation", "communication", "whole"]
    assert [line.split()[0] for line in run.lines] == words
    assert "33 layers of width 4,224" in run.out and "2 x 32,768 tokens per GPU" in run.out
    assert "It does not fit" in run.out


def test_a_plan_is_an_object_with_json(plan: RunPlan) -> None:
    found = json.loads(plan("--json", "plan", "--params", "124M").out)
    assert found["fits"] and found["run_seconds"] is None
    assert found["tokens_per_second"] > 1e5


@pytest.mark.parametrize("number", ["many", "-1B", "0", "7X"])
def test_a_number_that_is_none_is_explained(number: str, plan: RunPlan) -> None:
    run = plan("plan", f"--params={number}")
    assert run.code != 0 and "--params expects a number such as" in run.err
