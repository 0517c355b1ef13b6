"""Multi-head attention: several soft look-ups side by side, each with its own idea of what is alike."""

from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.memory import LayerMemory
from softlook.blocks.sharing import folded, unfolded
from softlook.ops.bias import Bias
from softlook.ops.dispatch import Backend
from softlook.ops.masks import Mask
from softlook.ops.operation import attention, attention_weights
from softlook.ops.positions.rotary import Phases, rotary
from softlook.ops.scores import Score


class Mixing(nn.Module):
    """The soft look-up itself, as a module: queries, keys, values and mask in, each head's answer out.

    It has no parameters. It is a boundary: a hook here sees and may change what every head does.
    `sink` is the score of looking at nothing; 0 is a key and a value of zeros.
    """

    def __init__(
        self,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        sink: float | None = None,
        dropout: float = 0.0,
        score: Score | None = None,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        self.scale, self.softcap, self.sink, self.dropout, self.score = scale, softcap, sink, dropout, score
        self.backend: Backend = backend

    def forward(
        self,
        query: Float[Tensor, "B H T D"],
        key: Float[Tensor, "B G S D"],
        value: Float[Tensor, "B G S E"],
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B H T E"]:
        return attention(
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            scale=self.scale,
            softcap=self.softcap,
            sink=self.sink,
            dropout=self.dropout if self.training else 0.0,
            score=self.score,
            backend=self.backend,
        )

    def weights(
        self,
        query: Float[Tensor, "B H T D"],
        key: Float[Tensor, "B G S _"],
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B H T S"]:
        """The attention map that a call averages with, before dropout: for hooks, which see what a call was given.

        >>> import torch
        >>> mix, seen = Mixing(scale=1.0, sink=0.0), []
        >>> hook = lambda mix, args, output: seen.append(mix.weights(*args[:2], *args[3:]))
        >>> _ = mix.register_forward_hook(hook)
        >>> query, key, value = torch.randn(3, 2, 4, 6, 8)
        >>> torch.testing.assert_close(mix(query, key, value), seen[0] @ value)
        """
        return attention_weights(
            query,
            key,
            mask=mask,
            bias=bias,
            scale=self.scale,
            softcap=self.softcap,
            sink=self.sink,
            score=self.score,
        )


class MultiHead(nn.Module):
    """What self- and cross-attention share: the stacked projections into heads, the mixing, and the way back.

    - `kv_heads`: fewer heads for keys and values, each serving heads / kv_heads query heads.
    - `head_width`: the width of one head, where it is not dim / heads.
    - `source`: the width of what is looked at, where it is not `dim`.
    - `bias`, `out_bias`: biases in the projections in, and in the one out (as `bias`, where not told).
    - `mix`: the look-up; plain scaled dot products where none is handed in.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_width: int | None = None,
        source: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        mix: nn.Module | None = None,
    ) -> None:
        super().__init__()
        kv_heads, source = heads if kv_heads is None else kv_heads, dim if source is None else source
        self.head_width = head_width_of(dim, heads) if head_width is None else head_width
        if kv_heads < 1 or heads % kv_heads:
            raise ConfigError(f"{heads} query heads cannot share {kv_heads} key heads: not a multiple")
        self.to_query = nn.Linear(dim, heads * self.head_width, bias=bias)
        self.to_key = nn.Linear(source, kv_heads * self.head_width, bias=bias)
        self.to_value = nn.Linear(source, kv_heads * self.head_width, bias=bias)
        self.mix = Mixing() if mix is None else mix
        self.to_out = nn.Linear(heads * self.head_width, dim, bias=bias if out_bias is None else out_bias)

    def split(self, x: Float[Tensor, "B T HD"]) -> Float[Tensor, "B H T D"]:
        """One wide vector into heads."""
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)

    def join(self, mixed: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T C"]:
        """The heads' answers side by side, and back to the model's width."""
        return self.to_out(mixed.transpose(1, 2).flatten(-2))

    def queries(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B H T D"]:
        """What `x` looks for."""
        return self.split(self.to_query(x))

    def keys_values(self, x: Float[Tensor, "B S C"]) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S D"]]:
        """What can be looked up in `x`."""
        return self.split(self.to_key(x)), self.split(self.to_value(x))


class SelfAttention(MultiHead):
    """A sequence looks at itself.

    >>> import torch
    >>> from softlook import masks
    >>> attend = SelfAttention(16, heads=4, kv_heads=2)
    >>> attend(torch.randn(2, 5, 16), mask=masks.causal()).shape
    torch.Size([2, 5, 16])
    """

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        phases: Phases | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        query, (key, value) = self.queries(x), self.keys_values(x)
        if phases is not None:
            query, key = rotary(query, phases), rotary(key, phases)
        if memory is not None:
            key, value = memory.extend(key, value)
        return self.join(self.mix(query, key, value, mask, bias))


class CrossAttention(MultiHead):
    """A sequence looks at another one: queries from `x`, keys and values from `other`.

    Where there are fewer others, as many rows that stand side by side share one; then no key is copied.

    >>> import torch
    >>> attend = CrossAttention(16, heads=4)
    >>> attend(torch.randn(2, 5, 16), torch.randn(2, 9, 16)).shape
    torch.Size([2, 5, 16])
    """

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        other: Float[Tensor, "N S _"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        query = self.queries(x)
        key, value = self.keys_values(other) if memory is None else memory.recall(lambda: self.keys_values(other))
        if len(key) == len(query):
            return self.join(self.mix(query, key, value, mask, bias))
        return self.join(unfolded(self.mix(folded(query, len(key)), key, value, mask, bias), len(query)))


def head_width_of(dim: int, heads: int) -> int:
    """The model's width, shared out among the heads."""
    if heads < 1 or dim % heads:
        raise ConfigError(
            f"{heads} heads cannot share a width of {dim} evenly. Choose a multiple of {heads}, or other heads"
        )
    return dim // heads
