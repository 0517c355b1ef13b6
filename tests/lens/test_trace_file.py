"""A saved trace loads without its model and gives the same numbers; a damaged file is an error."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.testing import assert_close

from softlook import bias, masks
from softlook.base.errors import ConfigError, DiskError, WeightsError
from softlook.blocks import AttentionCore
from softlook.blocks.kv_cache import KVCache
from softlook.lens import Trace, load_trace, trace
from softlook.lens.trace_file import FORMAT
from softlook.models import GPT, GPTConfig
from tests.lens.families import FAMILIES, build


def record(name: str, **options: Any) -> Trace:
    model, forward = build(name)
    with torch.no_grad(), trace(model, **options) as recorded:
        forward(model)
    return recorded


def record_core(**arguments: Any) -> Trace:
    core = AttentionCore(score=arguments.pop("score", None), sink=arguments.pop("sink", None))
    with torch.no_grad(), trace(nn.ModuleDict({"core": core})) as recorded:
        core(*torch.randn(3, 1, 2, 6, 4), **arguments)
    return recorded


def generation(**options: Any) -> Trace:
    torch.manual_seed(0)
    model, cache = GPT(GPTConfig(vocab_size=20, context=128, dim=32, depth=2, heads=4)).eval(), KVCache()
    with torch.no_grad(), trace(model, **options) as recorded:
        for part in torch.randint(20, (1, 100)).split([20] + [1] * 80, 1):
            model(part, cache=cache)
    return recorded


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_loads_with_the_same_weights_and_statistics(name: str, tmp_path: Path) -> None:
    recorded = record(name, values=True)
    recorded.save(tmp_path / "trace.safetensors")
    loaded = load_trace(tmp_path / "trace.safetensors")
    assert list(loaded) == list(recorded)
    for path, layer in recorded.items():
        own = loaded[path]
        # The recorded tensors are equal bit for bit. What is computed from them rounds as the layout in memory has it:
        # a matrix product of contiguous keys and one of transposed keys may differ in the last bit.
        assert_close(own.weights(), layer.weights())
        for lane, values in layer.lanes(top_k=2).items():
            assert_close(own.lanes(top_k=2)[lane], values)
        for call, other in zip(own.calls, layer.calls, strict=True):
            for one, two in ((call.query, other.query), (call.key, other.key)):
                assert_close(one, two, rtol=0, atol=0)
            assert str(call.mask) == str(other.mask) or isinstance(other.mask, Tensor)
            for one, two in ((call.value, other.value), (call.output, other.output)):
                assert one is not None and two is not None
                assert_close(one, two, rtol=0, atol=0)
            assert_close(call.value_norm, other.value_norm, rtol=0, atol=0)
    assert loaded.residual.keys() == recorded.residual.keys()
    for path, stream in recorded.residual.items():
        assert_close(loaded.residual[path], stream, rtol=0, atol=0)


def test_tokens_ids_and_logits_are_saved(tmp_path: Path) -> None:
    model, ids = GPT(GPTConfig(vocab_size=20, context=8, dim=32, depth=1, heads=4)).eval(), torch.tensor([[3, 1, 4]])
    with torch.no_grad(), trace(model, tokens=["<script>", "\u202eb", "字"]) as recorded:
        logits = model(ids)
    recorded.save(tmp_path / "trace.safetensors")
    loaded = load_trace(tmp_path / "trace.safetensors")
    assert loaded.tokens == ["<script>", "\u202eb", "字"] and loaded.source_tokens is None
    assert loaded.inputs["ids"][0].tolist() == ids.tolist()
    assert loaded.logits is not None
    assert_close(loaded.logits, logits)


def test_half_precision_halves_the_file_and_keeps_the_weights_close(tmp_path: Path) -> None:
    recorded = record("llama, grouped, softcap and windows")
    sizes = {}
    for dtype in (None, torch.float16):
        path = tmp_path / f"{dtype}.safetensors"
        recorded.save(path, dtype=dtype)
        header = int.from_bytes(path.read_bytes()[:8], "little")
        sizes[dtype] = path.stat().st_size - 8 - header
        for name, layer in load_trace(path).items():
            assert layer.calls[0].query.dtype == (dtype or torch.float32)
            assert_close(layer.weights().float(), recorded[name].weights(), atol=2e-3, rtol=0)
    assert sizes[torch.float16] < 0.6 * sizes[None]


def test_the_keys_of_a_generation_are_saved_once(tmp_path: Path) -> None:
    recorded = generation()
    recorded.save(tmp_path / "trace.safetensors")
    with safe_open(tmp_path / "trace.safetensors", framework="pt") as file:
        elements = sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118
    positions, layers, width = 100, 2, 32
    queries_keys_norms = layers * positions * (width + width + 4)
    residual_logits_ids = layers * width + 20 + positions  # those of the last step, and ids of each
    assert elements == queries_keys_norms + residual_logits_ids
    for path, layer in load_trace(tmp_path / "trace.safetensors").items():
        assert_close(layer.weights(), recorded[path].weights(), rtol=0, atol=0)


KINDS: dict[str, dict[str, Any]] = {
    "prefix": {"mask": masks.causal() | masks.prefix(torch.tensor([2]))},
    "graph": {"mask": masks.graph(torch.tensor([[0, 1, 5], [3, 1, 0]]))},
    "not": {"mask": ~masks.window(1, 1)},
    "function mask": {"mask": masks.causal() & masks.from_function(lambda b, h, i, j: (i + j) % 2 == 0)},
    "tensor mask": {"mask": torch.rand(6, 6) > 0.3},
    "bias with -inf": {"bias": torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)},
    "sink of each head": {"sink": torch.tensor([0.5, -1.0])},
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_mask_and_bias_is_saved(name: str, tmp_path: Path) -> None:
    recorded = record_core(**KINDS[name])
    recorded.save(tmp_path / "trace.safetensors")
    loaded = load_trace(tmp_path / "trace.safetensors")
    assert_close(loaded["core"].weights(), recorded["core"].weights(), rtol=0, atol=0)


def test_functions_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "trace.safetensors"
    with pytest.raises(ConfigError, match="a function cannot be saved with a trace: it is a function"):
        record_core(score=lambda query, key: query @ key.mT).save(path)
    with pytest.raises(ConfigError, match="a FunctionBias cannot be saved with a trace"):
        record_core(bias=bias.from_function(lambda score, b, h, i, j: score)).save(path)
    assert not list(tmp_path.iterdir())


def test_a_large_mask_that_is_a_function_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.lens.trace_file.MAX_DENSE_MASK", 35)
    with pytest.raises(ConfigError, match="the mask from_function.* too many to save"):
        record_core(mask=masks.from_function(lambda b, h, i, j: i >= j)).save(tmp_path / "trace.safetensors")


def test_a_trace_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "trace.safetensors").touch()
    with pytest.raises(DiskError, match="already exists"):
        record_core().save(tmp_path / "trace.safetensors")


def test_a_truncated_or_changed_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.safetensors"
    record("gpt").save(path)
    content = path.read_bytes()
    for count in (0, 4, 100, len(content) - 1):
        path.write_bytes(content[:count])
        with pytest.raises(WeightsError, match="truncated, damaged or not a safetensors file"):
            load_trace(path)
    for index in (len(content) - 5, len(content) // 2):
        changed = bytearray(content)
        changed[index] ^= 1
        path.write_bytes(changed)
        with pytest.raises(WeightsError, match="was changed or damaged: its SHA-256 differs"):
            load_trace(path)


def test_other_files_are_an_error(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="is a safetensors file, but not a trace"):
        load_trace(tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="is not a file"):
        load_trace(tmp_path / "nothing.safetensors")


def rewrite(path: Path, monkeypatch: pytest.MonkeyPatch, *keys: Any, value: Any) -> None:
    """Change a value of the manifest, together with the checksum."""
    with safe_open(path, framework="pt") as file:
        tensors, manifest = {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()[FORMAT])  # noqa: SIM118
    *parents, last = keys
    entry = manifest
    for key in parents:
        entry = entry[key]
    entry[last] = value
    monkeypatch.setattr("softlook.lens.trace_file._digest", lambda content, tensors: "same")
    path.unlink()
    save_file(tensors, path, {FORMAT: json.dumps(manifest), "sha256": "same"})


CALL = ("layers", "blocks.0.attn", 0)
INVALID: list[tuple[tuple[Any, ...], Any, str]] = [
    (("version",), 2, "has version 2 of the layout, expected 1"),
    (("layers",), 3, "AttributeError"),
    (("tokens",), [1], "expected a list of token texts"),
    (("logits",), "nothing", "KeyError"),
    ((*CALL, "query"), "t9999", "KeyError"),
    ((*CALL, "key", 2), 3, "a norm and at most one value for each of them"),
    ((*CALL, "key", 2), 99, "t1 has 9 positions, expected those from 0 to 99"),
    ((*CALL, "scale"), "large", "ValueError: could not convert"),
    ((*CALL, "mask"), {"kind": "os.system", "left": "ls"}, "unknown kind 'os.system': expected one of window"),
    (
        (*CALL, "mask"),
        {"kind": "window", "left": "ls", "right": 0},
        "expected the description of a mask, a bias or a score",
    ),
    ((*CALL, "mask"), {"kind": "window", "left": 0.5, "right": 0}, "the description of a window is invalid"),
    ((*CALL, "mask"), {"kind": "window", "left": 3}, "the description of a window is invalid: expected left, right"),
    ((*CALL, "mask"), {"kind": "alibi", "slopes": {"tensor": "t0"}}, "TypeError|mask"),
    ((*CALL, "score"), {"kind": "additive_score", "vector": 3}, "the description of a additive_score is invalid"),
]


@pytest.mark.parametrize(("keys", "value", "message"), INVALID)
def test_an_invalid_manifest_is_an_error(
    keys: tuple[Any, ...], value: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.safetensors"
    record("gpt").save(path)
    rewrite(path, monkeypatch, *keys, value=value)
    with pytest.raises(WeightsError, match=message):
        load_trace(path)
