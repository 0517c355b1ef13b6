"""Limits of a server."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """Limits set by the operator. Every field of a request has its own bounds in addition."""

    max_queue: int = 1024
    """Sequences in the queue. Further requests get status 429."""
    max_batch_size: int = 64
    """Sequences processed together."""
    kv_cache_gib: float | None = None
    """GiB for the KV cache of each model. None: a share of the free memory."""
    max_new_tokens: int = 4096
    """Tokens of one completion."""
    max_request_tokens: int = 1_000_000
    """Sequences of a request times their new tokens times the logprobs returned with each; or cells of a table."""
    max_body_bytes: int = 1 << 20
    read_timeout: float = 20.0
    """Seconds in which the body of a request must arrive."""
    send_timeout: float = 20.0
    """Seconds a client may take to accept a chunk of a stream."""
