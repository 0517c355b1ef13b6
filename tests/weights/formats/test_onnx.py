"""Export to ONNX: ONNX Runtime gives the same outputs for every batch size and length from one file."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import jaxtyping
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from softlook import masks, positions
from softlook.base.errors import WeightsError
from softlook.blocks import AttentionCore
from softlook.models import GPT, GPTConfig, RNNSearch
from softlook.ops.attention import attention
from softlook.weights import read_tokenizer
from softlook.weights.formats.onnx import to_onnx
from tests.models.tiny import TINY, Tiny
from tests.weights.folders import tokenizer_json

ROOT = Path(__file__).parents[3]
FAST = ("GPT", "Bert")
SIZES = ((2, 7), (1, 9), (3, 1), (1, 1))
"""(batch, length), all with one file."""


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path / "model.onnx", options, providers=["CPUExecutionProvider"])


def run(runtime: Any, inputs: dict[str, Tensor]) -> Tensor:
    arrays = runtime.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    outputs = [torch.from_numpy(array) for array in arrays]
    return outputs[0] if len(outputs) == 1 else torch.cat([output.flatten(1) for output in outputs], 1)


@pytest.mark.parametrize(
    "tiny", [pytest.param(tiny, id=name, marks=() if name in FAST else pytest.mark.slow) for name, tiny in TINY.items()]
)
def test_onnx_runtime_gives_the_same_outputs_for_every_batch_and_length(tiny: Tiny, tmp_path: Path) -> None:
    if tiny.model is RNNSearch:  # torch cannot trace the body of its loop with the shape checks of the test run
        call = f"check_export(TINY[{tiny.name!r}], Path({str(tmp_path)!r}))"
        code = f"from tests.weights.formats.test_onnx import *; {call}"
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    else:
        check_export(tiny, tmp_path)


def check_export(tiny: Tiny, folder: Path) -> None:
    model = tiny.build()
    runtime = session(to_onnx(model, folder / "model"))
    assert {argument.name for argument in runtime.get_inputs()} == tiny.inputs().keys()
    for batch, length in SIZES:
        inputs = tiny.inputs(batch, length, seed=length)
        with torch.no_grad():
            expected = tiny.ask(model, inputs)
        torch.testing.assert_close(run(runtime, inputs), expected, rtol=1e-4, atol=1e-4)


class MaskedAttention(nn.Module):
    """Attention with a mask and a bias that are computed inside the graph."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.embedding = nn.Embedding(10, 8)
        self.table, self.vectors = nn.Parameter(torch.randn(32, 2)), nn.Parameter(torch.randn(5, 4))
        self.relative, self.biases = nn.Parameter(torch.randn(2, 64, 4)), nn.Parameter(torch.randn(2, 2, 4))

    def forward(self, ids: Tensor, padding_mask: Tensor) -> Tensor:
        x = self.embedding(ids).unflatten(-1, (2, 4)).transpose(1, 2)
        mask, bias = self.mask_and_bias(ids, padding_mask[:, None, None])
        return attention(x, x, x, mask=mask, bias=bias, backend="reference")

    def mask_and_bias(self, ids: Tensor, visible: Tensor) -> tuple[Any, Any]:
        factories = {
            "causal and dense": lambda: (masks.causal() & visible, None),
            "window or prefix": lambda: (masks.window(3) | masks.prefix(1), None),
            "padding": lambda: (masks.padding(visible.sum(-1).flatten()), None),
            "documents": lambda: (masks.documents(ids), None),
            "T5": lambda: (None, positions.t5(self.table)),
            "ALiBi": lambda: (masks.causal(), positions.alibi(2)),
            "Shaw": lambda: (None, positions.shaw(self.vectors, self.vectors)),
            "Transformer-XL": lambda: (None, positions.transformer_xl(self.relative, *self.biases)),
            "dense bias": lambda: (None, torch.where(visible, 0.0, -3.0)),
        }
        return factories[self.kind]()


KINDS = (
    "causal and dense",
    "window or prefix",
    "padding",
    "documents",
    "T5",
    "ALiBi",
    "Shaw",
    "Transformer-XL",
    "dense bias",
)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_and_biases_are_recomputed_for_every_size(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.export traces symbolic sizes; a cached dense mask would have a fixed size."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # jaxtyping does not know symbolic sizes
    module = MaskedAttention(kind).eval()
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    ids, padding_mask = torch.randint(0, 10, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
    program = torch.export.export(module, (ids, padding_mask), dynamic_shapes=(dynamic, dynamic))
    graph = program.module(check_guards=False)
    for batch, length in ((2, 5), (3, 9), (1, 4), (2, 1)):
        ids, padding_mask = torch.randint(0, 10, (batch, length)), torch.rand(batch, length) > 0.3
        torch.testing.assert_close(graph(ids, padding_mask), module(ids, padding_mask))


SMALL = GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2, dropout=0.5)


def test_export_does_not_change_the_model(tmp_path: Path) -> None:
    model = GPT(SMALL).train()
    model.blocks[0].attn.core.backend = "sdpa"  # pyright: ignore
    model.dropout.eval()
    before = {name: module.training for name, module in model.named_modules()}
    level = logging.getLogger("torch.onnx._internal.exporter._registration").level
    runtime = session(to_onnx(model, tmp_path / "model"))
    assert {name: module.training for name, module in model.named_modules()} == before
    assert [module.backend for module in model.modules() if isinstance(module, AttentionCore)] == ["sdpa"]
    assert logging.getLogger("torch.onnx._internal.exporter._registration").level == level
    ids = torch.tensor([[3, 1, 4]])
    expected = model.eval()(ids)  # the export has no dropout
    torch.testing.assert_close(run(runtime, {"ids": ids}), expected, rtol=1e-4, atol=1e-5)


def test_inputs_and_outputs_are_named(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text(tokenizer_json(), encoding="utf-8")
    folder = to_onnx(GPT(SMALL), tmp_path / "model", tokenizer=tokenizer)
    runtime = session(folder)
    assert [(argument.name, argument.shape) for argument in runtime.get_inputs()] == [("ids", ["batch", "length"])]
    assert [(argument.name, argument.shape) for argument in runtime.get_outputs()] == [
        ("logits", ["batch", "length", 10])
    ]
    assert read_tokenizer(folder).get_vocab_size() == 3


def test_the_graph_contains_no_paths_of_the_machine(tmp_path: Path) -> None:
    graph = (to_onnx(GPT(SMALL), tmp_path / "model") / "model.onnx").read_bytes()
    assert str(ROOT).encode() not in graph
    assert b".py" not in graph


def test_a_model_of_another_package_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"Linear is not a softlook model"):
        to_onnx(nn.Linear(2, 2), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_failed_export_raises_an_error_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **more: Any) -> None:
        raise RuntimeError("no such operation")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(WeightsError, match=r"torch cannot export this GPT to ONNX: no such operation"):
        to_onnx(GPT(SMALL), tmp_path / "model")
    assert not list(tmp_path.iterdir())
