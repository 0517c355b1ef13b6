"""Which of several processes this is, known from the start and before anybody has met."""

import os


def local_rank() -> int | None:
    """The number of this process on its machine, where torchrun or `launch` started it; else None."""
    return int(os.environ["LOCAL_RANK"]) if {"LOCAL_RANK", "WORLD_SIZE"} <= os.environ.keys() else None


def is_first() -> bool:
    """Is this the process that writes and speaks?"""
    return local_rank() is None or os.environ.get("RANK") == "0"
