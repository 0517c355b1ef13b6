"""The engine: a bounded queue, the thread that runs a model, and its bridge to the asyncio event loop."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch

from softlook.base.errors import WeightsError
from softlook.serve.engine.request import EngineRequest, OutputCallback, RequestOutput, ScheduledRequest
from softlook.serve.engine.scheduler import ModelError, Scheduler, client_error

log = logging.getLogger("softlook.serve")
Receive = Callable[[], Awaitable[Any]]
UNHEALTHY_AFTER = 3
"""Consecutive failed requests after which the model is reported as unhealthy. It keeps trying."""
MAX_OVERTAKES = 16
"""Later requests that are admitted before one that does not fit. After that, they wait until it does."""
MAX_SKIPPED = 8
"""Requests that do not fit which are skipped in search of one that does."""


class QueueFullError(Exception):
    """The queue is full."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after} s")
        self.retry_after = retry_after


class EngineStoppedError(Exception):
    """The engine is stopping or has stopped."""


class ClientDisconnectedError(Exception):
    """The client closed the connection."""


@dataclass
class EngineStats:
    """Counters since the engine started."""

    steps: int = 0
    finished: int = 0
    cancelled: int = 0
    errors: int = 0
    rejected: int = 0


class LoopChannel:
    """Delivers outputs to an event loop, once per engine step.

    Waking the loop takes the interpreter away from the engine thread: waking it for every token would slow both down.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._pending = loop, deque[tuple[asyncio.Queue[Any], Any]]()

    def put(self, queue: asyncio.Queue[Any], item: Any) -> None:
        """Buffer an item until the next `flush`. Thread-safe."""
        self._pending.append((queue, item))

    def flush(self) -> None:
        """Deliver the buffered items. Thread-safe; raises if the loop is closed."""
        if self._pending:
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._pending:
            queue, item = self._pending.popleft()
            queue.put_nowait(item)


class Engine:
    """A bounded queue, and the thread that runs its requests on a scheduler.

    >>> from softlook.models import GPT, GPTConfig
    >>> from softlook.serve.engine.continuous_batcher import ContinuousBatcher
    >>> model = GPT(GPTConfig(vocab_size=10, context=16, dim=16, depth=1, heads=2)).eval()
    >>> engine = Engine(ContinuousBatcher(model))
    >>> len(engine.run(EngineRequest((3, 1, 4), max_new_tokens=5)).row.generated)
    5
    >>> engine.close()
    """

    def __init__(self, scheduler: Scheduler, *, max_queue: int = 1024, name: str = "model") -> None:
        self.scheduler, self.max_queue, self.name, self.stats = scheduler, max_queue, name, EngineStats()
        self.num_running = 0
        """Requests on the scheduler."""
        self.error: str | None = None
        """Why recent requests failed, while all of them do."""
        self.channels = set[LoopChannel]()
        """Flushed once after every step."""
        # Long requests have their own queue: one that waits for memory does not block short ones.
        self._queues = (deque[ScheduledRequest](), deque[ScheduledRequest]())
        self._finish_times = deque[float](maxlen=64)
        self._active = list[ScheduledRequest]()
        """Requests that left the queue and are not finished."""
        self._condition, self._closed = threading.Condition(), False
        self._consecutive_failures = 0
        self._thread = threading.Thread(target=self._run_loop, name=f"softlook-{name}", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return sum(map(len, self._queues))

    @property
    def is_alive(self) -> bool:
        """Whether the engine accepts requests. It does until it is closed, however many fail."""
        return self._thread.is_alive()

    def submit(self, requests: Sequence[EngineRequest], callback: OutputCallback) -> list[ScheduledRequest]:
        """Queue requests, all or none. `callback` receives their outputs."""
        entries = [ScheduledRequest(request, callback) for request in requests]
        with self._condition:
            if self._closed or not self.is_alive:
                raise EngineStoppedError("the server is shutting down")
            if self.num_waiting + len(entries) > self.max_queue:
                self.stats.rejected += len(entries)
                raise QueueFullError(self._retry_after())
            for scheduled in entries:
                self._queues[scheduled.request.is_long].append(scheduled)
            self._condition.notify()
        return entries

    def run(self, request: EngineRequest) -> ScheduledRequest:
        """Submit a request and wait until it is finished."""
        final: Future[RequestOutput] = Future()
        (scheduled,) = self.submit([request], lambda _, output: final.set_result(output) if output.is_final else None)
        error = final.result().error
        if error is not None:
            raise error
        return scheduled

    def abort(self, requests: Sequence[ScheduledRequest]) -> None:
        """Cancel requests. They leave the queue immediately, and a batch before its next step."""
        aborted = set(requests)
        for scheduled in aborted:
            scheduled.cancelled = True
        with self._condition:
            for queue in self._queues:
                remaining = [scheduled for scheduled in queue if scheduled not in aborted]
                self.stats.cancelled += len(queue) - len(remaining)
                queue.clear()
                queue.extend(remaining)
            self._condition.notify()

    def stop(self) -> None:
        """Stop after the current step; pending requests then get an error."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def close(self, timeout: float = 5.0) -> None:
        """Stop, and wait for the thread."""
        self.stop()
        self._thread.join(timeout)

    def _retry_after(self) -> int:
        """Estimated seconds until the queue has room, from the recent rate of finished requests."""
        if len(self._finish_times) < 2:
            return 1
        rate = len(self._finish_times) / max(time.monotonic() - self._finish_times[0], 1e-3)
        return int(min(max(self.max_queue / 4 / rate, 1), 60))

    def _run_loop(self) -> None:
        try:
            with torch.inference_mode():
                while self._wait_for_work():
                    try:
                        self._step()
                    except BaseException as error:  # the thread must not die silently
                        self._recover(error)
                    self._flush_outputs()
        finally:
            self._fail_all(EngineStoppedError("the server has shut down"))
            self._flush_outputs()

    def _flush_outputs(self) -> None:
        for channel in tuple(self.channels):
            try:
                channel.flush()
            except Exception as error:  # its event loop is closed
                log.info("%s: outputs could not be delivered: %s", self.name, error)
                self.channels.discard(channel)

    def _wait_for_work(self) -> bool:
        """Sleep until there is work. False when the engine is closed."""
        with self._condition:
            while not (self._closed or self.num_waiting or self._active):
                self._condition.wait()
            return not self._closed

    def _step(self) -> None:
        if not self._active and self.scheduler.batch_delay:
            time.sleep(self.scheduler.batch_delay)
        self._admit(self._select_requests())
        outcome = self.scheduler.step()
        self.stats.steps += 1
        self.stats.errors += outcome.errors
        self._defer(outcome.deferred)
        self._remove_finished()

    def _select_requests(self) -> list[ScheduledRequest]:
        """Requests that fit now, in order. Some may overtake one that does not fit, but not indefinitely."""
        selected: list[ScheduledRequest] = []
        with self._condition:
            for queue in self._queues:
                skipped: list[ScheduledRequest] = []
                for scheduled in tuple(queue):
                    if self._fits(scheduled, selected):
                        queue.remove(scheduled)
                        self._active.append(scheduled)
                        selected.append(scheduled)
                        for other in skipped:
                            other.times_overtaken += 1
                        continue
                    if scheduled.finished:
                        queue.remove(scheduled)
                        continue
                    skipped.append(scheduled)
                    if scheduled.times_overtaken >= MAX_OVERTAKES or len(skipped) > MAX_SKIPPED:
                        break
        return selected

    def _fits(self, scheduled: ScheduledRequest, selected: Sequence[ScheduledRequest]) -> bool:
        if scheduled.deferred and self._active:
            return False
        try:
            return self.scheduler.can_admit(scheduled, selected)
        except BaseException as error:
            self._fail(scheduled, error)
            return False

    def _admit(self, requests: Sequence[ScheduledRequest]) -> None:
        """Add requests to the scheduler together; if that fails, one by one, and fail those that raise."""
        try:
            if requests:
                self.scheduler.add(requests)
        except BaseException as error:
            if len(requests) == 1:
                self._fail(requests[0], error)
                return
            for scheduled in requests:
                self._admit([scheduled])

    def _fail(self, scheduled: ScheduledRequest, error: BaseException) -> None:
        log.error("%s: a request could not be admitted", self.name, exc_info=error)
        self.stats.errors += 1
        scheduled.fail(client_error(error))

    def _defer(self, requests: Sequence[ScheduledRequest]) -> None:
        """Put requests back at the head of the queue, until they can run alone."""
        with self._condition:
            for scheduled in requests:
                scheduled.deferred = True
                self._active.remove(scheduled)
                self._queues[scheduled.request.is_long].appendleft(scheduled)

    def _remove_finished(self) -> None:
        finished = [scheduled for scheduled in self._active if scheduled.finished]
        running = set(self.scheduler.requests)
        dropped = [scheduled for scheduled in self._active if not scheduled.finished and scheduled not in running]
        for scheduled in dropped:
            if not scheduled.cancelled:
                log.error("%s: the scheduler lost a request of %d tokens", self.name, len(scheduled.token_ids))
                scheduled.fail(ModelError("this request was lost by an internal error of the server"))
        self._active = [scheduled for scheduled in self._active if not scheduled.finished and scheduled in running]
        self._finish_times.extend([time.monotonic()] * len(finished))
        self.stats.finished += len(finished)
        self.stats.cancelled += sum(scheduled.cancelled for scheduled in dropped)
        self.num_running = len(self._active)
        self._update_health(finished)

    def _update_health(self, finished: Sequence[ScheduledRequest]) -> None:
        """Unhealthy when all recent requests failed."""
        errors = [one.error for one in finished if isinstance(one.error, ModelError | WeightsError)]
        if len(errors) < len(finished):
            self._consecutive_failures, self.error = 0, None
        self._consecutive_failures += len(errors)
        if errors and self._consecutive_failures >= UNHEALTHY_AFTER:
            self.error = f"the model failed {self._consecutive_failures} times in a row; last error: {errors[-1]}"

    def _recover(self, error: BaseException) -> None:
        """An error outside of any group: fail the active requests and start over."""
        log.error("%s: engine step failed with %s: %s", self.name, type(error).__name__, error, exc_info=error)
        self.stats.errors += 1
        for scheduled in self._active:
            scheduled.fail(client_error(error))
        self.scheduler.clear()
        self._remove_finished()

    def _fail_all(self, error: Exception) -> None:
        with self._condition:
            waiting = [scheduled for queue in self._queues for scheduled in queue]
            for queue in self._queues:
                queue.clear()
        for scheduled in (*self._active, *waiting):
            scheduled.fail(error)
        self.scheduler.clear()
        self._active, self.num_running = [], 0


class PendingRequests:
    """The engine requests of one HTTP request. Closing it aborts those that are not finished."""

    def __init__(
        self, engine: Engine, requests: Sequence[EngineRequest], channel: LoopChannel, receive: Receive
    ) -> None:
        self.engine, self.queue = engine, asyncio.Queue[tuple[ScheduledRequest, RequestOutput] | None]()
        engine.channels.add(channel)
        self.requests = engine.submit(requests, lambda scheduled, output: channel.put(self.queue, (scheduled, output)))
        self._indices = {scheduled: index for index, scheduled in enumerate(self.requests)}
        self._watcher = asyncio.get_running_loop().create_task(self._watch_disconnect(receive))

    async def outputs(self) -> AsyncIterator[tuple[int, RequestOutput]]:
        """Outputs with the index of their request, until all are finished."""
        try:
            pending = len(self.requests)
            while pending:
                item = await self.queue.get()
                if item is None:
                    raise ClientDisconnectedError
                scheduled, output = item
                if output.error is not None:
                    raise output.error
                pending -= output.is_final
                yield self._indices[scheduled], output
        finally:
            self.close()

    async def wait(self) -> list[ScheduledRequest]:
        """Wait until all requests are finished."""
        async for _ in self.outputs():
            pass
        return self.requests

    async def tensors(self) -> list[Any]:
        """The output tensor of each request."""
        tensors: dict[int, Any] = {index: output.tensor async for index, output in self.outputs()}
        return [tensors[index] for index in range(len(self.requests))]

    def close(self) -> None:
        """Abort unfinished requests."""
        self._watcher.cancel()
        self._abort()

    def _abort(self) -> None:
        unfinished = [scheduled for scheduled in self.requests if not scheduled.finished]
        if unfinished:
            self.engine.abort(unfinished)

    async def _watch_disconnect(self, receive: Receive) -> None:
        """Abort as soon as the client disconnects, even if nobody awaits an output."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._abort()
        self.queue.put_nowait(None)
