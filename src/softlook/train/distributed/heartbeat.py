"""Heartbeats between ranks: a silent rank ends the run.

torch notices a process that died, but not one that is stopped. In each process a thread beats, however long the current
step takes; when a rank stops beating, the others report it and exit.
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
LOST_KEY, BEATS_KEY, NAME_KEY, LEFT_KEY = "lost", "beats", "name", "left"


class RankLostError(TrainingError):
    """A rank sent no heartbeat for longer than the timeout."""


class Heartbeat:
    """Beats for this process and watches the next rank; a loss is announced to all.

    Silence is counted in beats of this process, not by the clock: when the whole machine sleeps, no rank is lost.
    """

    def __init__(self, store: Store, rank: int, size: int, *, timeout: float, is_store_external: bool = True) -> None:
        self.store, self.rank, self.size, self.timeout = store, rank, size, timeout
        self.is_store_external = is_store_external
        self.interval = min(max(timeout / 10, 0.05), 1.0)
        self.is_healthy, self._stopped, self._beats, self._missed = True, threading.Event(), 0, 0
        self._last_beat = (-1, -1)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._guard_store)]

    def start(self) -> None:
        """Announce this rank and start beating."""
        identity = {"rank": self.rank, "pid": os.getpid(), "host": socket.gethostname()}
        self.store.set(f"{NAME_KEY}/{self.rank}", json.dumps(identity))
        self._rank_zero = json.loads(self.store.get(f"{NAME_KEY}/0"))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Leave without being missed, unless this process is ending because of an error."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(self.interval + 1)
        if self.is_healthy and not self._threads[0].is_alive():
            with suppress(RuntimeError):  # the store may be gone already
                self.store.set(f"{LEFT_KEY}/{self.rank}", "")

    def _beat(self) -> None:
        with suppress(RuntimeError):  # the store is gone with its host, which torch notices
            while not self._stopped.wait(self.interval):
                self.store.add(f"{BEATS_KEY}/{self.rank}", 1)
                self._beats += 1
                if self.store.check([LOST_KEY]):
                    self._exit(json.loads(self.store.get(LOST_KEY)))
                self._watch_next()

    def _watch_next(self) -> None:
        """Check the next rank that has not left."""
        others = ((self.rank + distance) % self.size for distance in range(1, self.size))
        other = next((rank for rank in others if not self.store.check([f"{LEFT_KEY}/{rank}"])), None)
        if other is None:
            return
        beat = (other, self.store.add(f"{BEATS_KEY}/{other}", 0))
        self._missed = self._missed + 1 if beat == self._last_beat else 0
        self._last_beat = beat
        if self._missed * self.interval >= self.timeout:
            name = f"{NAME_KEY}/{other}"
            lost = self.store.get(name).decode() if self.store.check([name]) else json.dumps({"rank": other})
            self._exit(json.loads(self.store.compare_set(LOST_KEY, "", lost)))

    def _guard_store(self) -> None:
        """Detect a stopped rank 0 when it hosts the store, which then no longer answers."""
        beats = missed = 0
        while not self._stopped.wait(self.interval):
            missed = missed + 1 if beats == self._beats and self._threads[0].is_alive() else 0
            beats = self._beats
            if missed * self.interval >= self.timeout and not self.is_store_external:
                self._exit(self._rank_zero)

    def _exit(self, lost: dict[str, object]) -> NoReturn:
        """Report the lost rank and end this process, whatever it is doing."""
        message = f"{describe_rank(lost, self.size)} sent no heartbeat for {self.timeout:g} seconds; the run has ended."
        get_error_handler().record_exception(RankLostError(message))  # for the launcher
        log.error(f"{message} The same command resumes from the last checkpoint.")
        time.sleep(2 * self.interval)  # until all other ranks have read it
        if lost.get("host") == socket.gethostname() and hasattr(signal, "SIGCONT"):
            with suppress(OSError):
                os.kill(int(str(lost.get("pid"))), signal.SIGCONT)  # it wakes up, learns that it is lost, and exits
        os._exit(1)


def describe_rank(identity: dict[str, object], size: int) -> str:
    """Rank, process and host for a message.

    >>> describe_rank({"rank": 1, "pid": 77, "host": "node3"}, 4)
    'rank 1 of 4 (process 77 on node3)'
    """
    rank = f"rank {identity['rank']} of {size}"
    return f"{rank} (process {identity['pid']} on {identity['host']})" if "pid" in identity else rank


def rendezvous_store() -> Store:
    """A connection of its own to the rendezvous store: torch's may be blocked by a waiting collective."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(host, port, is_master=False, timeout=timedelta(minutes=1))
    return PrefixStore(f"softlook/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def start_heartbeat(rank: int, size: int, timeout: float) -> Heartbeat | None:
    """Start beating; None for a single process or a timeout of 0."""
    if size == 1 or not timeout:
        return None
    is_store_external = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    heartbeat = Heartbeat(rendezvous_store(), rank, size, timeout=timeout, is_store_external=is_store_external)
    heartbeat.start()
    return heartbeat
