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
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.checkpoint.train_state import ADAPTERS, lora_fingerprint
from softlook.weights import load
from softlook.weights.meta import unique_tensors
from softlook.weights.tensor_files import read_safetensors
from tests.train.lora_runs import STEPS, adapted, calm, run
from tests.train.tiny import (
    NO_DROPOUT,
    assert_same,
    assert_same_progress,
    make_evaluator,
    model,
    rows,
    run_training,
    sentences,
)

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "averaged, with looks": {"ema_decay": 0.9, "evaluate_every": 3, "evaluate": make_evaluator()},
    "accumulated, in bfloat16": {"gradient_accumulation_steps": 3, "precision": "bfloat16", "ema_decay": 0.5},
    "in float16": {"precision": "float16"},
}
FILES = ("model.safetensors", "optimizer.safetensors", "rng_state.safetensors", ADAPTERS)


def kept(folder: Path) -> dict[str, torch.Tensor]:
    """All that the last checkpoint of a run holds."""
    path = CheckpointManager(folder).path(STEPS)
    return {f"{file}/{name}": tensor for file in FILES for name, tensor in read_safetensors(path / file).items()}


@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_run_equals_an_uninterrupted_one(way: str, tmp_path: Path) -> None:
    whole, uninterrupted = run(tmp_path / "whole", **WAYS[way])
    for stop in (1, 5, 11):
        pieces = tmp_path / f"stopped at {stop}"
        run(pieces, stop_at=stop, **WAYS[way])
        again, progress = run(pieces, **WAYS[way])
        assert_same(again, whole)
        assert_same_progress(progress, uninterrupted)
        assert_same(kept(pieces), kept(tmp_path / "whole"))


@pytest.mark.parametrize("way", WAYS)
def test_a_lora_checkpoint_is_a_merged_plain_model(way: str, tmp_path: Path) -> None:
    left, _ = run(tmp_path, **WAYS[way])
    plain = load(tmp_path)
    ids = rows(sentences()).ids
    assert not lora_layers(plain)
    assert lora_layers(left)
    torch.testing.assert_close(plain(ids), left(ids), atol=1e-6, rtol=1e-5)
    merge_lora(left)
    assert_same(left, plain)


def test_training_state_has_only_trainable_tensors(tmp_path: Path) -> None:
    left, _ = run(tmp_path, ema_decay=0.9)
    learned = {name for name, parameter in left.named_parameters() if parameter.requires_grad}
    path = CheckpointManager(tmp_path).path(STEPS)
    assert set(read_safetensors(path / "model_non_ema.safetensors")) == learned
    assert {name.rpartition(".")[0] for name in read_safetensors(path / "optimizer.safetensors")} == learned
    assert set(read_safetensors(path / ADAPTERS)) == {name for name in learned if name.endswith((".lora_A", ".lora_B"))}
    assert set(read_safetensors(path / "model.safetensors")) == set(unique_tensors(model()))


def test_only_trainable_parameters_change(tmp_path: Path) -> None:
    before, after = adapted(), run(tmp_path)[0]
    old = before.state_dict()
    changed = {name for name, tensor in after.state_dict().items() if not torch.equal(tensor, old[name])}
    assert changed == {name for name, parameter in after.named_parameters() if parameter.requires_grad}


def test_without_a_run_dir_the_best_weights_are_left() -> None:
    scores = iter([3.0, 1.0, 2.0, 2.0])
    settings: dict[str, Any] = {"evaluate_every": 3, "evaluate": lambda model: {"loss": next(scores)}}
    best, progress = run(None, **settings)
    stopped, _ = run(None, max_steps=6)
    assert progress.best_step == 6
    assert_same(best, stopped)


def test_other_base_weights_raise(tmp_path: Path) -> None:
    run(tmp_path, max_steps=2)
    base = model()
    with torch.no_grad():
        base.get_parameter("blocks.0.attn.to_value.weight")[0, 0] += 1e-6
    with pytest.raises(
        TrainingError, match=r"was saved with different settings:\n  lora.base: was '\w{64}', now '\w{64}'\n"
    ):
        run(tmp_path, model=adapted(base))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rank": 3}, r"lora.rank: was \[2\], now \[3\]\n  lora.alpha: was \[4.0\], now \[6.0\]"),
        ({"alpha": 8.0}, r"lora.alpha: was \[4.0\], now \[8.0\]"),
        ({"dropout": 0.0}, r"lora.dropout: was \[0.1\], now \[0.0\]"),
    ],
    ids=str,
)
def test_other_lora_settings_raise(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    run(tmp_path, max_steps=2)
    with pytest.raises(TrainingError, match=said):
        run(tmp_path, model=adapted(**changed))


def test_a_lora_run_does_not_resume_without_lora_nor_vice_versa(tmp_path: Path) -> None:
    run(tmp_path / "with", max_steps=2)
    run(tmp_path / "without", max_steps=2, model=model())
    with pytest.raises(TrainingError, match=r"lora: was \{.*\}, now None"):
        run(tmp_path / "with", model=model())
    with pytest.raises(TrainingError, match="no checkpoint in .* is intact"):
        run(tmp_path / "without")


def test_damaged_adapters_fall_back_to_the_previous_checkpoint(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole")
    run(tmp_path / "hurt", save_every=3, stop_at=7)
    hurt = CheckpointManager(tmp_path / "hurt").path(7) / ADAPTERS
    content = bytearray(hurt.read_bytes())
    content[-5] ^= 1
    hurt.write_bytes(content)
    events: list[Any] = []
    again, _ = run(tmp_path / "hurt", events=events)
    assert "adapters.safetensors is not what was saved" in events[0].message
    assert_same(again, whole)


def test_lora_gradient_accumulation_equals_one_large_batch() -> None:
    def after(parts: int) -> nn.Module:
        both = sentences()[:8]
        source = [rows(both[start::parts]) for start in range(parts)]
        made = adapted(model(NO_DROPOUT).double(), dropout=0.0)
        return run_training(model=made, source=source, max_steps=1, gradient_accumulation_steps=parts)[0]

    whole = after(1).state_dict()
    for name, tensor in after(2).state_dict().items():
        torch.testing.assert_close(tensor, whole[name], atol=1e-9, rtol=0)


def test_the_lora_fingerprint_is_deterministic() -> None:
    assert lora_fingerprint(adapted()) == lora_fingerprint(adapted())
    assert lora_fingerprint(model()) == {}


@pytest.mark.slow
def test_lora_with_ddp_and_fsdp_equals_one_process(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.train.lora_runs", str(tmp_path)]
    subprocess.run(program, cwd=Path(__file__).parents[3], check=True, capture_output=True, timeout=120)
    calm(tmp_path / "alone")
    alone = load(tmp_path / "alone").state_dict()
    for way in ("ddp", "fsdp"):
        for name, tensor in load(tmp_path / way).state_dict().items():
            torch.testing.assert_close(tensor, alone[name], atol=1e-9, rtol=0, msg=f"{way}: {name}")
