"""Checkpoints: a saved model is loaded bitwise unchanged."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models import GPT, GPTConfig, optimize_for_cpu
from softlook.weights import load, read_tokenizer, save
from softlook.weights.checkpoint import CONFIG_FILE
from softlook.weights.meta import unique_tensors
from softlook.weights.structure import MODELS
from tests.models.tiny import TINY, Tiny
from tests.weights.folders import tokenizer_json

SMALL = GPTConfig(vocab_size=11, context=8, dim=16, depth=2, heads=2)


def shared(model: nn.Module) -> set[tuple[str, ...]]:
    """Groups of names of the same tensor."""
    names: dict[int, list[str]] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(tensor), []).append(name)
    return {tuple(same) for same in names.values() if len(same) > 1}


def test_every_registered_model_is_tested() -> None:
    assert {tiny.model for tiny in TINY.values()} >= {model for model, _ in MODELS.values()}


@pytest.mark.parametrize("tiny", [t for t in TINY.values() if t.model.__name__ in MODELS], ids=str)
def test_a_saved_and_loaded_model_gives_bitwise_equal_outputs(tiny: Tiny, tmp_path: Path) -> None:
    model = tiny.build()
    again = load(save(model, tmp_path / "model"))
    assert again.config == model.config
    assert not again.training
    assert shared(again) == shared(model)
    assert [name for name, _ in again.named_buffers()] == [name for name, _ in model.named_buffers()]
    torch.testing.assert_close(tiny.ask(optimize_for_cpu(again)), tiny.ask(model), rtol=0, atol=0)


def test_tied_embeddings_stay_tied(tmp_path: Path) -> None:
    again = load(save(GPT(SMALL), tmp_path / "model"))
    assert isinstance(again, GPT)
    assert again.lm_head.weight is again.token_embedding.weight


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_weights_keep_their_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    model = GPT(SMALL).to(dtype)
    again = load(save(model, tmp_path / "model"))
    for name, tensor in unique_tensors(model).items():
        torch.testing.assert_close(unique_tensors(again)[name], tensor, rtol=0, atol=0)


def test_a_loaded_model_can_be_trained(tmp_path: Path) -> None:
    model = load(save(GPT(SMALL), tmp_path / "model"))
    model(torch.tensor([[3, 1, 4]])).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.numel())


def test_a_loaded_model_does_not_change_when_its_file_does(tmp_path: Path) -> None:
    model = load(save(GPT(SMALL), tmp_path / "model"))
    before = {name: tensor.clone() for name, tensor in unique_tensors(model).items()}
    file = tmp_path / "model" / "model.safetensors"
    file.write_bytes(bytes(file.stat().st_size))
    for name, tensor in unique_tensors(model).items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)


def test_loading_does_not_advance_the_random_number_generator(tmp_path: Path) -> None:
    path = save(TINY["FTTransformer"].build(), tmp_path / "model")
    before = torch.get_rng_state()
    load(path)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_tokenizer_is_saved_with_the_model(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text(tokenizer_json(), encoding="utf-8")
    path = save(GPT(SMALL), tmp_path / "model", tokenizer=tokenizer)
    assert read_tokenizer(path).encode("ab").ids == [2]


def test_a_model_of_another_package_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"Linear is not a softlook model; supported: .*GPT"):
        save(nn.Linear(2, 2), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_model_with_nan_is_not_saved(tmp_path: Path) -> None:
    model = GPT(SMALL)
    with torch.no_grad():
        model.final_norm.weight[3] = torch.nan  # pyright: ignore
    with pytest.raises(WeightsError, match=r"^model.safetensors: 'final_norm.weight' contains NaN or infinity"):
        save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_the_config_is_stored_as_json(tmp_path: Path) -> None:
    content = json.loads((save(GPT(SMALL), tmp_path / "model") / CONFIG_FILE).read_text(encoding="utf-8"))
    assert content["model"] == "GPT"
    assert content["config"]["dim"] == 16
