"""How much may be asked. Every number in a request has a bound of its own; these are the ones a server sets."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a server gives, at most."""

    queue: int = 1024
    """Sequences that may wait. Beyond them a request is answered with 429."""
    rows: int = 64
    """Sequences that are worked on together."""
    memory: float | None = None
    """GiB for the KV cache of each model. None: a share of what is free beside the weights."""
    answer: int = 4096
    """Words of one answer."""
    product: int = 1_000_000
    """Sequences of a request times their words times the alternatives told with each."""
    body: int = 1 << 20
    """Bytes of a request."""
    reading: float = 20.0
    """Seconds in which the body of a request has to arrive."""
    stalled: float = 20.0
    """Seconds that a client may take nothing of what is sent to it."""
