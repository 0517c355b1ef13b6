"""How a command ends when something went wrong: a code for programs, a word for people."""

from dataclasses import dataclass

from cyclopts import CycloptsError

from softlook.base.errors import ConfigError, DataError, DiskError, TrainingError, WeightsError, is_out_of_memory


@dataclass(frozen=True)
class Ending:
    """A code, as in sysexits.h, and what it is called."""

    code: int
    word: str


FAILED = Ending(1, "run-failed")
USAGE = Ending(2, "usage")
DATA = Ending(65, "data")
MISSING = Ending(69, "not-installed")
INTERNAL = Ending(70, "internal")
DISK = Ending(74, "disk")
STOPPED = Ending(130, "interrupted")
NOBODY = Ending(141, "nobody-listens")
TERMINATED = Ending(143, "terminated")


class Terminated(KeyboardInterrupt):
    """Not a person at the keyboard but the system asked for the end."""


CALLED_FOR: tuple[tuple[type[BaseException], Ending], ...] = (
    (Terminated, TERMINATED),
    (KeyboardInterrupt, STOPPED),
    (CycloptsError, USAGE),
    (BrokenPipeError, NOBODY),
    (DiskError, DISK),
    (OSError, DISK),
    (WeightsError, DATA),
    (DataError, DATA),
    (ConfigError, DATA),
    (TrainingError, FAILED),
    (ImportError, MISSING),
)


def ending(fault: BaseException) -> Ending:
    """The ending that a fault calls for; what nobody foresaw is a fault of softlook's.

    >>> ending(DiskError("no room")), ending(ZeroDivisionError())
    (Ending(code=74, word='disk'), Ending(code=70, word='internal'))
    """
    if is_out_of_memory(fault):
        return FAILED
    return next((ended for kind, ended in CALLED_FOR if isinstance(fault, kind)), INTERNAL)


def in_words(fault: BaseException) -> str:
    """What went wrong, for people; of values that fit no schema the first: its name, what was wanted, what came."""
    errors = getattr(fault.__cause__, "errors", None)
    if isinstance(fault, CycloptsError) and errors is not None:
        first = errors()[0]
        name = ".".join(map(str, first["loc"])).replace("_", "-")
        return f"--{name}: {first['msg'][0].lower()}{first['msg'][1:]}; {first['input']!r:.80} came"
    if is_out_of_memory(fault):
        return f"out of memory: {str(fault) or 'an allocation failed'}. Choose a smaller model or a smaller batch."
    return str(fault) or type(fault).__name__
