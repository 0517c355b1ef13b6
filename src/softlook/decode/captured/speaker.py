"""A speaker whose steps are captured: on a GPU one more word of every row is one call, and no kernel waits for Python.

The loop owns all of it: the plan of the weights, the memory in fixed places and the graph. The model knows nothing of
it.
"""

from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.blocks.memory import Growing, KeyValue, Memory
from softlook.decode.captured.graphs import Graph
from softlook.decode.captured.parts import Kept, Past, Plain
from softlook.decode.captured.reading import read
from softlook.decode.captured.shelf import Shelf, refusal, shelf_of
from softlook.decode.captured.step import State, scores
from softlook.decode.speaking import Continuing, Speaker, Translating

EVEN = 64
"""Room is made for a multiple of so many words."""
SPARE = 256
"""Words that there is room for at first, behind the first ones, where nobody knows how many will come."""
FEWER = 4
"""When only one in so many rows is left, the others leave the batch."""
KINDS = (torch.float32, torch.bfloat16, torch.float16)


class Captured:
    """A `Continuing` or `Translating` speaker that has said nothing yet, made ready for a GPU.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> plain, fast, ids = Continuing(model), Captured(Continuing(model)), torch.tensor([[3, 1, 4]])
    >>> with torch.no_grad():
    ...     for words in (ids, ids[:, :1], ids[:, 1:2]):
    ...         assert torch.allclose(plain.next(words), fast.next(words), atol=1e-5)
    """

    def __init__(self, speaker: Continuing | Translating, room: int | None = None, parts: Plain | None = None) -> None:
        self.speaker, self.room = speaker, room
        self.device, self.context = speaker.device, speaker.context
        self.shelf: Shelf = shelf_of(speaker.model)
        self.plan, self.parts = self.shelf.plan, parts_for(speaker.device) if parts is None else parts
        self.state: State | None = None
        self.length = 0
        """Columns in use."""
        self.graph: Graph | None = None
        self.seats: Tensor | None = None
        """The rows that are still listened to, where some have left and it does not pay yet to go on without them."""

    def next(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        """Where the scores lie, the next ones come: whoever wants to keep them makes a copy."""
        if self.state is None:
            return self._begin(ids, lengths)
        if ids.shape[1] != 1:
            raise ShapeError(f"a captured speaker takes one word after the other; {ids.shape[1]} came at once")
        self.make_room(1)
        state, seats = self.state, self.seats
        if seats is None:
            state.ids.copy_(ids[:, 0])
        else:
            state.ids.index_copy_(0, seats, ids[:, 0])
        if self.graph is None:
            self.graph = Graph(lambda: self._word(state), self.device)
        self.length += 1
        made = self.graph()
        return made if seats is None else made.index_select(0, seats)

    def select(self, rows: Int[Tensor, " M"]) -> None:
        """Rows that leave a recorded batch are merely not listened to any more, until only a few are left."""
        assert self.state is not None
        rows = rows if self.seats is None else self.seats.index_select(0, rows)
        if self.graph is not None and len(rows) * FEWER > len(self.state.ids) and len(rows.unique()) == len(rows):
            self.seats = rows
        else:
            self.follow(rows, rows if isinstance(self.speaker, Translating) else None)

    def settle(self) -> None:
        """Go on without those who left."""
        if self.seats is not None:
            self.follow(self.seats, self.seats if isinstance(self.speaker, Translating) else None)

    def follow(self, rows: Int[Tensor, " M"], sources: Int[Tensor, " N"] | None) -> None:
        """Go on with these rows, and with these sources; with all of them where none are told."""
        assert self.state is not None
        self.state.select(rows, sources)
        self.graph, self.seats, self.state.graphs = None, None, {}

    def make_room(self, words: int) -> None:
        """For so many more words."""
        assert self.state is not None
        if self.length + words > self.state.columns:
            self.state = self.state.grown(self.plan, even(max(self.length + words, self.length * 3 // 2)))
            self.graph = None

    def close(self) -> None:
        """What others can use again is put back on the shelf."""
        if self.state is not None:
            if self.device.type == "cuda":
                torch.cuda.current_stream(self.device).synchronize()
            self.shelf.put(self.state)
            self.state = self.graph = None

    def _word(self, state: State) -> Tensor:
        made = scores(self.plan, self.parts, state)
        state.past.at.add_(1)
        return made

    def read(self, ids: Tensor, lengths: Tensor | None) -> tuple[Tensor, list[KeyValue], list[KeyValue | None]]:
        """What comes first, at once: scores, and each layer's keys and values; an encoder-decoder reads it itself."""
        speaker = self.speaker
        speaker.filling.begin(ids, lengths)
        if isinstance(speaker, Continuing):
            made, own = read(self.plan, ids, speaker.filling.count)
            return made, own, [None] * len(own)
        made, memory = speaker.next(ids, lengths), speaker.memory
        own, others = [layer.own for layer in memory.kept], [layer.other for layer in memory.kept]  # pyright: ignore[reportAttributeAccessIssue]
        speaker.memory = Memory()
        return made, own, others

    def _begin(self, ids: Tensor, lengths: Tensor | None) -> Tensor:
        """What was read stays in its place."""
        made, own, others = self.read(ids, lengths)
        self.length = ids.shape[1]
        columns = even(max(self.length, self.length + SPARE if self.room is None else self.room))
        self.state = self.shelf.take(len(ids), columns) or self._made(len(ids), columns, own, others)
        fill(self.state, own, self.length, self.speaker.filling.count)
        return made

    def _made(self, rows: int, columns: int, own: list[Any], others: list[Any]) -> State:
        places: dict[str, Any] = {"device": self.device, "dtype": torch.long}
        kept = [_kept(*both, columns) for both in zip(own, others, strict=True)]
        past = Past(
            torch.zeros(1, **places),
            torch.zeros(rows, **places),
            None,
            self.plan.turns(columns),
            self.plan.places(columns),
        )
        lengths = source_lengths(self.speaker, kept[0].other)
        return State(torch.zeros(rows, **places), past, kept, lengths, torch.zeros(1, **places))


def _kept(own: KeyValue, other: KeyValue | None, columns: int) -> Kept:
    shape = *own[0].shape[:2], columns, own[0].shape[3]
    other = None if other is None else (other[0].contiguous(), other[1].contiguous())
    return Kept(own[0].new_zeros(shape), own[1].new_zeros(shape), other)


def fill(state: State, own: list[KeyValue], length: int, filled: Tensor | None) -> None:
    """What was read, where the steps look for it."""
    for kept, (key, value) in zip(state.kept, own, strict=True):
        kept.key[:, :, :length], kept.value[:, :, :length] = key, value
    state.past.at.fill_(length)
    state.past.first.zero_() if filled is None else state.past.first.copy_(filled)


def source_lengths(speaker: Continuing | Translating, other: KeyValue | None) -> Tensor | None:
    """Words of each source."""
    if not isinstance(speaker, Translating):
        return None
    if speaker.present is not None:
        return speaker.present.sum(1)
    assert other is not None
    return torch.full((len(other[0]),), other[0].shape[2], device=other[0].device)


def why_not(speaker: Speaker) -> str | None:
    """Why the steps of a speaker are not captured; None where they are."""
    if type(speaker) not in (Continuing, Translating):
        return f"a {type(speaker).__name__} goes its own way from word to word"
    if speaker.device.type != "cuda":
        return f"graphs are for GPUs, and the model lies on {speaker.device}"
    return why_not_planned(speaker)


def why_not_planned(speaker: Any) -> str | None:
    """The same, wherever the model lies."""
    memory = speaker.memory
    if type(memory) is not Memory or memory.make is not Growing or memory.length:
        return "its memory is of another kind, or has something in it already"
    if getattr(speaker, "label", None) is not None:
        return "what it says is about a label"
    if next(speaker.model.parameters()).dtype not in KINDS or torch.is_autocast_enabled(speaker.device.type):
        return "its numbers are neither float32, bfloat16 nor float16 throughout"
    present = getattr(speaker, "present", None)
    if present is not None and not bool((present[:, :-1] | ~present[:, 1:]).all()):
        return "its sources have gaps"
    return refusal(speaker.model)


def parts_for(device: torch.device) -> Plain:
    """The kernels that suit a device."""
    if device.type != "cuda" or find_spec("triton") is None:
        return Plain()
    from softlook.decode.captured.fused import Fused  # noqa: PLC0415  (Triton takes its time to be imported)

    return Fused()


def even(words: int) -> int:
    return -(-words // EVEN) * EVEN
