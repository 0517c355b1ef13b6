"""Which of several processes this is, known from the start and before anybody has met."""

import os


def local_rank() -> int | None:
    """The number of this process on its machine, where torchrun or `launch` started several; else None."""
    return int(os.environ["LOCAL_RANK"]) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None


def is_first() -> bool:
    """Is this the process that writes and speaks?"""
    return local_rank() is None or os.environ.get("RANK") == "0"
