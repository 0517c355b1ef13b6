"""Traces as files: one safetensors file with a JSON manifest in its metadata. It loads without the model."""

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.blocks.attention import AttentionCore
from softlook.lens.attention_trace import AttentionCall, AttentionTrace
from softlook.lens.descriptions import NAMES, build, dense_tensor, describe
from softlook.lens.recording import copy_as
from softlook.ops.bias import as_bias
from softlook.ops.masks.base import And, DenseMask, Mask, Not, Or, as_mask
from softlook.weights.atomic_folder import check_not_exists, disk_errors, fsync

FORMAT = "softlook-trace"
VERSION = 1
"""Version of the layout. Other versions are refused."""
MAX_DENSE_MASK = 1 << 26
"""Entries of a mask without a description that are saved instead."""
TEXTS = ("tokens", "source_tokens")
PER_KEY = ("key", "value_norm", "value")
"""Fields that calls with a KV cache share: slices of one tensor."""


@dataclass(eq=False)
class TensorStore:
    """The tensors of a file. Slices of one tensor along the keys share it, as do uses of one mask or bias."""

    dtype: torch.dtype | None
    """The dtype of recorded activations; None for their own."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    shared: dict[Any, tuple[str, Tensor]] = field(default_factory=dict)
    """Names by identity, and the tensors themselves: an address is unique only while its tensor lives."""

    def add(self, tensor: Tensor) -> str:
        """Store a recorded tensor in the dtype of the file, and return its name."""
        name = f"t{len(self.tensors)}"
        own = tensor.detach() if self.dtype is None else copy_as(tensor.detach(), self.dtype)
        self.tensors[name] = own.cpu().contiguous()
        return name

    def add_shared(self, tensor: Tensor) -> str:
        """Store a tensor of a mask, a bias or a score as it is, once; of an expanded one, only what it expands."""
        once = tensor[tuple(slice(0, 1 if stride == 0 else None) for stride in tensor.stride())]
        key = (once.data_ptr(), once.dtype, once.shape, once.stride()) if once.numel() else len(self.tensors)
        if key not in self.shared:
            name = f"t{len(self.tensors)}"
            self.tensors[name] = once.detach().cpu().contiguous()
            self.shared[key] = name, once
        return self.shared[key][0]

    def add_slices(self, slices: list[Tensor]) -> list[list[Any]]:
        """Store slices along the third axis, and return [name, first, last] for each."""
        groups: dict[Any, list[Tensor]] = {}
        for tensor in slices:
            groups.setdefault(_origin(tensor), []).append(tensor)
        whole = {key: _join(group) for key, group in groups.items()}
        names = {key: self.add(tensor) for key, (tensor, _) in whole.items()}
        references = []
        for tensor in slices:
            key = _origin(tensor)
            start = _start(tensor) - whole[key][1]
            references.append([names[key], start, start + tensor.shape[2]])
        return references


def _origin(tensor: Tensor) -> Any:
    """Equal for slices along the third axis of one tensor."""
    if not tensor.numel():
        return id(tensor)
    return tensor.untyped_storage().data_ptr(), tensor.stride(), tensor.shape[:2], tensor.shape[3:]


def _start(tensor: Tensor) -> int:
    return tensor.storage_offset() // tensor.stride(2) if tensor.numel() else 0


def _join(slices: list[Tensor]) -> tuple[Tensor, int]:
    """The smallest slice that holds all of them, and its start."""
    first = min(slices, key=_start)
    stop = max(_start(tensor) + tensor.shape[2] for tensor in slices)
    size = (*first.shape[:2], stop - _start(first), *first.shape[3:])
    return first.as_strided(size, first.stride(), first.storage_offset()), _start(first)


def write_trace(path: Path, contents: Mapping[str, Any], dtype: torch.dtype | None) -> None:
    """Write the fields of a `Trace` to a new file."""
    check_not_exists(path)
    store = TensorStore(dtype)
    manifest = {
        "version": VERSION,
        "layers": {name: _describe_calls(layer.calls, store) for name, layer in contents["layers"].items()},
        "residual": {name: store.add(stream) for name, stream in contents["residual"].items()},
        "logits": None if contents["logits"] is None else store.add(contents["logits"]),
        "inputs": {name: [store.add(ids) for ids in calls] for name, calls in contents["inputs"].items()},
        **{name: None if contents[name] is None else list(contents[name]) for name in TEXTS},
    }
    content = json.dumps(manifest, allow_nan=False)
    metadata = {FORMAT: content, "sha256": _digest(content, store.tensors)}
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    with disk_errors("write", path):
        try:
            save_file(store.tensors, partial, metadata)
            fsync(partial)
            partial.rename(path)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise


def read_trace(path: Path) -> dict[str, Any]:
    """The fields of a `Trace`, read from a file. It holds no code; a damaged or changed one is an error."""
    tensors, metadata = _read(path)
    content = metadata.get(FORMAT)
    if content is None:
        raise WeightsError(f"{path} is a safetensors file, but not a trace: its metadata has no {FORMAT!r}")
    if _digest(content, tensors) != metadata.get("sha256"):
        raise WeightsError(f"{path} was changed or damaged: its SHA-256 differs. Save the trace again.")
    try:
        return _build_contents(json.loads(content), tensors)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise WeightsError(
            f"{path} is no trace that this version reads: {type(error).__name__}: {error!s:.300}"
        ) from error


def _describe_calls(calls: list[AttentionCall], store: TensorStore) -> list[dict[str, Any]]:
    entries = [_describe_call(call, store) for call in calls]
    for name in PER_KEY:
        tensors = [getattr(call, name) for call in calls]
        references = store.add_slices([tensor.detach() for tensor in tensors if tensor is not None])
        for entry, tensor in zip(entries, tensors, strict=True):
            entry[name] = None if tensor is None else references.pop(0)
    return entries


def _describe_call(call: AttentionCall, store: TensorStore) -> dict[str, Any]:
    core, bias = call.core, None if call.bias is None else as_bias(call.bias)
    mask = None if call.mask is None else _without_functions(as_mask(call.mask), call)
    parts = {"mask": mask, "bias": bias, "score": core.score, "sink": core.sink}
    return {
        "query": store.add(call.query),
        "output": None if call.output is None else store.add(call.output),
        "first_key": call.first_key,
        "scale": core.scale,
        "softcap": core.softcap,
        **{name: describe(part, store.add_shared) for name, part in parts.items()},
    }


def _without_functions(mask: Mask, call: AttentionCall) -> Mask:
    """The mask, with each part that is a function replaced by its entries."""
    if isinstance(mask, And | Or):
        return replace(mask, one=_without_functions(mask.one, call), other=_without_functions(mask.other, call))
    if isinstance(mask, Not):
        return replace(mask, mask=_without_functions(mask.mask, call))
    if type(mask) in NAMES:
        return mask
    return DenseMask(dense_tensor(mask, call.args.sizes, call.query.device, MAX_DENSE_MASK))


def _build_contents(manifest: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    if manifest["version"] != VERSION:
        raise WeightsError(f"it has version {manifest['version']!r:.20} of the layout, expected {VERSION}")
    layers = {
        name: AttentionTrace([_build_call(entry, tensors) for entry in entries])
        for name, entries in manifest["layers"].items()
    }
    return {
        "layers": layers,
        "residual": {name: tensors[stream] for name, stream in manifest["residual"].items()},
        "logits": None if manifest["logits"] is None else tensors[manifest["logits"]],
        "inputs": {name: [tensors[ids] for ids in calls] for name, calls in manifest["inputs"].items()},
        **{name: _check_texts(manifest[name]) for name in TEXTS},
    }


def _build_call(entry: dict[str, Any], tensors: dict[str, Tensor]) -> AttentionCall:
    parts = {name: build(entry[name], tensors.__getitem__) for name in ("mask", "bias", "score", "sink")}
    scale, softcap = (None if entry[name] is None else float(entry[name]) for name in ("scale", "softcap"))
    per_key = {name: _slice(entry[name], tensors) for name in PER_KEY}
    key, value_norm, value = per_key.values()
    if (
        key is None
        or value_norm is None
        or any(x is not None and x.shape[:3] != key.shape[:3] for x in (value_norm, value))
    ):
        raise WeightsError("a call has keys, and a norm and at most one value for each of them")
    call = AttentionCall(
        AttentionCore(scale=scale, softcap=softcap, sink=parts["sink"], score=parts["score"]).eval(),
        tensors[entry["query"]],
        key,
        parts["mask"],
        parts["bias"],
        value_norm,
        value,
        None if entry["output"] is None else tensors[entry["output"]],
        int(entry["first_key"]),
    )
    _ = call.args  # raises an error unless shapes, mask and bias fit each other
    return call


def _slice(reference: list[Any] | None, tensors: dict[str, Tensor]) -> Tensor | None:
    """The part of a tensor from the first to before the last position, of [name, first, last]."""
    if reference is None:
        return None
    name, first, last = reference
    if not 0 <= first <= last <= tensors[name].shape[2]:
        raise WeightsError(f"{name} has {tensors[name].shape[2]} positions, expected those from {first} to {last}")
    return tensors[name][:, :, first:last]


def _check_texts(texts: Any) -> list[str] | None:
    if texts is not None and not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
        raise WeightsError(f"expected a list of token texts, got {texts!r:.100}")
    return texts


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if not path.is_file():
        raise WeightsError(f"{path} is not a file")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path} is truncated, damaged or not a safetensors file: {error!s:.200}") from None


def _digest(content: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the manifest and of all tensors, in the order of their names."""
    digest = sha256(content.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
