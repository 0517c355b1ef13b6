"""What a long computation is doing now, for those who show its progress."""

import logging

LOGGER_NAME = "softlook.activity"
_log = logging.getLogger(LOGGER_NAME)


def report_activity(activity: str) -> None:
    """Say what is being done now, such as "training the tokenizer": a message at level DEBUG."""
    _log.debug(activity)
