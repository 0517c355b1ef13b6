"""Prometheus metrics, named as vLLM names them."""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from softlook.serve.engine.continuous_batcher import ContinuousBatcher
from softlook.serve.engine.request import ScheduledRequest
from softlook.serve.middleware import Middleware, Scope
from softlook.serve.registry import ModelRegistry

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError("serving requires extra packages: pip install softlook[serve]") from error

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self, registry: ModelRegistry) -> None:
        self.collectors = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"softlook_{name}", text, labels, registry=self.collectors)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"softlook_{name}", text, labels, buckets=LATENCY_BUCKETS, registry=self.collectors)

        self.http_requests = counter("http_requests", "HTTP responses.", "route", "status")
        self.request_latency = histogram("e2e_request_latency_seconds", "Time until the response was sent.", "route")
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens processed.", "model")
        self.generation_tokens = counter("generation_tokens", "Tokens generated.", "model")
        self.first_token = histogram("time_to_first_token_seconds", "Time to the first token.", "model")
        self.inter_token = histogram("inter_token_latency_seconds", "Time between two tokens.", "model")
        self.table_rows = counter("table_rows", "Table rows predicted.", "model")
        self.collectors.register(EngineCollector(registry))

    def observe_tokens(self, model: str, prompt_tokens: int, generation_tokens: int = 0) -> None:
        """Count the tokens of a request."""
        self.prompt_tokens.labels(model).inc(prompt_tokens)
        self.generation_tokens.labels(model).inc(generation_tokens)

    def observe_latency(self, model: str, requests: Sequence[ScheduledRequest]) -> None:
        """Record time to first token and inter-token latencies of finished requests."""
        first_token, inter_token = self.first_token.labels(model), self.inter_token.labels(model)
        for scheduled in requests:
            if scheduled.token_times:
                first_token.observe(scheduled.token_times[0] - scheduled.arrival_time)
            for earlier, later in pairwise(scheduled.token_times):
                inter_token.observe(later - earlier)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.collectors)


class EngineCollector(Collector):
    """State and counters of the engines, read when the metrics are scraped."""

    def __init__(self, registry: ModelRegistry) -> None:
        self.registry = registry

    def collect(self) -> Any:
        gauges = (
            ("num_requests_waiting", "num_waiting", "Sequences in the queue."),
            ("num_requests_running", "num_running", "Sequences in a batch."),
        )
        for name, attribute, text in gauges:
            gauge = GaugeMetricFamily(f"softlook_{name}", text, labels=("model",))
            for model, deployment in self.registry.deployments.items():
                gauge.add_metric([model], getattr(deployment.engine, attribute))
            yield gauge
        events = CounterMetricFamily(
            "softlook_engine_events", "Engine steps, and requests by outcome.", labels=("model", "event")
        )
        for model, deployment in self.registry.deployments.items():
            for event, count in vars(deployment.engine.stats).items():
                events.add_metric([model, event], count)
        yield events
        for name, attribute, text in (
            ("prefix_cache_queries", "num_queried", "Prompt tokens looked up in the prefix cache."),
            ("prefix_cache_hits", "num_hits", "Prompt tokens found in the prefix cache."),
        ):
            tokens = CounterMetricFamily(f"softlook_{name}", text, labels=("model",))
            for model, deployment in self.registry.deployments.items():
                if isinstance(scheduler := deployment.engine.scheduler, ContinuousBatcher):
                    tokens.add_metric([model], getattr(scheduler.prefixes, attribute))
            yield tokens


class RequestMetrics(Middleware):
    """Counts and times responses by route. All unknown paths share one label, so labels stay bounded."""

    def __init__(self, app: Any, metrics: Metrics) -> None:
        super().__init__(app)
        self.metrics = metrics

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        status, start = "none", time.monotonic()

        async def record_status(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, record_status)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.http_requests.labels(route, status).inc()
            self.metrics.request_latency.labels(route).observe(time.monotonic() - start)
