"""What was written as ONNX says the same in another runtime, for every batch and length, from one file."""

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

ROOT = Path(__file__).parents[2]
FAST = ("GPT", "Bert")
SIZES = ((2, 7), (1, 9), (3, 1), (1, 1))
"""(batch, length), all asked of one file."""


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path / "model.onnx", options, providers=["CPUExecutionProvider"])


def answer(runs: Any, inputs: dict[str, Tensor]) -> Tensor:
    output = [torch.from_numpy(part) for part in runs.run(None, {name: held.numpy() for name, held in inputs.items()})]
    return output[0] if len(output) == 1 else torch.cat([part.flatten(1) for part in output], 1)


@pytest.mark.parametrize(
    "tiny", [pytest.param(tiny, id=name, marks=() if name in FAST else pytest.mark.slow) for name, tiny in TINY.items()]
)
def test_onnx_runtime_gives_the_same_outputs_for_every_batch_and_length(tiny: Tiny, tmp_path: Path) -> None:
    if tiny.model is RNNSearch:  # torch traces the loop's body line by line, and trips over the checks of shapes in it
        call = f"hold_together(TINY[{tiny.name!r}], Path({str(tmp_path)!r}))"
        code = f"from tests.weights.formats.test_onnx import *; {call}"
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    else:
        hold_together(tiny, tmp_path)


def hold_together(tiny: Tiny, folder: Path) -> None:
    model = tiny.build()
    runs = session(to_onnx(model, folder / "model"))
    assert {put.name for put in runs.get_inputs()} == tiny.inputs().keys()
    for batch, length in SIZES:
        inputs = tiny.inputs(batch, length, seed=length)
        with torch.no_grad():
            expected = tiny.ask(model, inputs)
        torch.testing.assert_close(answer(runs, inputs), expected, rtol=1e-4, atol=1e-4)


class Looking(nn.Module):
    """Attention by itself, with a mask and a bias that are worked out inside the graph."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.words = nn.Embedding(10, 8)
        self.table, self.near = nn.Parameter(torch.randn(32, 2)), nn.Parameter(torch.randn(5, 4))
        self.far, self.two = nn.Parameter(torch.randn(2, 64, 4)), nn.Parameter(torch.randn(2, 2, 4))

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        x = self.words(ids).unflatten(-1, (2, 4)).transpose(1, 2)
        seen, bias = self.parts(ids, present[:, None, None])
        return attention(x, x, x, mask=seen, bias=bias, backend="reference")

    def parts(self, ids: Tensor, there: Tensor) -> tuple[Any, Any]:
        made = {
            "causal, of those that are there": lambda: (masks.causal() & there, None),
            "through a window": lambda: (masks.window(3) | masks.prefix(1), None),
            "by lengths": lambda: (masks.padding(there.sum(-1).flatten()), None),
            "within documents": lambda: (masks.documents(ids), None),
            "T5": lambda: (None, positions.t5(self.table)),
            "ALiBi": lambda: (masks.causal(), positions.alibi(2)),
            "Shaw": lambda: (None, positions.shaw(self.near, self.near)),
            "Transformer-XL": lambda: (None, positions.transformer_xl(self.far, *self.two)),
            "written out": lambda: (None, torch.where(there, 0.0, -3.0)),
        }
        return made[self.kind]()


KINDS = (
    "causal, of those that are there",
    "through a window",
    "by lengths",
    "within documents",
    "T5",
    "ALiBi",
    "Shaw",
    "Transformer-XL",
    "written out",
)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_and_biases_are_worked_out_anew_for_every_size(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.export keeps sizes as symbols; a mask that was written out once and kept would show here."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # symbols are no numbers
    looking = Looking(kind).eval()
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    ids, there = torch.randint(0, 10, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
    graph = torch.export.export(looking, (ids, there), dynamic_shapes=(free, free)).module(check_guards=False)
    for batch, length in ((2, 5), (3, 9), (1, 4), (2, 1)):
        ids, there = torch.randint(0, 10, (batch, length)), torch.rand(batch, length) > 0.3
        torch.testing.assert_close(graph(ids, there), looking(ids, there))


SMALL = GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2, dropout=0.5)


def test_writing_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = GPT(SMALL).train()
    model.blocks[0].attn.core.backend = "sdpa"  # pyright: ignore
    model.dropout.eval()
    before = {name: module.training for name, module in model.named_modules()}
    level = logging.getLogger("torch.onnx._internal.exporter._registration").level
    runs = session(to_onnx(model, tmp_path / "model"))
    assert {name: module.training for name, module in model.named_modules()} == before
    assert [module.backend for module in model.modules() if isinstance(module, AttentionCore)] == ["sdpa"]
    assert logging.getLogger("torch.onnx._internal.exporter._registration").level == level
    ids = torch.tensor([[3, 1, 4]])
    torch.testing.assert_close(
        answer(runs, {"ids": ids}), model.eval()(ids), rtol=1e-4, atol=1e-5
    )  # nothing is dropped


def test_inputs_and_outputs_are_named(tmp_path: Path) -> None:
    words = tmp_path / "tokenizer.json"
    words.write_text(tokenizer_json(), encoding="utf-8")
    folder = to_onnx(GPT(SMALL), tmp_path / "model", tokenizer=words)
    runs = session(folder)
    assert [(put.name, put.shape) for put in runs.get_inputs()] == [("ids", ["batch", "length"])]
    assert [(put.name, put.shape) for put in runs.get_outputs()] == [("logits", ["batch", "length", 10])]
    assert read_tokenizer(folder).get_vocab_size() == 3


def test_a_graph_tells_nothing_of_the_machine_it_was_made_on(tmp_path: Path) -> None:
    graph = (to_onnx(GPT(SMALL), tmp_path / "model") / "model.onnx").read_bytes()
    assert str(ROOT).encode() not in graph
    assert b".py" not in graph


def test_a_model_of_somebody_elses_is_refused(tmp_path: Path) -> None:
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
