"""Numbers about a server, as Prometheus reads them."""

import time
from typing import Any

from softlook.serve.guards import Guard, Scope
from softlook.serve.hall import Hall

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as fault:
    raise ImportError("to serve, install what a server needs: pip install softlook[serve]") from fault

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """The counters of one server. They are its own: two servers in a process do not mix."""

    def __init__(self, hall: Hall) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("softlook_requests", "Requests answered.", ("page", "status"), registry=self.registry)
        self.seconds = Histogram(
            "softlook_request_seconds", "Until the answer was sent.", ("page",), buckets=SECONDS, registry=self.registry
        )
        self.tokens = Counter("softlook_tokens", "Tokens read and said.", ("model", "kind"), registry=self.registry)
        self.rows = Counter("softlook_rows", "Rows of tables answered.", ("model",), registry=self.registry)
        self.registry.register(Workers(hall))

    def page(self) -> bytes:
        return generate_latest(self.registry)


class Workers(Collector):
    """What the workers are at, asked when somebody looks."""

    def __init__(self, hall: Hall) -> None:
        self.hall = hall

    def collect(self) -> Any:
        gauges = (
            ("waiting", "Sequences in the queue."),
            ("working", "Sequences under way."),
        )
        for name, text in gauges:
            gauge = GaugeMetricFamily(f"softlook_{name}", text, labels=("model",))
            for model, seat in self.hall.seats.items():
                gauge.add_metric([model], getattr(seat.engine, name))
            yield gauge
        counts = CounterMetricFamily(
            "softlook_worker", "What workers did: turns, answers, faults.", labels=("model", "what")
        )
        for model, seat in self.hall.seats.items():
            for what, number in vars(seat.engine.counts).items():
                counts.add_metric([model, what], number)
        yield counts


class Counting(Guard):
    """Counts requests by the page they were for. Paths that are none are one: nobody can make up new ones."""

    def __init__(self, app: Any, metrics: Metrics) -> None:
        super().__init__(app)
        self.metrics = metrics

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        status, began = "none", time.monotonic()

        async def told(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, told)
        finally:
            page = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(page, status).inc()
            self.metrics.seconds.labels(page).observe(time.monotonic() - began)
