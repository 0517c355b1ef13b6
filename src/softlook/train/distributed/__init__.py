"""Distributed training (DDP, FSDP): rank of this process."""

import os

from softlook.base.device import local_rank as local_rank


def is_rank_zero() -> bool:
    """Whether this process writes files and logs. Known before the process group is initialized."""
    return local_rank() is None or os.environ.get("RANK") == "0"
