"""A LoRA run saves merged plain models, resumes bit for bit, and checks its base weights."""

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
from tests.train.lora_runs import STEPS, lora_model, run, run_deterministic
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

CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "EMA, with evaluations": {"ema_decay": 0.9, "evaluate_every": 3, "evaluate": make_evaluator()},
    "accumulated, in bfloat16": {"gradient_accumulation_steps": 3, "precision": "bfloat16", "ema_decay": 0.5},
    "in float16": {"precision": "float16"},
}
FILES = ("model.safetensors", "optimizer.safetensors", "rng_state.safetensors", ADAPTERS)


def last_checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of the last checkpoint of a run."""
    path = CheckpointManager(folder).path(STEPS)
    return {f"{file}/{name}": tensor for file in FILES for name, tensor in read_safetensors(path / file).items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_resumed_run_equals_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    expected, expected_progress = run(tmp_path / "uninterrupted", **CONFIGS[name])
    for stop in (1, 5, 11):
        resumed_dir = tmp_path / f"stopped at {stop}"
        run(resumed_dir, stop_at=stop, **CONFIGS[name])
        resumed, progress = run(resumed_dir, **CONFIGS[name])
        assert_same(resumed, expected)
        assert_same_progress(progress, expected_progress)
        assert_same(last_checkpoint(resumed_dir), last_checkpoint(tmp_path / "uninterrupted"))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_lora_checkpoint_is_a_merged_plain_model(name: str, tmp_path: Path) -> None:
    trained, _ = run(tmp_path, **CONFIGS[name])
    plain = load(tmp_path)
    ids = rows(sentences()).ids
    assert not lora_layers(plain)
    assert lora_layers(trained)
    torch.testing.assert_close(plain(ids), trained(ids), atol=1e-6, rtol=1e-5)
    merge_lora(trained)
    assert_same(trained, plain)


def test_training_state_has_only_trainable_tensors(tmp_path: Path) -> None:
    trained, _ = run(tmp_path, ema_decay=0.9)
    trainable = {name for name, parameter in trained.named_parameters() if parameter.requires_grad}
    path = CheckpointManager(tmp_path).path(STEPS)
    assert set(read_safetensors(path / "model_non_ema.safetensors")) == trainable
    assert {name.rpartition(".")[0] for name in read_safetensors(path / "optimizer.safetensors")} == trainable
    assert set(read_safetensors(path / ADAPTERS)) == {
        name for name in trainable if name.endswith((".lora_A", ".lora_B"))
    }
    assert set(read_safetensors(path / "model.safetensors")) == set(unique_tensors(model()))


def test_only_trainable_parameters_change(tmp_path: Path) -> None:
    before, after = lora_model(), run(tmp_path)[0]
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
        run(tmp_path, model=lora_model(base))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rank": 3}, r"lora.rank: was \[2\], now \[3\]\n  lora.alpha: was \[4.0\], now \[6.0\]"),
        ({"alpha": 8.0}, r"lora.alpha: was \[4.0\], now \[8.0\]"),
        ({"dropout": 0.0}, r"lora.dropout: was \[0.1\], now \[0.0\]"),
    ],
    ids=str,
)
def test_other_lora_settings_raise(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    run(tmp_path, max_steps=2)
    with pytest.raises(TrainingError, match=message):
        run(tmp_path, model=lora_model(**changed))


def test_a_lora_run_does_not_resume_without_lora_nor_vice_versa(tmp_path: Path) -> None:
    run(tmp_path / "with", max_steps=2)
    run(tmp_path / "without", max_steps=2, model=model())
    with pytest.raises(TrainingError, match=r"lora: was \{.*\}, now None"):
        run(tmp_path / "with", model=model())
    with pytest.raises(TrainingError, match="no checkpoint in .* is intact"):
        run(tmp_path / "without")


def test_damaged_adapters_fall_back_to_the_previous_checkpoint(tmp_path: Path) -> None:
    expected, _ = run(tmp_path / "uninterrupted")
    run(tmp_path / "damaged", save_every=3, stop_at=7)
    adapter_file = CheckpointManager(tmp_path / "damaged").path(7) / ADAPTERS
    content = bytearray(adapter_file.read_bytes())
    content[-5] ^= 1
    adapter_file.write_bytes(content)
    events: list[Any] = []
    resumed, _ = run(tmp_path / "damaged", events=events)
    assert "adapters.safetensors is not what was saved" in events[0].message
    assert_same(resumed, expected)


def test_lora_gradient_accumulation_equals_one_large_batch() -> None:
    def after(steps: int) -> nn.Module:
        examples = sentences()[:8]
        source = [rows(examples[start::steps]) for start in range(steps)]
        network = lora_model(model(NO_DROPOUT).double(), dropout=0.0)
        return run_training(model=network, source=source, max_steps=1, gradient_accumulation_steps=steps)[0]

    expected = after(1).state_dict()
    for name, tensor in after(2).state_dict().items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-9, rtol=0)


def test_the_lora_fingerprint_is_deterministic() -> None:
    assert lora_fingerprint(lora_model()) == lora_fingerprint(lora_model())
    assert lora_fingerprint(model()) == {}


@pytest.mark.slow
def test_lora_with_ddp_and_fsdp_equals_one_process(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.train.lora_runs", str(tmp_path)]
    subprocess.run(program, cwd=Path(__file__).parents[3], check=True, capture_output=True, timeout=120)
    run_deterministic(tmp_path / "single")
    single = load(tmp_path / "single").state_dict()
    for parallel in ("ddp", "fsdp"):
        for name, tensor in load(tmp_path / parallel).state_dict().items():
            torch.testing.assert_close(tensor, single[name], atol=1e-9, rtol=0, msg=f"{parallel}: {name}")
