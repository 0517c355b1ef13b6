"""RNNsearch: the recurrent translator that attention was invented for."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.alignment import Everywhere, Monotonic, Predicted, Source, by_concat, by_dot, by_general
from softlook.blocks.recurrent import (
    BahdanauDecoder,
    LuongDecoder,
    RecurrentEncoder,
    RecurrentMemory,
    lengths_of,
    read_source,
)
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.language import language_head
from softlook.ops.dropping import Dropout

SCORES = {"dot": by_dot, "general": by_general, "concat": by_concat}


@dataclass(frozen=True, kw_only=True)
class RNNSearchConfig:
    """The sizes of a recurrent translator. The defaults are those of Bahdanau et al.'s RNNsearch."""

    source_vocab: int = 30000
    """Number of ids it reads."""
    target_vocab: int = 30000
    """Number of ids it says."""
    dim: int = 620
    """Width of word vectors."""
    hidden: int = 1000
    """Width of the recurrent states, of the encoder's in each direction."""
    readout: int = 500
    """Width of what the next word is chosen from."""
    decoder: Literal["bahdanau", "luong"] = "bahdanau"
    """Who asks: the state before the step (Bahdanau) or the one after it (Luong)?"""
    score: Literal["dot", "general", "concat"] = "concat"
    """How states and words are compared; Bahdanau's additive score is what Luong calls concat."""
    span: Literal["global", "local-m", "local-p"] = "global"
    """Where a step may look: everywhere, around its own number, or around a place that it predicts."""
    window: int = 10
    """Words to each side of the middle of a local look."""
    input_feeding: bool = False
    """Does Luong's decoder hear what it said last? Bahdanau's has no need to."""
    bidirectional: bool = True
    """Is the source read backwards as well?"""
    dropout: float = 0.0
    """Share of word vectors and of the readout dropped while training."""


class RNNSearch(nn.Module):
    """A source and the words said so far in, scores of the next word out.

    >>> import torch
    >>> model = RNNSearch(RNNSearchConfig(source_vocab=10, target_vocab=12, dim=8, hidden=16, readout=8))
    >>> model(torch.tensor([[3, 1, 4]]), torch.tensor([[1, 5]])).shape
    torch.Size([1, 2, 12])

    Step by step, what is between two steps belongs to whoever loops:

    >>> memory, source, target = RecurrentMemory(), torch.tensor([[3, 1, 4]]), torch.tensor([[1, 5]])
    >>> steps = [model(source, target[:, t : t + 1], memory=memory) for t in range(2)]
    >>> torch.allclose(torch.cat(steps, 1), model(source, target), atol=1e-6)
    True
    """

    mode: ClassVar = "encoder-decoder"

    def __init__(self, config: RNNSearchConfig) -> None:
        super().__init__()
        self.config = config
        self.source_tokens = TokenEmbedding(config.source_vocab, config.dim)
        self.target_tokens = TokenEmbedding(config.target_vocab, config.dim)
        self.drop = Dropout(config.dropout)
        self.encoder = RecurrentEncoder(config.dim, config.hidden, bidirectional=config.bidirectional)
        self.decoder = self._decoder()
        self.head = language_head(config.readout, config.target_vocab, bias=True)

    def _decoder(self) -> BahdanauDecoder | LuongDecoder:
        c, other = self.config, self.encoder.width
        align = SCORES[c.score](c.hidden, other, self._span())
        if c.decoder == "bahdanau" and c.input_feeding:
            raise ConfigError("input_feeding is for Luong's decoder; Bahdanau's steps take in what they find anyway")
        if c.decoder == "bahdanau":
            return BahdanauDecoder(c.dim, c.hidden, align, other=other, last=c.hidden, readout=c.readout)
        return LuongDecoder(
            c.dim, c.hidden, align, other=other, last=c.hidden, readout=c.readout, feeding=c.input_feeding
        )

    def _span(self) -> nn.Module:
        c = self.config
        if c.span == "global":
            return Everywhere()
        return Monotonic(c.window) if c.span == "local-m" else Predicted(c.hidden, c.window)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        source_present: Bool[Tensor, "B S"] | None = None,
        memory: RecurrentMemory | None = None,
    ) -> Float[Tensor, "B T V"]:
        """`source_present` is True where the source has a word: on the left of each row.

        Position t of `target` is the word before the one to be said: shifted by one, with a start in front.
        """
        if memory is None:
            return self.decode(target, self.encode(source, present=source_present))
        found = memory.recall(lambda: self.encode(source, present=source_present))
        return self.decode(target, found, memory=memory)

    def encode(self, source: Int[Tensor, "B S"], *, present: Bool[Tensor, "B S"] | None = None) -> Source:
        """Read the source, once, to be looked up in."""
        lengths = lengths_of(present, source)
        read, last = self.encoder(self.drop(self.source_tokens(source)), lengths)
        return read_source(read, last, lengths, self.decoder.align, ragged=present is not None)

    def decode(
        self, target: Int[Tensor, "B T"], source: Source, *, memory: RecurrentMemory | None = None
    ) -> Float[Tensor, "B T V"]:
        """Scores of the word after each one of `target`, by a source that was read."""
        carried = None if memory is None else memory.carried
        carried = self.decoder.start(source) if carried is None else carried
        said, carried = self.decoder(self.drop(self.target_tokens(target)), source, carried)
        if memory is not None:
            memory.carried = carried
        return self.head(self.drop(said))
