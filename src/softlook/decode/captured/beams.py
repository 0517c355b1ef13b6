"""Beam search that stays on the GPU: candidates, what is kept and what is whole are worked out in the captured step.

It finds what `Beams` finds, where nobody asks for more than the best sequences. The host only looks now and then
whether anything is left to do; places and graphs are kept for the next search.
"""

from functools import partial

import torch
from torch import Tensor

from softlook.decode.captured.board import Board, Size, about, new_board
from softlook.decode.captured.graphs import Graph
from softlook.decode.captured.outcome import Outcome, event_on, on_host
from softlook.decode.captured.parts import Plain
from softlook.decode.captured.plan import Plan
from softlook.decode.captured.speaker import Captured, source_lengths
from softlook.decode.captured.step import State, scores
from softlook.decode.captured.ways import Aims, Ways
from softlook.decode.row_errors import LogitsError, RowError, raised_for
from softlook.decode.search import Hypothesis, Wanted

LOOK = 4
"""Words between two looks at what is left."""
FEWEST = 64
"""Up to so many rows a step takes as long as with one, and nobody has to leave."""
SOON = 12
"""With so few words to come it does not pay to record a step for fewer rows."""


class CapturedBeams:
    """A search under way."""

    def __init__(self, speaker: Captured, start: Tensor, lengths: Tensor | None, wanted: Wanted) -> None:
        self.speaker, self.start, self.lengths, self.wanted = speaker, start, lengths, wanted
        self.plan, self.parts, self.width = speaker.plan, speaker.parts, wanted.width + len(wanted.ends)
        self.numbers = torch.empty(0, dtype=torch.long)
        """The numbers of the sequences in use; whatever is no sequence's number is nobody."""
        self.results: list[list[Hypothesis]] = [[] for _ in start]
        self.on_the_way: list[Outcome] = []
        self.errors: dict[int, RowError] = {}
        """Why sequences could not be searched on, by their numbers."""

    @torch.inference_mode(mode=False)  # what is kept for others has to be of use to those who know no such mode
    @torch.no_grad()
    def run(self) -> list[list[Hypothesis]]:
        made, own, others = self.speaker.read(self.start, self.lengths)
        board = self._board(own, others)
        rows = self._first(board, made, own, others)
        rows = self._words(board, rows)
        self._send(board, torch.arange(rows, device=made.device))
        self._receive()
        self.speaker.shelf.put_board(board)
        if self.errors:
            raise raised_for(self.errors, self.results)
        return self.results

    def _board(self, own: list, others: list) -> Board:
        """One that others have used, or a new one."""
        wanted, source = self.wanted, None if others[0] is None else others[0][0].shape[2]
        size = Size(
            len(self.start), wanted.beams, self.start.shape[1] + wanted.longest, source, len(wanted.ends)
        ).even  # fmt: skip
        board = self.speaker.shelf.take_board(size) or new_board(size, self.plan, own)
        board.aim(wanted)
        return board

    def _first(self, board: Board, made: Tensor, own: list, others: list) -> int:
        """The first word: all ways of a sequence are one as yet. How many rows of sequences are in use?"""
        N, K, state = len(made), self.wanted.beams, board.state
        lengths = source_lengths(self.speaker.speaker, others[0])
        rows = board.begin(own, others, lengths, self.speaker.speaker.filling.count)
        self.numbers = torch.arange(rows, device=made.device)
        found, none = self.parts.best_words(made, self.width), made.new_zeros(N, 1, dtype=torch.float32)
        self.parts.go_on(
            found, none, board.ways.first(N), board.aims, ids=state.ids[: N * K], paths=None, length=state.step
        )
        state.step.add_(1)
        return rows

    def _words(self, board: Board, rows: int) -> int:
        """Words until nothing is left; with fewer rows when few are. How many there were at last?"""
        said, looks = 1, [_sent(_left(board, rows))]
        while said < self.wanted.longest:
            count = min(LOOK, self.wanted.longest - said)
            self._several(board.graph(rows, partial(word, self.plan, self.parts, self.width)), count)
            said += count
            looks.append(_sent(_left(board, rows)))
            self._receive(waiting=False)
            left = _arrived(looks.pop(0))
            if left == 0:
                break
            if self._pays(board, rows, left, self.wanted.longest - said):
                rows = self._leave(board, rows, about(left))
        return rows

    def _several(self, graph: Graph, count: int) -> None:
        for _ in range(count):
            graph()

    def _pays(self, board: Board, rows: int, left: int, to_come: int) -> bool:
        """Is it faster to go on without those that are over?"""
        fewer = 2 * about(left) <= rows and rows * self.wanted.beams > FEWEST
        return fewer and to_come > 0 and (about(left) in board.graphs or to_come > SOON)

    def _leave(self, board: Board, rows: int, going: int) -> int:
        """Those that are over leave with what they found, as many as are too many."""
        order = board.ways.over[:rows].to(torch.uint8).argsort(stable=True)
        self._send(board, order[going:])
        board.move(order[:going])
        self.numbers = self.numbers.index_select(0, order[:going])
        return going

    def _send(self, board: Board, rows: Tensor) -> None:
        """What these sequences found is worked out, and sent to the host."""
        ways, wanted = board.ways, self.wanted
        said, own = self.parts.backwards(ways, rows, wanted.longest)
        known = [part.index_select(0, rows) for part in (ways.found, ways.found_length, ways.found_word, ways.totals)]
        parts = [on_host(part) for part in (self.numbers.index_select(0, rows), *known, said, own)]
        self.on_the_way.append(Outcome(*parts, arrived=event_on(self.start.device)))

    def _receive(self, *, waiting: bool = True) -> None:
        """Write down what has arrived, or wait for all of it."""
        while self.on_the_way and (waiting or self.on_the_way[0].is_there):
            outcome = self.on_the_way.pop(0)
            for number, found in outcome.hypotheses(self.wanted.ends, len(self.results)):
                self.results[number] = found
            self.errors |= {number: LogitsError.of([number]) for number in outcome.failed(len(self.results))}


def word(plan: Plan, parts: Plain, width: int, state: State, ways: Ways, aims: Aims) -> None:
    """One more word of all ways, from the best so many words of each."""
    found = parts.best_words(scores(plan, parts, state), width)
    parts.go_on(found, ways.totals, ways, aims, ids=state.ids, paths=state.past.paths, length=state.step)
    state.past.at.add_(1)
    state.step.add_(1)


def _left(board: Board, rows: int) -> Tensor:
    """How many sequences are not over."""
    return (~board.ways.over[:rows]).sum()


def _sent(left: Tensor) -> "tuple[Tensor, torch.cuda.Event | None]":
    return on_host(left), event_on(left.device)


def _arrived(look: "tuple[Tensor, torch.cuda.Event | None]") -> int:
    left, event = look
    if event is not None:
        event.synchronize()
    return int(left)
