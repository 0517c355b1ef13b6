"""Inference-only copies of a model for the CPU: prepacked weights and dynamic int8 quantization.

The model itself is not changed. The copy shares no weights with it and does not follow further training. Its attention
projects queries, keys and values at once, and takes one token of several beams without copying their past. Other inputs
(a mask other than causal or padding, a bias, several tokens, forward hooks on the attention core) take the standard
path.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore, CrossAttention, SelfAttention
from softlook.blocks.beam_cache import BeamLayerCache, beam_attention, fold_beams, unfold_beams
from softlook.blocks.kv_cache import KeyValue, LayerCache
from softlook.embed.positions import SinusoidalPositions
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask, causal
from softlook.ops.masks.base import DenseMask
from softlook.ops.positions.rotary import RotaryAngles
from softlook.ops.positions.rotary import rotary as apply_rotary

PrepackDtype = Literal["float32", "bfloat16"]
QuantizedEngine = Literal["fbgemm", "onednn"]
LinearFactory = Callable[[Tensor, Tensor | None], nn.Module]
"""Weight (M, C) and bias (M,) of a linear layer -> its replacement."""
TYPICAL_ROWS = 4
"""Batch size that weights are prepacked for: a typical number of beams."""
LINEAR_DYNAMIC = torch.ops.quantized.linear_dynamic._op
"""The kernel itself: torch's Python wrapper takes as long as a small layer."""
MIN_WIDE, MAX_FEW_ROWS = 8192, 64
"""From this many outputs on, a layer is packed twice: for fewer rows than `MAX_FEW_ROWS`, and for more."""
INT8_MAX = 127
CAUSAL = causal()
NUM_CACHED_POSITIONS = 512


class PrepackedLinear(nn.Module):
    """A linear layer whose weight is reordered for oneDNN once, instead of at every call.

    >>> layer, x = nn.Linear(64, 32), torch.randn(4, 64)
    >>> prepacked = PrepackedLinear(layer.weight.detach(), layer.bias.detach())
    >>> torch.allclose(prepacked(x), layer(x), atol=1e-5)
    True
    """

    def __init__(self, weight: Float[Tensor, "M C"], bias: Float[Tensor, " M"] | None, dtype: PrepackDtype = "float32"):
        super().__init__()
        self.dtype = torch.bfloat16 if dtype == "bfloat16" else torch.float32
        if self.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            raise ConfigError("this CPU does not support bfloat16 (AVX-512 or AVX-NE-CONVERT). Use float32.")
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(self.dtype).contiguous(), TYPICAL_ROWS)
        self.bias = None if bias is None else bias.to(self.dtype, copy=True)

    def forward(self, x: Float[Tensor, "*positions C"]) -> Float[Tensor, "*positions M"]:
        dtype = x.dtype
        if dtype == self.dtype:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.weight, self.bias, "none", [], "").to(dtype)


def prepack_for_cpu(model: nn.Module, dtype: PrepackDtype = "float32") -> nn.Module:
    """A copy for decoding on a CPU: the same outputs up to rounding; in "bfloat16", to about three digits.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> ids = torch.tensor([[3, 1, 4]])
    >>> torch.allclose(prepack_for_cpu(model)(ids), model(ids), atol=1e-5)
    True
    """
    return replace_linear_layers(model, lambda weight, bias: PrepackedLinear(weight, bias, dtype))


class Int8Linear(nn.Module):
    """A linear layer with int8 weights, one scale per output, and dynamically quantized inputs, one scale per call.

    >>> layer, x = nn.Linear(64, 32), torch.randn(4, 64)
    >>> with torch.no_grad():
    ...     quantized = Int8Linear(layer.weight, layer.bias)
    ...     bool(((quantized(x) - layer(x)).abs() < 0.05).all())
    True
    """

    def __init__(
        self, weight: Float[Tensor, "M C"], bias: Float[Tensor, " M"] | None, engine: QuantizedEngine = "fbgemm"
    ) -> None:
        super().__init__()
        bias = None if bias is None else bias.clone()  # the packed weight refers to it
        scales = (weight.abs().amax(1) / INT8_MAX).clamp(min=torch.finfo(torch.float32).tiny)
        with _quantized_engine(engine), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch warns that quantized tensors are deprecated
            zeros = torch.zeros(len(scales)).long()
            quantized = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
            self.packed = self.packed_many = torch.ops.quantized.linear_prepack(quantized, bias)
            has_onednn = "onednn" in torch.backends.quantized.supported_engines
            if engine == "fbgemm" and len(weight) >= MIN_WIDE and has_onednn:
                with _quantized_engine("onednn"):
                    self.packed_many = torch.ops.quantized.linear_prepack(quantized, bias)
        self.max_few = MAX_FEW_ROWS * weight.shape[1]
        self.reduce_range = not torch.cpu._is_vnni_supported()
        """Without VNNI, products of full-range bytes overflow: inputs are quantized to 7 bits."""

    def forward(self, x: Float[Tensor, "*positions C"]) -> Float[Tensor, "*positions M"]:
        return LINEAR_DYNAMIC(x, self.packed if x.numel() < self.max_few else self.packed_many, self.reduce_range)


def quantize_dynamic_int8(model: nn.Module, engine: QuantizedEngine = "fbgemm") -> nn.Module:
    """A copy for decoding on a CPU with int8 weights in its linear layers; embeddings keep float32.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> ids = torch.tensor([[3, 1, 4]])
    >>> with torch.no_grad():
    ...     bool(((quantize_dynamic_int8(model)(ids) - model(ids)).abs() < 0.05).all())
    True
    """
    engines = torch.backends.quantized.supported_engines
    if engine not in engines:
        raise ConfigError(f"this build of torch has no int8 engine {engine!r}, only {', '.join(engines)}")
    return replace_linear_layers(model, lambda weight, bias: Int8Linear(weight, bias, engine))


class FusedSelfAttention(nn.Module):
    """Self-attention with one projection for queries, keys and values."""

    def __init__(self, source: SelfAttention, to_qkv: nn.Module, to_out: nn.Module) -> None:
        super().__init__()
        self.head_dim, self.core = source.head_dim, source.core
        self.heads = source.to_query.out_features // self.head_dim
        self.kv_heads = source.to_key.out_features // self.head_dim
        self.scale, self.to_qkv, self.to_out = attention_scale(source.core, self.head_dim), to_qkv, to_out

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        qkv = self.to_qkv(x)
        is_step = x.shape[1] == 1 and not has_hooks(self.core)
        is_causal = rotary is None and bias is None and (mask is None or mask == CAUSAL)
        if isinstance(cache, BeamLayerCache) and cache.beams.columns is not None and is_step and is_causal:
            heads = qkv.view(-1, cache.beams.num_beams, self.heads + 2 * self.kv_heads, self.head_dim)
            return self.to_out(cache.attend(heads, self.kv_heads, self.scale).unsqueeze(1))
        qkv = qkv.unflatten(-1, (-1, self.head_dim))  # (B, T, H + 2G, D)
        query, key, value = qkv.transpose(1, 2).split((self.heads, self.kv_heads, self.kv_heads), 1)
        if rotary is not None:
            query, key = apply_rotary(query, rotary), apply_rotary(key, rotary)
        if cache is not None:
            key, value = cache.update(key, value)
        return self.to_out(self.core(query, key, value, mask, bias).transpose(1, 2).flatten(-2))


class FusedCrossAttention(nn.Module):
    """Cross-attention with one projection for keys and values, which several beams may share."""

    def __init__(self, source: CrossAttention, to_kv: nn.Module, to_query: nn.Module, to_out: nn.Module) -> None:
        super().__init__()
        self.head_dim, self.core = source.head_dim, source.core
        self.heads = source.to_query.out_features // self.head_dim
        self.scale = attention_scale(source.core, self.head_dim)
        self.to_kv, self.to_query, self.to_out = to_kv, to_query, to_out

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        encoder_states: Float[Tensor, "N S _"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        if cache is None:
            key, value = self._project_kv(encoder_states)
        else:
            key, value = cache.cross_kv(lambda: self._project_kv(encoder_states))
        query = self.to_query(x)
        beams = cache.beams if isinstance(cache, BeamLayerCache) and cache.beams.columns is not None else None
        is_padding = beams is not None and isinstance(mask, DenseMask) and mask.visible.shape[1:3] == (1, 1)
        if x.shape[1] == 1 and (mask is None or is_padding) and bias is None and not has_hooks(self.core):
            query = query.view(len(key), len(query) // len(key), -1, self.head_dim).transpose(1, 2)
            additive = beams.additive_mask(mask) if beams is not None and is_padding else None  # pyright: ignore[reportArgumentType]  (dense)
            return self.to_out(beam_attention(query, key, value, mask=additive, scale=self.scale).unsqueeze(1))
        query = query.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        if len(key) == len(query):
            output = self.core(query, key, value, mask, bias)
        else:
            output = unfold_beams(self.core(fold_beams(query, len(key)), key, value, mask, bias), len(query))
        return self.to_out(output.transpose(1, 2).flatten(-2))

    def _project_kv(self, encoder_states: Tensor) -> KeyValue:
        """Keys and values are read at every step, which is faster if they are contiguous."""
        key, value = self.to_kv(encoder_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2).chunk(2, 1)
        return key.contiguous(), value.contiguous()


class CachedSinusoidalPositions(nn.Module):
    """Sinusoidal positions from a precomputed table."""

    def __init__(self, source: SinusoidalPositions) -> None:
        super().__init__()
        self.source, self.table = source, source(torch.arange(NUM_CACHED_POSITIONS))

    def forward(self, positions: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions C"]:
        is_empty = positions.numel() == 0
        if is_empty or int(positions.max()) >= NUM_CACHED_POSITIONS or int(positions.min()) < 0:
            return self.source(positions)
        return self.table[positions]


@torch.no_grad()
def replace_linear_layers(model: nn.Module, factory: LinearFactory) -> nn.Module:
    """A copy of a model with its linear layers replaced, and standard attention fused."""
    parameters = list(model.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        raise ConfigError(f"expected a model on the CPU, got {parameters[0].device}. Move the model first")
    if any(parameter.dtype != torch.float32 for parameter in parameters):
        raise ConfigError(f"expected float32 weights, got {parameters[0].dtype}. Use model.float()")
    clone = copy.deepcopy(model, _linear_only_weights(model)).eval()
    if type(clone) is nn.Linear:
        return factory(clone.weight, clone.bias)
    _replace_children(clone, factory)
    return clone


def _linear_only_weights(model: nn.Module) -> dict[int, Tensor]:
    """Weights used by linear layers alone, which are replaced: `deepcopy` need not copy them."""
    linear = [module for module in model.modules() if type(module) is nn.Linear]
    others = [module for module in model.modules() if type(module) is not nn.Linear]
    copied = {id(tensor) for module in others for tensor in module.parameters(recurse=False)}
    weights = (tensor for module in linear for tensor in module.parameters())
    return {id(tensor): tensor for tensor in weights if id(tensor) not in copied}


def _replace_children(module: nn.Module, factory: LinearFactory) -> None:
    for name, child in module.named_children():
        new = _replacement(child, factory)
        if new is None:
            _replace_children(child, factory)
        else:
            module.register_module(name, new)


def _replacement(module: nn.Module, factory: LinearFactory) -> nn.Module | None:
    """The replacement of a module, if there is one. Only standard modules are replaced."""
    if type(module) is nn.Linear:
        return factory(module.weight, module.bias)
    if type(module) is SelfAttention and _is_standard(module):
        to_qkv = factory(*_concat(module.to_query, module.to_key, module.to_value))
        return FusedSelfAttention(module, to_qkv, factory(module.to_out.weight, module.to_out.bias))
    if type(module) is CrossAttention and _is_standard(module):
        to_kv = factory(*_concat(module.to_key, module.to_value))
        layers = (factory(layer.weight, layer.bias) for layer in (module.to_query, module.to_out))
        return FusedCrossAttention(module, to_kv, *layers)
    return CachedSinusoidalPositions(module) if type(module) is SinusoidalPositions else None


def _is_standard(module: SelfAttention | CrossAttention) -> bool:
    layers = (module.to_query, module.to_key, module.to_value, module.to_out)
    core = module.core
    return (
        all(type(layer) is nn.Linear for layer in layers)
        and type(core) is AttentionCore
        and (core.softcap, core.sink, core.score, core.backend) == (None, None, None, "auto")
    )


def _concat(*layers: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Several layers with the same input, as one."""
    weight = torch.cat([layer.weight for layer in layers])
    return weight, None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])


@contextmanager
def _quantized_engine(name: QuantizedEngine) -> Iterator[None]:
    """Set torch's process-wide quantized engine, and restore it."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


def attention_scale(core: nn.Module, head_dim: int) -> float:
    assert isinstance(core, AttentionCore)
    return head_dim**-0.5 if core.scale is None else core.scale


def has_hooks(module: nn.Module) -> bool:
    """Whether a module has forward hooks or pre-hooks."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
