"""Signs of life among processes that learn as one: where one of them falls silent, the others say so and end.

Somebody who waits in torch for another one hears of a process that died, but not of one that was stopped. A thread of
its own says in each process, again and again, that it lives, however long the work in hand may take.
"""

import json
import logging
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn

from torch.distributed import PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from softlook.base.errors import TrainingError

log = logging.getLogger("softlook.train")
GIVEN_UP = "gave no sign of life for"
WORD, BEATS, NAME, LEFT = "given up", "beats", "name", "left"


class Heart:
    """Beats in this process, and listens to that of the next one; what one hears, all are told.

    Silence is counted in beats of one's own, not by the clock: where everybody sleeps, nobody is missing.
    """

    def __init__(self, store: Store, rank: int, size: int, *, silence: float, is_host_apart: bool = True) -> None:
        self.store, self.rank, self.size, self.silence = store, rank, size, silence
        self.is_host_apart = is_host_apart
        self.pause = min(max(silence / 10, 0.05), 1.0)
        self.is_well, self._over, self._made, self._heard, self._missed = True, threading.Event(), 0, (-1, -1), 0
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._guard)]

    def start(self) -> None:
        me = {"rank": self.rank, "pid": os.getpid(), "host": socket.gethostname()}
        self.store.set(f"{NAME}/{self.rank}", json.dumps(me))
        self._first = json.loads(self.store.get(f"{NAME}/0"))
        for thread in self._threads:
            thread.start()

    def leave(self) -> None:
        """Go without being missed; but whoever goes because of a fault shall be."""
        self._over.set()
        for thread in self._threads:
            thread.join(self.pause + 1)
        if self.is_well and not self._threads[0].is_alive():
            with suppress(RuntimeError):  # the store may have gone before
                self.store.set(f"{LEFT}/{self.rank}", "")

    def _beat(self) -> None:
        with suppress(RuntimeError):  # the store has gone with whoever held it: whoever waits for that one hears it
            while not self._over.wait(self.pause):
                self.store.add(f"{BEATS}/{self.rank}", 1)
                self._made += 1
                if self.store.check([WORD]):
                    self._end(json.loads(self.store.get(WORD)))
                self._listen()

    def _listen(self) -> None:
        """Is the next one that has not left alive?"""
        others = ((self.rank + distance) % self.size for distance in range(1, self.size))
        other = next((one for one in others if not self.store.check([f"{LEFT}/{one}"])), None)
        if other is None:
            return
        heard = (other, self.store.add(f"{BEATS}/{other}", 0))
        self._missed = self._missed + 1 if heard == self._heard else 0
        self._heard = heard
        if self._missed * self.pause >= self.silence:
            name = f"{NAME}/{other}"
            known = self.store.get(name).decode() if self.store.check([name]) else json.dumps({"rank": other})
            self._end(json.loads(self.store.compare_set(WORD, "", known)))

    def _guard(self) -> None:
        """Where the first process keeps the store and is stopped, nobody gets an answer any more."""
        made = missed = 0
        while not self._over.wait(self.pause):
            missed = missed + 1 if made == self._made and self._threads[0].is_alive() else 0
            made = self._made
            if missed * self.pause >= self.silence and not self.is_host_apart:
                self._end(self._first)

    def _end(self, silent: dict[str, object]) -> NoReturn:
        """Say who is missing, and end this process, whatever it is doing."""
        message = f"{described(silent, self.size)} {GIVEN_UP} {self.silence:g} seconds, and the others ended with it."
        get_error_handler().record_exception(TrainingError(message))  # for whoever launched us
        log.error(f"{message} The same command goes on from the last checkpoint.")
        time.sleep(2 * self.pause)  # until all others have heard it too, and not only that somebody ended
        if silent.get("host") == socket.gethostname() and hasattr(signal, "SIGCONT"):
            with suppress(OSError):
                os.kill(int(str(silent.get("pid"))), signal.SIGCONT)  # it wakes up, hears that it is given up, and ends
        os._exit(1)


def described(silent: dict[str, object], size: int) -> str:
    """Who it is, in words.

    >>> described({"rank": 1, "pid": 77, "host": "node3"}, 4)
    'rank 1 of 4, process 77 on node3,'
    """
    who = f"rank {silent['rank']} of {size}"
    return f"{who}, process {silent['pid']} on {silent['host']}," if "pid" in silent else who


def meeting_place() -> Store:
    """Where processes met, by a line of one's own: on theirs one may have to wait until somebody else is done."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(host, port, is_master=False, timeout=timedelta(minutes=1))
    return PrefixStore(f"softlook/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def start_heart(rank: int, size: int, silence: float) -> Heart | None:
    """Begin to beat; nobody does where there is nobody to hear it, or where silence is no sign of anything."""
    if size == 1 or not silence:
        return None
    is_apart = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    heart = Heart(meeting_place(), rank, size, silence=silence, is_host_apart=is_apart)
    heart.start()
    return heart
