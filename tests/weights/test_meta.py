"""Models on the meta device, and loading that changes all tensors or none."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models import GPT, GPTConfig
from softlook.weights import save
from softlook.weights.meta import build_on_meta, fill_computed_buffers, load_checked, unique_tensors
from tests.models.tiny import TINY

HERE = Path("here")
HUGE = GPTConfig(vocab_size=10**9, context=10**6, dim=2**20, depth=2, heads=2)


def test_a_model_larger_than_memory_can_be_built_on_the_meta_device() -> None:
    model = build_on_meta(lambda: GPT(HUGE), HERE)
    assert model.token_embedding.weight.shape == (10**9, 2**20)
    assert all(tensor.is_meta for tensor in unique_tensors(model).values())


def test_weights_are_loaded_in_place() -> None:
    """References to the parameters, such as those of an optimizer, stay valid."""
    model, other = TINY["GPT"].build(seed=0), TINY["GPT"].build(seed=1)
    before = {name: id(parameter) for name, parameter in model.named_parameters()}
    load_checked(model, unique_tensors(other), HERE)
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == before
    torch.testing.assert_close(TINY["GPT"].ask(model), TINY["GPT"].ask(other), rtol=0, atol=0)


def test_loaded_tensors_are_copied() -> None:
    model, other = TINY["GPT"].build(seed=0), TINY["GPT"].build(seed=1)
    load_checked(model, unique_tensors(other), HERE)
    with torch.no_grad():
        other.final_norm.weight.zero_()
    assert model.final_norm.weight.abs().max() > 0


@pytest.mark.parametrize("damage", ["missing", "extra", "shape", "infinite"])
def test_a_model_is_unchanged_if_the_last_tensor_is_invalid(damage: str) -> None:
    model, other = TINY["GPT"].build(seed=0), TINY["GPT"].build(seed=1)
    before = {name: tensor.clone() for name, tensor in unique_tensors(model).items()}
    tensors = {name: tensor.detach().clone() for name, tensor in unique_tensors(other).items()}
    last = list(tensors)[-1]
    if damage == "missing":
        del tensors[last]
    elif damage == "extra":
        tensors["zzz"] = torch.ones(1)
    elif damage == "shape":
        tensors[last] = torch.ones(1, 1, 1)
    else:
        tensors[last].fill_(torch.inf)
    with pytest.raises(WeightsError, match=r"^here"):
        load_checked(model, tensors, HERE)
    for name, tensor in unique_tensors(model).items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)


class Table(nn.Module):
    """A module with a computed buffer, which is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("steps", torch.arange(3.0), persistent=False)


def test_computed_buffers_are_filled_after_loading() -> None:
    model = build_on_meta(Table, HERE)
    load_checked(model, {"scale": torch.tensor([1.0, 2.0, 3.0])}, HERE)
    fill_computed_buffers(model, Table)
    assert model.get_buffer("steps").tolist() == [0, 1, 2]
    assert model.scale.tolist() == [1, 2, 3]


def test_loading_does_not_import_torchs_compiler(tmp_path: Path) -> None:
    """The import would take more than half a second."""
    save(TINY["GPT"].build(seed=0), tmp_path / "small")
    code = "import sys; from softlook.weights import load; load(sys.argv[1]); print('torch._dynamo' in sys.modules)"
    command = [sys.executable, "-c", code, str(tmp_path / "small")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"
