"""Only models whose structure matches their config are saved and exported."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from softlook.base.errors import WeightsError
from softlook.blocks import AttentionCore, RMSNorm, add_lora, merge_lora
from softlook.models import GPT, GPTConfig, Llama, LlamaConfig, RopeScaling
from softlook.models.llama import frequency_scaling
from softlook.ops.scores import cosine
from softlook.weights import load, save, to_hugging_face
from softlook.weights.formats.ctranslate2 import to_ctranslate2
from softlook.weights.formats.onnx import to_onnx
from softlook.weights.hugging_face import to_peft
from softlook.weights.structure import check_structure, equivalent
from tests.models.tiny import TINY, Tiny

SMALL = GPTConfig(vocab_size=4, context=8, dim=16, depth=2, heads=2)
LONG = LlamaConfig(
    vocab_size=5, dim=16, depth=1, heads=2, rope_scaling=RopeScaling(rope_type="llama3", factor=4.0, original_context=8)
)
Change = Callable[[Any], None]


def set_attribute(path: str, value: Any) -> Change:
    """Set attribute `a.b.c` of a model."""
    owner, _, name = path.rpartition(".")
    return lambda model: setattr(model.get_submodule(owner), name, value)


def untie(model: Any) -> None:
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())


def share_blocks(model: Any) -> None:
    model.blocks[1] = model.blocks[0]


CHANGES: dict[str, tuple[Change, str]] = {
    "core": (
        set_attribute("blocks.0.attn.core", AttentionCore(score=cosine(0.1), sink=0.0, softcap=3.0, dropout=0.1)),
        r"blocks\.0\.attn\.core\.softcap is 3\.0",
    ),
    "score": (set_attribute("blocks.1.attn.core.score", cosine(0.1)), r"blocks\.1\.attn\.core\.score is Cosine"),
    "scale": (set_attribute("blocks.1.attn.core.scale", 1.0), r"blocks\.1\.attn\.core\.scale is 1\.0"),
    "sink": (set_attribute("blocks.1.attn.core.sink", 0.0), r"blocks\.1\.attn\.core\.sink is 0\.0"),
    "attention dropout": (set_attribute("blocks.1.attn.core.dropout", 0.5), r"core\.dropout is 0\.5"),
    "dropout": (set_attribute("dropout.p", 0.3), r"dropout\.p is 0\.3"),
    "eps": (set_attribute("final_norm.eps", 1e-3), r"final_norm\.eps is 0\.001"),
    "norm": (set_attribute("final_norm", RMSNorm(16)), r"final_norm is a RMSNorm, but the config gives a LayerNorm"),
    "activation": (set_attribute("blocks.0.ffn.activation", F.relu), r"blocks\.0\.ffn\.activation is <function relu"),
    "forward": (set_attribute("blocks.0.ffn.forward", lambda x: x), r"blocks\.0\.ffn\.forward is set on the instance"),
    "wider": (set_attribute("blocks.0.ffn.to_up", nn.Linear(16, 65)), r"blocks\.0\.ffn\.to_up\.out_features is 65"),
    "no bias": (set_attribute("blocks.0.ffn.to_out.bias", None), r"blocks\.0\.ffn\.to_out\.bias has shape None"),
    "extra module": (
        set_attribute("blocks.0.ffn.more", nn.Identity()),
        r"blocks\.0\.ffn has other submodules than the config gives: more",
    ),
    "untied": (untie, r"lm_head\.weight is untied, but the config gives tied to token_embedding"),
    "shared": (
        share_blocks,
        r"blocks\.1\..* is tied to blocks\.0\.",
    ),
}
WRITERS: dict[str, Callable[[nn.Module, Path], Any]] = {
    "softlook": save,
    "hugging face": to_hugging_face,
    "ctranslate2": partial(to_ctranslate2, vocabulary=["<s>", "</s>", "<unk>", "a"]),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=list(CHANGES))
def test_a_model_that_does_not_match_its_config_raises_an_error(
    change: Change, message: str, write: Callable[[nn.Module, Path], Any], tmp_path: Path
) -> None:
    model = GPT(SMALL)
    change(model)
    with pytest.raises(WeightsError, match=message):
        write(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("tiny", TINY.values(), ids=str)
def test_every_model_matches_its_config(tiny: Tiny) -> None:
    model = tiny.build()
    assert check_structure(model) == tiny.model.__name__
    assert check_structure(model.train().half().requires_grad_(False)) == tiny.model.__name__


def test_changes_without_effect_on_outputs_are_allowed(tmp_path: Path) -> None:
    model = GPT(SMALL).eval()
    for module in model.modules():
        if isinstance(module, AttentionCore):
            module.backend = "reference"
            module.register_forward_hook(lambda *seen: None)
    vars(model)["note"] = "mine"
    assert load(save(model, tmp_path / "model")).config == SMALL


def test_lora_adapters_are_allowed_but_other_changes_are_not(tmp_path: Path) -> None:
    model = Llama(LlamaConfig(vocab_size=5, dim=16, depth=1, heads=2))
    add_lora(model, rank=2)
    save(model, tmp_path / "whole")
    to_peft(model, tmp_path / "adapters")
    model.blocks[0].attn.core.softcap = 2.0  # pyright: ignore
    with pytest.raises(WeightsError, match="softcap is 2.0"):
        to_peft(model, tmp_path / "other adapters")
    model.blocks[0].attn.core.softcap = None  # pyright: ignore
    merge_lora(model)
    assert check_structure(model) == "Llama"


def test_functions_are_compared_by_their_code() -> None:
    one, same, other = (
        frequency_scaling(RopeScaling(rope_type="llama3", factor=f, original_context=8)) for f in (4.0, 4.0, 8.0)
    )
    assert equivalent(one, same) and not equivalent(one, other)
    model = Llama(LONG)
    model.frequency_scaling = other
    with pytest.raises(WeightsError, match="scaling is "):
        check_structure(model)


def test_onnx_exports_the_computation_regardless_of_the_config(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = GPT(SMALL).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        plain = model(torch.tensor([[1, 2, 3]]))
        CHANGES["core"][0](model)
        expected = model.eval()(torch.tensor([[1, 2, 3]]))
    assert (plain - expected).abs().max() > 1e-3
    session = runtime.InferenceSession(str(to_onnx(model, tmp_path / "model") / "model.onnx"))
    actual = session.run(None, {"ids": np.array([[1, 2, 3]])})[0]
    torch.testing.assert_close(torch.from_numpy(actual), expected, atol=1e-4, rtol=1e-4)
