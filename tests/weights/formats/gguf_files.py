"""Small GGUF files for tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from torch import Tensor

from softlook.models import Llama, LlamaConfig
from softlook.weights.formats.gguf import LAYER_NAMES, PROJECTIONS

IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7, 7, 0]])
SIZES: dict[str, Any] = {
    "vocab_size": 11,
    "context": 64,
    "dim": 64,
    "depth": 2,
    "heads": 4,
    "kv_heads": 2,
    "hidden": 96,
}


def small(**changes: Any) -> Llama:
    model = Llama(LlamaConfig(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def permute_qk(weight: Tensor, heads: int) -> Tensor:
    """Rows of a projection in the order of llama.cpp's converter."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def tensors_of(model: Llama, architecture: str) -> dict[str, Tensor]:
    """The tensors of a model with llama.cpp's names and row order."""
    c, own = model.config, model.state_dict()
    found = {"token_embd.weight": own["token_embedding.weight"], "output_norm.weight": own["final_norm.weight"]}
    if not c.tie_embeddings:
        found["output.weight"] = own["lm_head.weight"]
    for i in range(c.depth):
        for actual, reference in (PROJECTIONS | LAYER_NAMES).items():
            for what in ("weight", "bias"):
                if f"blocks.{i}.{actual}.{what}" in own:
                    found[f"blk.{i}.{reference}.{what}"] = own[f"blocks.{i}.{actual}.{what}"]
        if architecture == "llama":
            for name, heads in (("attn_q", c.heads), ("attn_k", c.kv_heads or c.heads)):
                found[f"blk.{i}.{name}.weight"] = permute_qk(found[f"blk.{i}.{name}.weight"], heads)
    return found


def metadata_of(model: Llama) -> dict[str, Any]:
    c = model.config
    return {
        "block_count": c.depth,
        "context_length": c.context,
        "embedding_length": c.dim,
        "feed_forward_length": c.hidden,
        "attention.head_count": c.heads,
        "attention.head_count_kv": c.kv_heads,
        "attention.layer_norm_rms_epsilon": c.eps,
        "rope.freq_base": c.rope_theta,
        "rope.dimension_count": model.head_dim,
    }


ADDERS: dict[type, Callable[..., None]] = {
    int: GGUFWriter.add_uint32,
    float: GGUFWriter.add_float64,
    str: GGUFWriter.add_string,
    bool: GGUFWriter.add_bool,
    list: GGUFWriter.add_array,
}


def write(path: Path, fields: dict[str, Any], tensors: dict[str, Tensor], kind: Kind, architecture: str) -> Path:
    writer = GGUFWriter(path, architecture)
    for name, value in fields.items():
        if value is not None:
            ADDERS[type(value)](writer, name, value)
    for name, tensor in tensors.items():
        own = kind if tensor.ndim == 2 else Kind.F32  # as in llama.cpp: only matrices are quantized
        writer.add_tensor(name, gguf.quantize(tensor.float().numpy(), own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_model(
    model: Llama,
    path: Path,
    *,
    architecture: str = "llama",
    kind: Kind = Kind.F32,
    fields: dict[str, Any] | None = None,
    tensors: dict[str, Tensor] | None = None,
) -> Path:
    """A model as a GGUF file; `fields` and `tensors` change or add entries, None removes one."""
    metadata = {f"{architecture}.{name}": value for name, value in metadata_of(model).items()} | (fields or {})
    kept = tensors_of(model, architecture) | (tensors or {})
    return write(path, metadata, {name: t for name, t in kept.items() if t is not None}, kind, architecture)
