"""RNNsearch: the recurrent translation model with attention."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.alignment import (
    AlignmentModel,
    EncodedSource,
    GlobalWindow,
    LocalMonotonic,
    LocalPredictive,
    concat_alignment,
    dot_alignment,
    general_alignment,
)
from softlook.blocks.recurrent import (
    BahdanauDecoder,
    LuongDecoder,
    RecurrentCache,
    RecurrentEncoder,
    make_source,
    row_lengths,
)
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.lm import build_lm_head
from softlook.ops.dropout import Dropout

ALIGNMENTS = {"dot": dot_alignment, "general": general_alignment, "concat": concat_alignment}


@dataclass(frozen=True, kw_only=True)
class RNNSearchConfig:
    """Hyperparameters of a recurrent translation model. The defaults are those of RNNsearch (Bahdanau et al. 2015)."""

    source_vocab_size: int = 30000
    """Vocabulary size of the source."""
    target_vocab_size: int = 30000
    """Vocabulary size of the target."""
    dim: int = 620
    """Width of the token embeddings."""
    hidden: int = 1000
    """Width of the recurrent states, in each direction."""
    readout: int = 500
    """Width of the input of the LM head."""
    decoder: Literal["bahdanau", "luong"] = "bahdanau"
    """Whether the state before a step attends (Bahdanau) or the one after it (Luong)."""
    score: Literal["dot", "general", "concat"] = "concat"
    """Luong's scores; concat is Bahdanau's additive score."""
    window_type: Literal["global", "local-m", "local-p"] = "global"
    """Global attention, or Luong's local attention, monotonic or predictive."""
    window: int = 10
    """Source positions on each side of the center of local attention."""
    input_feeding: bool = False
    """Whether Luong's decoder is fed its last output."""
    bidirectional: bool = True
    """Whether the encoder is bidirectional."""
    dropout: float = 0.0
    """Dropout probability of token embeddings and of the readout."""


class RNNSearch(nn.Module):
    """RNNsearch (Bahdanau et al. 2015; Luong et al. 2015): source and target ids in, logits out.

    `attention(layer)` builds the `AlignmentModel` of the decoder, its only layer 0; default: that of the config.

    >>> import torch
    >>> model = RNNSearch(RNNSearchConfig(source_vocab_size=10, target_vocab_size=12, dim=8, hidden=16, readout=8))
    >>> source, target = torch.tensor([[3, 1, 4]]), torch.tensor([[1, 5]])
    >>> model(source, target).shape
    torch.Size([1, 2, 12])

    Step by step, with a cache:

    >>> cache = RecurrentCache()
    >>> steps = [model(source, target[:, t : t + 1], cache=cache) for t in range(2)]
    >>> torch.allclose(torch.cat(steps, 1), model(source, target), atol=1e-6)
    True
    """

    mode: ClassVar = "encoder-decoder"

    def __init__(self, config: RNNSearchConfig, *, attention: Callable[[int], AlignmentModel] | None = None) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = TokenEmbedding(config.source_vocab_size, config.dim)
        self.target_embedding = TokenEmbedding(config.target_vocab_size, config.dim)
        self.dropout = Dropout(config.dropout)
        self.encoder = RecurrentEncoder(config.dim, config.hidden, bidirectional=config.bidirectional)
        self.decoder = self._decoder((attention or self._alignment)(0))
        self.lm_head = build_lm_head(config.readout, config.target_vocab_size, bias=True)

    def _alignment(self, layer: int) -> AlignmentModel:
        c = self.config
        if c.window_type == "global":
            window: nn.Module = GlobalWindow()
        else:
            window = LocalMonotonic(c.window) if c.window_type == "local-m" else LocalPredictive(c.hidden, c.window)
        return ALIGNMENTS[c.score](c.hidden, self.encoder.width, window)

    def _decoder(self, align: AlignmentModel) -> BahdanauDecoder | LuongDecoder:
        c = self.config
        sizes = {"encoder_dim": self.encoder.width, "last_dim": c.hidden, "readout": c.readout}
        if c.decoder == "luong":
            return LuongDecoder(c.dim, c.hidden, align, **sizes, input_feeding=c.input_feeding)
        if c.input_feeding:
            raise ConfigError("input_feeding requires decoder='luong'; Bahdanau's steps take the context anyway")
        return BahdanauDecoder(c.dim, c.hidden, align, **sizes)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        source_padding_mask: Bool[Tensor, "B S"] | None = None,
        cache: RecurrentCache | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits (B, T, vocab). `source_padding_mask` is True where there is a token; rows are padded on the right."""
        if cache is None:
            return self.decode(target, self.encode(source, padding_mask=source_padding_mask))
        encoded = cache.encoded(lambda: self.encode(source, padding_mask=source_padding_mask))
        return self.decode(target, encoded, cache=cache)

    def encode(self, source: Int[Tensor, "B S"], *, padding_mask: Bool[Tensor, "B S"] | None = None) -> EncodedSource:
        """Encode the source."""
        lengths = row_lengths(padding_mask, source)
        states, last = self.encoder(self.dropout(self.source_embedding(source)), lengths)
        return make_source(states, last, lengths, self.decoder.align, padded=padding_mask is not None)

    def decode(
        self, target: Int[Tensor, "B T"], source: EncodedSource, *, cache: RecurrentCache | None = None
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each one of `target`."""
        state = None if cache is None else cache.state
        state = self.decoder.initial_state(source) if state is None else state
        output, state = self.decoder(self.dropout(self.target_embedding(target)), source, state)
        if cache is not None:
            cache.state = state
        return self.lm_head(self.dropout(output))
