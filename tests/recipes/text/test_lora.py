"""LoRA training: `--lora.rank 8`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.base.errors import ConfigError, TrainingError
from softlook.blocks.lora import lora_layers
from softlook.models import Bert
from softlook.recipes import (
    TrainResult,
    evaluate,
    train_causal_lm,
    train_classification,
    train_masked_lm,
    train_translation,
    train_word2vec,
)
from softlook.recipes.config.resolve import load_overrides
from softlook.recipes.config.schema import CausalLMConfig, ClassificationConfig, LoraConfig
from softlook.train.config import OptimizerConfig
from softlook.train.events import StepLogged
from softlook.weights import load, save
from softlook.weights.manifest import best_checkpoint
from softlook.weights.tensor_files import read_safetensors
from tests.recipes.small import (
    causal_lm_config,
    classification_config,
    masked_lm_config,
    reviews,
    translation_config,
    word2vec_config,
)

TASKS: dict[str, tuple[Callable[..., TrainResult], Callable[..., Any]]] = {
    "translate": (train_translation, translation_config),
    "lm": (train_causal_lm, partial(causal_lm_config, no_ngrams=True)),  # their gate is fitted in every evaluation
    "mlm": (train_masked_lm, partial(masked_lm_config, no_ngrams=True)),
}
LORA = LoraConfig(rank=4)


def encoder(folder: Path) -> Path:
    return train_masked_lm(masked_lm_config(folder, run_dir=folder / "encoder", no_ngrams=True)).run_dir


def fine_tune(folder: Path, base: Path, steps: int = 4, callbacks: Any = (), **more: Any) -> TrainResult:
    config = classification_config(
        folder, steps, **{"run_dir": folder / "fine_tune", "init_from": base, "lora": LORA, **more}
    )
    return train_classification(config, callbacks)


@pytest.mark.parametrize("task", TASKS)
def test_only_adapted_weights_change_in_the_merged_model(task: str, tmp_path: Path) -> None:
    train, make_config = TASKS[task]
    base = train(make_config(tmp_path, run_dir=tmp_path / "base")).run_dir
    trained = train(make_config(tmp_path, run_dir=tmp_path / "fine_tune", lora=LORA, init_from=base))
    before, after = load(base).state_dict(), load(trained.run_dir).state_dict()
    assert before.keys() == after.keys()
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if name.endswith(("to_query.weight", "to_value.weight"))}
    assert not lora_layers(trained.model)
    for name, tensor in trained.model.state_dict().items():
        assert torch.equal(tensor, after[name]), name
    # Hugging Face, and with it PEFT, has these two.
    assert (trained.run_dir / "adapter").is_dir() == (task in ("mlm", "translate"))


def test_the_classification_head_is_trained_in_full(tmp_path: Path) -> None:
    base = train_classification(classification_config(tmp_path, run_dir=tmp_path / "base")).run_dir
    for name, start, new in (("one", base, set()), ("other", encoder(tmp_path), {"head.pool.dense"})):
        trained = fine_tune(tmp_path, start, run_dir=tmp_path / name, train={"ema_decay": 0.9})
        trained_modules = {
            name.rpartition(".")[0]
            for name in read_safetensors(best_checkpoint(trained.run_dir) / "model_non_ema.safetensors")
        }
        assert {name for name in trained_modules if name.startswith("head")} == {"head.to_classes"} | new
        assert {name for name in trained_modules if not name.startswith("head")} == {
            "blocks.0.attn.to_query",
            "blocks.0.attn.to_value",
        }


def swap_labels(path: Path, count: int) -> Path:
    """Reviews with swapped labels."""
    rows = reviews(path, count).read_text(encoding="utf-8").replace(",good", ",?").replace(",bad", ",good")
    path.write_text(rows.replace(",?", ",bad"), encoding="utf-8")
    return path


def test_lora_learns_and_the_merged_run_evaluates_to_the_same_scores(tmp_path: Path) -> None:
    base = train_classification(
        classification_config(tmp_path, 60, run_dir=tmp_path / "base", train={"ema_decay": 0.0})
    ).run_dir
    data, test = swap_labels(tmp_path / "flipped.csv", 200), swap_labels(tmp_path / "test.csv", 40)
    assert evaluate(base, (test,), device="cpu")["accuracy"] == 0.0
    trained = fine_tune(tmp_path, base, 60, data=(data,), test=(test,), optim=OptimizerConfig(lr=1e-2))
    assert trained.scores["test"]["accuracy"] == 1.0
    assert evaluate(trained.run_dir, (test,), device="cpu") == trained.scores["test"]


def test_the_number_of_trained_parameters_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = encoder(tmp_path)
    with caplog.at_level("INFO", "softlook"):
        trained = fine_tune(tmp_path, base)
    num_trained = 2 * 4 * (32 + 32) + 2 * 32 + 2 + 32 * 32 + 32
    count = sum(parameter.numel() for parameter in trained.model.parameters()) + 2 * 4 * (32 + 32)
    assert f"LoRA: {num_trained:,} of {count:,} parameters are trained" in caplog.text


class CrashError(Exception):
    """Stands for a killed process."""


@pytest.mark.parametrize("ema_decay", [0.0, 0.9], ids=str)
def test_a_crashed_run_resumes_bit_for_bit(ema_decay: float, tmp_path: Path) -> None:
    base, train = encoder(tmp_path), {"save_every": 2, "evaluate_every": 3, "ema_decay": ema_decay}

    def crash(event: Any) -> None:
        if isinstance(event, StepLogged) and event.step == 5:
            raise CrashError

    uninterrupted = fine_tune(tmp_path, base, 8, run_dir=tmp_path / "uninterrupted", train=train)
    with pytest.raises(CrashError):
        fine_tune(tmp_path, base, 8, [crash], train=train)
    moved = base.rename(tmp_path / "elsewhere")  # compared by content, not by path
    resumed = fine_tune(tmp_path, moved, 8, train=train)
    files = sorted(path.name for path in best_checkpoint(uninterrupted.run_dir).glob("*.safetensors"))
    assert files == sorted(path.name for path in best_checkpoint(resumed.run_dir).glob("*.safetensors"))
    assert "adapters.safetensors" in files
    last = "checkpoints/step-000000008"
    for file in files:
        assert (uninterrupted.run_dir / last / file).read_bytes() == (resumed.run_dir / last / file).read_bytes(), file
    assert (resumed.progress.best_loss, resumed.progress.best_step) == (
        uninterrupted.progress.best_loss,
        uninterrupted.progress.best_step,
    )
    assert resumed.scores == uninterrupted.scores


def test_resuming_with_other_lora_settings_is_an_error(tmp_path: Path) -> None:
    base = encoder(tmp_path)
    fine_tune(tmp_path, base)
    for changed, message in (
        (LoraConfig(rank=8), "lora.rank: was 4, now 8"),
        (LoraConfig(rank=4, alpha=4.0), "lora.alpha: was None, now 4.0"),
        (
            LoraConfig(rank=4, target_modules=("to_key",)),
            r"lora.target_modules: was \['to_query', 'to_value'\], now \['to_key'\]",
        ),
        (LoraConfig(), "lora.rank: was 4, now 0"),
    ):
        with pytest.raises(TrainingError, match=message):
            fine_tune(tmp_path, base, lora=changed)


def test_resuming_from_other_pretrained_weights_is_an_error(tmp_path: Path) -> None:
    base = encoder(tmp_path)
    fine_tune(tmp_path, base)
    model = load(base)
    assert isinstance(model, Bert)
    nn.init.normal_(model.blocks[0].attn.to_query.weight)  # pyright: ignore[reportArgumentType,reportAttributeAccessIssue,reportCallIssue,reportIndexIssue]
    other = save(model, tmp_path / "other", tokenizer=base / "tokenizer.json")
    with pytest.raises(TrainingError, match="lora.base: was '.*', now '.*'"):
        fine_tune(tmp_path, other)


def test_exported_adapters_are_those_of_the_best_checkpoint_after_resuming(tmp_path: Path) -> None:
    base = encoder(tmp_path)
    for steps in (4, 4, 8):
        run = train_masked_lm(masked_lm_config(tmp_path, steps, lora=LORA, init_from=base, train={"evaluate_every": 4}))
        exported = read_safetensors(run.run_dir / "adapter" / "adapter_model.safetensors")
        best = read_safetensors(best_checkpoint(run.run_dir) / "adapters.safetensors")
        name = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"
        assert torch.equal(exported[name], best["blocks.0.attn.to_query.lora_A"])


def test_a_fine_tuned_run_can_be_fine_tuned_again(tmp_path: Path) -> None:
    first = fine_tune(tmp_path, encoder(tmp_path), run_dir=tmp_path / "first").run_dir
    assert fine_tune(tmp_path, first, run_dir=tmp_path / "second").progress.step == 4


def test_lora_without_pretrained_weights_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LoRA needs pretrained weights. Set --init-from"):
        train_classification(classification_config(tmp_path, lora=LORA))


def test_lora_without_a_rank_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lora.alpha has no effect without a rank. Set one: --lora.rank 8"):
        train_classification(classification_config(tmp_path, lora=LoraConfig(alpha=3.0)))


def test_unknown_target_modules_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no linear layer 'to_qurey'. Did you mean 'to_query'\?"):
        fine_tune(tmp_path, encoder(tmp_path), lora=LoraConfig(rank=2, target_modules=("to_qurey",)))
    base = train_word2vec(word2vec_config(tmp_path, run_dir=tmp_path / "vectors")).run_dir
    with pytest.raises(ConfigError, match="no linear layer 'to_query'. It has none."):
        train_word2vec(word2vec_config(tmp_path, 4, run_dir=tmp_path / "more", lora=LORA, init_from=base))


def test_the_lora_learning_rate_is_higher_than_for_full_fine_tuning(tmp_path: Path) -> None:
    base = encoder(tmp_path)
    lora_lr = fine_tune(tmp_path, base, run_dir=tmp_path / "lora", optim={}).resolved.config.optim.lr
    full_lr = fine_tune(tmp_path, base, run_dir=tmp_path / "full", optim={}, lora=LoraConfig()).resolved.config.optim.lr
    assert lora_lr > full_lr


def test_target_modules_in_a_file_and_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('data = "a.txt"\n[lora]\nrank = 8\ntarget_modules = ["to_key", "to_out"]\n')
    overrides = load_overrides(CausalLMConfig(), config=tmp_path / "run.toml")
    assert (overrides.get("lora.rank"), overrides.get("lora.target_modules")) == (8, ("to_key", "to_out"))
    assert overrides.get("data") == (tmp_path / "a.txt",)
    overrides = load_overrides(
        ClassificationConfig(), environ={"SOFTLOOK_LORA__TARGET_MODULES": "to_key to_out", "SOFTLOOK_LORA__RANK": "2"}
    )
    assert (overrides.get("lora.rank"), overrides.get("lora.target_modules")) == (2, ("to_key", "to_out"))
