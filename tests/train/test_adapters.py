"""A run that learns by adapters leaves plain models, goes on bit for bit, and knows what it was built on."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.base.errors import TrainingError
from softlook.blocks.lora import lora_layers, merge_lora
from softlook.train.adapters import ADAPTERS, foundation
from softlook.train.snapshots import Snapshots
from softlook.weights import load
from softlook.weights.files import read_file
from softlook.weights.hollow import own_tensors
from tests.train.adapted import STEPS, adapted, calm, run
from tests.train.tiny import CALM, assert_same, assert_same_place, look, model, rows, sentences, trained

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "averaged, with looks": {"average": 0.9, "evaluate_every": 3, "evaluate": look()},
    "accumulated, in bfloat16": {"accumulate": 3, "precision": "bfloat16", "average": 0.5},
    "in float16": {"precision": "float16"},
}
FILES = ("model.safetensors", "optimizer.safetensors", "dice.safetensors", ADAPTERS)


def kept(folder: Path) -> dict[str, torch.Tensor]:
    """All that the last checkpoint of a run holds."""
    path = Snapshots(folder).path(STEPS)
    return {f"{file}/{name}": tensor for file in FILES for name, tensor in read_file(path / file).items()}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_is_stopped_ends_as_one_that_is_not(way: str, tmp_path: Path) -> None:
    whole, unbroken = run(tmp_path / "whole", **WAYS[way])
    for stop in (1, 5, 11):
        pieces = tmp_path / f"stopped at {stop}"
        run(pieces, stop_at=stop, **WAYS[way])
        again, progress = run(pieces, **WAYS[way])
        assert_same(again, whole)
        assert_same_place(progress, unbroken)
        assert_same(kept(pieces), kept(tmp_path / "whole"))


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_is_a_plain_model_that_answers_as_the_adapted_one(way: str, tmp_path: Path) -> None:
    left, _ = run(tmp_path, **WAYS[way])
    plain = load(tmp_path)
    ids = rows(sentences()).ids
    assert not lora_layers(plain)
    assert lora_layers(left)
    torch.testing.assert_close(plain(ids), left(ids), atol=1e-6, rtol=1e-5)
    merge_lora(left)
    assert_same(left, plain)


def test_what_it_takes_to_go_on_is_small(tmp_path: Path) -> None:
    left, _ = run(tmp_path, average=0.9)
    learned = {name for name, parameter in left.named_parameters() if parameter.requires_grad}
    path = Snapshots(tmp_path).path(STEPS)
    assert set(read_file(path / "raw.safetensors")) == learned
    assert {name.rpartition(".")[0] for name in read_file(path / "optimizer.safetensors")} == learned
    assert set(read_file(path / ADAPTERS)) == {name for name in learned if name.endswith((".down", ".up"))}
    assert set(read_file(path / "model.safetensors")) == set(own_tensors(model()))


def test_only_adapters_and_what_learns_whole_change(tmp_path: Path) -> None:
    before, after = adapted(), run(tmp_path)[0]
    old = before.state_dict()
    changed = {name for name, tensor in after.state_dict().items() if not torch.equal(tensor, old[name])}
    assert changed == {name for name, parameter in after.named_parameters() if parameter.requires_grad}


def test_without_a_folder_the_best_weights_are_left_too() -> None:
    scores = iter([3.0, 1.0, 2.0, 2.0])
    settings: dict[str, Any] = {"evaluate_every": 3, "evaluate": lambda model: {"loss": next(scores)}}
    best, progress = run(None, **settings)
    stopped, _ = run(None, steps=6)
    assert progress.best_step == 6
    assert_same(best, stopped)


def test_other_weights_underneath_are_refused(tmp_path: Path) -> None:
    run(tmp_path, steps=2)
    base = model()
    with torch.no_grad():
        base.get_parameter("blocks.0.attend.to_value.weight")[0, 0] += 1e-6
    with pytest.raises(
        TrainingError, match=r"was made with other settings:\n  lora.base: '\w{64}' then, '\w{64}' now\n"
    ):
        run(tmp_path, model=adapted(base))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rank": 3}, r"lora.rank: \[2\] then, \[3\] now\n  lora.alpha: \[4.0\] then, \[6.0\] now"),
        ({"alpha": 8.0}, r"lora.alpha: \[4.0\] then, \[8.0\] now"),
        ({"dropout": 0.0}, r"lora.dropout: \[0.1\] then, \[0.0\] now"),
    ],
    ids=str,
)
def test_other_adapters_are_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    run(tmp_path, steps=2)
    with pytest.raises(TrainingError, match=said):
        run(tmp_path, model=adapted(**changed))


def test_a_run_with_adapters_does_not_go_on_without_them_nor_the_other_way_round(tmp_path: Path) -> None:
    run(tmp_path / "with", steps=2)
    run(tmp_path / "without", steps=2, model=model())
    with pytest.raises(TrainingError, match=r"lora: \{.*\} then, None now"):
        run(tmp_path / "with", model=model())
    with pytest.raises(TrainingError, match="no checkpoint in .* is whole"):
        run(tmp_path / "without")


def test_a_flipped_bit_in_the_adapters_is_noticed_and_the_checkpoint_before_is_taken(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole")
    run(tmp_path / "hurt", save_every=3, stop_at=7)
    hurt = Snapshots(tmp_path / "hurt").path(7) / ADAPTERS
    content = bytearray(hurt.read_bytes())
    content[-5] ^= 1
    hurt.write_bytes(content)
    heard: list[Any] = []
    again, _ = run(tmp_path / "hurt", heard=heard)
    assert "adapters.safetensors is not what was saved" in heard[0].message
    assert_same(again, whole)


def test_accumulated_batches_count_as_one_large_batch() -> None:
    def after(parts: int) -> nn.Module:
        both = sentences()[:8]
        source = [rows(both[start::parts]) for start in range(parts)]
        made = adapted(model(CALM).double(), dropout=0.0)
        return trained(model=made, source=source, steps=1, accumulate=parts)[0]

    whole = after(1).state_dict()
    for name, tensor in after(2).state_dict().items():
        torch.testing.assert_close(tensor, whole[name], atol=1e-9, rtol=0)


def test_the_foundation_is_the_same_wherever_it_is_worked_out() -> None:
    assert foundation(adapted()) == foundation(adapted())
    assert foundation(model()) == {}


@pytest.mark.slow
def test_two_processes_learn_what_one_learns_with_a_copy_or_a_part_each(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.train.adapted", str(tmp_path)]
    subprocess.run(program, cwd=Path(__file__).parents[2], check=True, capture_output=True, timeout=120)
    calm(tmp_path / "alone")
    alone = load(tmp_path / "alone").state_dict()
    for way in ("ddp", "fsdp"):
        for name, tensor in load(tmp_path / way).state_dict().items():
            torch.testing.assert_close(tensor, alone[name], atol=1e-9, rtol=0, msg=f"{way}: {name}")
