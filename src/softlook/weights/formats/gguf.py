"""Import of GGUF files of the Llama family (llama.cpp)."""

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import FiniteFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.embed.rotary import RopeScaling
from softlook.models.llama import Llama, LlamaConfig
from softlook.ops.positions.rotary import llama3
from softlook.weights.atomic_folder import disk_errors
from softlook.weights.block_formats import dequantize_rows
from softlook.weights.block_quantized import BLOCKS, can_quantize, replace_with_quantized
from softlook.weights.meta import build_on_meta, check_depth
from softlook.weights.schema import HFConfigBase, validate_config
from softlook.weights.tensor_map import Rename, TensorRule, load_mapped, rename_blocks, rename_layer

try:
    from gguf import GGUFReader, dequantize
except ImportError as fault:
    raise ImportError("GGUF import needs: pip install softlook[gguf]") from fault

log = logging.getLogger("softlook.weights")

ARCHITECTURES = ("llama", "qwen2")
"""Supported values of general.architecture. Mistral is stored as "llama"."""
_TYPES = """
    F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S
    IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4
"""
TENSOR_TYPES = _TYPES.split()
"""Supported tensor types, all dequantized to float32."""
PROJECTIONS = {"attn.to_query": "attn_q", "attn.to_key": "attn_k", "attn.to_value": "attn_v"}
LAYER_NAMES = {
    "attn.to_out": "attn_output",
    "attn_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "ffn.to_gate": "ffn_gate",
    "ffn.to_up": "ffn_up",
    "ffn.to_out": "ffn_down",
}
MAX_METADATA_ITEMS = 8_000_000
"""Maximum number of metadata items; a vocabulary of 250,000 tokens needs two million."""
CHECKED_ROWS = 1024
"""Rows of a quantized weight that are checked at once."""
ROPE_FREQS = "rope_freqs.weight"
"""Frequency divisors of Llama 3's RoPE scaling."""


class GGUFConfig(HFConfigBase):
    """Metadata of an architecture that affect the output; dots in names become underscores."""

    block_count: PositiveInt
    context_length: PositiveInt
    embedding_length: PositiveInt
    feed_forward_length: PositiveInt
    vocab_size: PositiveInt | None = None
    attention_head_count: PositiveInt
    attention_head_count_kv: PositiveInt | None = None
    attention_key_length: PositiveInt | None = None
    attention_value_length: PositiveInt | None = None
    attention_layer_norm_rms_epsilon: PositiveFloat
    attention_sliding_window: NonNegativeInt | None = None
    attention_causal: bool = True
    rope_freq_base: PositiveFloat = 10_000.0
    rope_dimension_count: PositiveInt | None = None
    rope_scale_linear: PositiveFloat = 1.0
    rope_scaling_type: str = "linear"  # llama.cpp's default
    rope_scaling_factor: PositiveFloat | None = None
    rope_scaling_original_context_length: PositiveInt | None = None
    rope_scaling_attn_factor: FiniteFloat = 1.0
    rope_scaling_finetuned: bool = False  # ignored
    expert_count: NonNegativeInt = 0
    expert_used_count: NonNegativeInt = 0


class BoundedReader(GGUFReader):
    """GGUFReader with bounds: a corrupt length would make it read past the end of the file."""

    pieces = 0

    def _get(self, offset: Any, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
        self.pieces += 1
        got = super()._get(offset, dtype, count, override_order)
        if len(got) != count or self.pieces > MAX_METADATA_ITEMS:
            raise ValueError("unexpected end of file, or too many items")
        return got


def from_gguf(path: str | Path, *, keep_quantized: bool = False) -> Llama:
    """Load a Llama, Mistral or Qwen2 from a GGUF file, in eval mode.

    Weights are dequantized to float32. With `keep_quantized`, those of a type in BLOCK_FORMATS stay as in the file, and
    each layer dequantizes its own when it is used: less memory, slower, and the same values.

    >>> from_gguf("no/such/file.gguf")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/file.gguf is not a file. Expected a GGUF file.
    """
    path = Path(path)
    reader = open_gguf(path)
    architecture = read_metadata(reader, "general.", path).get("architecture")
    if architecture not in ARCHITECTURES:
        raise WeightsError(f"{path} has architecture {architecture!r:.40}; supported: {', '.join(ARCHITECTURES)}")
    fields = {name.replace(".", "_"): value for name, value in read_metadata(reader, f"{architecture}.", path).items()}
    sizes = validate_config(GGUFConfig, fields, frozenset(), path)
    check_depth({"layers": sizes.block_count}, path)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    divisors = stored.pop(ROPE_FREQS, None)
    rope_scaling = to_rope_scaling(sizes, None if divisors is None else to_float32(divisors, path), path)
    model = build_on_meta(lambda: Llama(to_llama_config(architecture, sizes, stored, rope_scaling)), path)
    rules = tensor_map(model)
    formats = quantized_formats(model, rules, stored) if keep_quantized else {}
    replace_with_quantized(model, {target.removesuffix(".weight"): name for target, name in formats.items()})
    kept = {rule.source for rule in rules if rule.target in formats}
    rules = [rename_to_blocks(rule) if rule.source in kept else rule for rule in rules]
    tensors = {name: to_blocks(one, path) if name in kept else to_float32(one, path) for name, one in stored.items()}
    load_mapped(model, tensors, rules, (), path)
    if architecture == "llama":
        unpermute_qk(model)
    log.info("%s: %s, loaded as %s", path, architecture, type(model).__name__)
    return model.eval()


def open_gguf(path: Path) -> GGUFReader:
    """Open a GGUF file, reading metadata and the list of tensors."""
    if not path.is_file():
        raise WeightsError(f"{path} is not a file. Expected a GGUF file.")
    with disk_errors("read", path):
        try:
            reader = BoundedReader(path)
        except OSError:
            raise
        except Exception as error:  # the gguf package raises many types for a corrupt file
            raise WeightsError(f"{path} is damaged or not a GGUF file: {error!r:.200}") from None
    if read_metadata(reader, "split.", path).get("count", 1) != 1:
        raise WeightsError(f"{path} is one of several splits. Merge them first with llama-gguf-split --merge.")
    return reader


def read_metadata(reader: GGUFReader, prefix: str, path: Path) -> dict[str, Any]:
    """Metadata whose names start with `prefix`, which is removed."""
    try:
        return {
            name.removeprefix(prefix): field.contents()
            for name, field in reader.fields.items()
            if name.startswith(prefix)
        }
    except Exception as error:
        raise WeightsError(f"{path} is damaged: its metadata cannot be read: {error!r:.200}") from None


def to_float32(tensor: Any, path: Path) -> Tensor:
    """Dequantize a tensor to float32."""
    tensor_type = tensor.tensor_type.name
    if tensor_type not in TENSOR_TYPES:
        raise WeightsError(f"{path}: {tensor.name!r:.200} has type {tensor_type}; supported: {', '.join(TENSOR_TYPES)}")
    try:
        return torch.tensor(dequantize(tensor.data, tensor.tensor_type))
    except Exception as error:
        raise WeightsError(f"{path}: {tensor.name!r:.200} cannot be read: {error!r:.200}") from None


def to_blocks(tensor: Any, path: Path) -> Tensor:
    """The rows of a quantized tensor as bytes, after checking that its numbers are finite."""
    blocks = torch.tensor(tensor.data)
    for rows in blocks.split(CHECKED_ROWS):
        if not dequantize_rows(rows, tensor.tensor_type.name).isfinite().all():
            raise WeightsError(f"{path}: {tensor.name!r:.200} contains NaN or infinity. The file is damaged.")
    return blocks


def quantized_formats(model: Llama, rules: Sequence[TensorRule], stored: Mapping[str, Any]) -> dict[str, str]:
    """Names of weights that can stay quantized -> their block formats; the tied LM head has that of the embedding."""
    modules = dict(model.named_modules())
    formats = {str(rule.target): stored[rule.source].tensor_type.name for rule in rules if rule.source in stored}
    if model.config.tie_embeddings:
        formats["lm_head.weight"] = formats.get("token_embedding.weight", "")
    return {
        target: name
        for target, name in formats.items()
        if target.endswith(".weight") and can_quantize(modules[target.removesuffix(".weight")], name)
    }


def rename_to_blocks(rule: TensorRule) -> TensorRule:
    """The rule for a weight that stays quantized."""
    return Rename(f"{str(rule.target).removesuffix('weight')}{BLOCKS}", rule.source)


def to_llama_config(
    architecture: str, sizes: GGUFConfig, tensors: Mapping[str, Any], rope_scaling: RopeScaling | None
) -> LlamaConfig:
    """Convert GGUF metadata to a LlamaConfig."""
    width = sizes.attention_key_length or sizes.embedding_length // sizes.attention_head_count
    if (sizes.attention_value_length or width) != width or (sizes.rope_dimension_count or width) != width:
        raise WeightsError("key_length, value_length and rope.dimension_count must be equal")
    window = sizes.attention_sliding_window or None
    if sizes.expert_count or (window and (architecture != "llama" or not sizes.attention_causal)):
        raise WeightsError("experts, and sliding windows of other models than causal Llamas, are not supported")
    embedding = tensors.get("token_embd.weight")
    return LlamaConfig(
        vocab_size=sizes.vocab_size or (1 if embedding is None else len(embedding.data)),
        context=sizes.context_length,
        dim=sizes.embedding_length,
        depth=sizes.block_count,
        heads=sizes.attention_head_count,
        kv_heads=sizes.attention_head_count_kv,
        head_dim=width,
        hidden=sizes.feed_forward_length,
        eps=sizes.attention_layer_norm_rms_epsilon,
        rope_theta=sizes.rope_freq_base,
        rope_scaling=rope_scaling,
        sliding_window=window,
        causal=sizes.attention_causal,
        qkv_bias=architecture == "qwen2",
        tie_embeddings="output.weight" not in tensors,
    )


def to_rope_scaling(sizes: GGUFConfig, divisors: Tensor | None, path: Path) -> RopeScaling | None:
    """RoPE scaling of a GGUF file."""
    rope_type, factor = sizes.rope_scaling_type, sizes.rope_scaling_factor or sizes.rope_scale_linear
    factor = 1.0 if rope_type == "none" else factor  # ignored by llama.cpp then
    if rope_type not in ("none", "linear", "yarn") or sizes.rope_scaling_attn_factor != 1:
        raise WeightsError(
            f"{path} has RoPE scaling {rope_type!r:.40}; supported: none, linear, and yarn without attn_factor"
        )
    if divisors is not None:
        if factor != 1:
            raise WeightsError(f"{path} has RoPE scaling twice, as {ROPE_FREQS} and as {rope_type!r:.40}")
        return fit_llama3_scaling(divisors, sizes.rope_freq_base, path)
    if rope_type == "yarn":
        original = sizes.rope_scaling_original_context_length or sizes.context_length
        return RopeScaling(rope_type="yarn", factor=factor, original_context=original)
    return None if factor == 1 else RopeScaling(rope_type="linear", factor=factor)


def fit_llama3_scaling(divisors: Tensor, base: float, path: Path) -> RopeScaling | None:
    """Recover Llama 3's RoPE scaling from its frequency divisors, which are all that the file stores.

    low_freq_factor and high_freq_factor are 1 and 4 in every Llama 3; the original context is fitted.
    """
    divisors, factor = divisors.double().flatten(), divisors.max().item()
    frequencies = base ** -(torch.arange(len(divisors), dtype=torch.float64) / len(divisors))
    if factor == 1:
        return None
    kept = (1 / divisors - 1 / factor) / (1 - 1 / factor)
    blended = (kept > 1e-3) & (kept < 1 - 1e-3)
    contexts = (2 * math.pi * (1 + 3 * kept) / frequencies)[blended]
    context = round(contexts.median().item()) if len(contexts) else 1
    scaled = llama3(factor, context=context).scale_frequencies(frequencies, base)
    if not torch.allclose(scaled, frequencies / divisors, rtol=1e-4, atol=0):
        raise WeightsError(f"{path}: {ROPE_FREQS} does not match Llama 3's RoPE scaling")
    return RopeScaling(rope_type="llama3", factor=factor, original_context=context)


def tensor_map(model: Llama) -> list[TensorRule]:
    """Rules between softlook's tensors and those of the file."""
    rules: list[TensorRule] = [
        Rename("token_embedding.weight", "token_embd.weight"),
        Rename("final_norm.weight", "output_norm.weight"),
    ]
    if not model.config.tie_embeddings:
        rules += rename_layer("lm_head", "output", "weight")
    rules += rename_blocks(model.config.depth, "blk", LAYER_NAMES, "weight")
    kinds = ("weight", "bias") if model.config.qkv_bias else ("weight",)
    return rules + rename_blocks(model.config.depth, "blk", PROJECTIONS, *kinds)


@torch.no_grad()
def unpermute_qk(model: Llama) -> None:
    """Undo llama.cpp's permutation of query and key rows: it rotates adjacent pairs, softlook the two halves."""
    for name, weight in model.state_dict().items():
        if name.endswith(tuple(f"to_{part}.{kind}" for part in ("query", "key") for kind in ("weight", BLOCKS))):
            heads = weight.unflatten(0, (-1, model.head_dim // 2, 2))
            weight.copy_(heads.transpose(1, 2).flatten(0, 2))
