"""Exit codes and error messages of commands."""

from dataclasses import dataclass

from cyclopts import CycloptsError

from softlook.base.errors import ConfigError, DataError, DiskError, TrainingError, WeightsError, is_out_of_memory


@dataclass(frozen=True)
class ExitCode:
    """An exit code, as in sysexits.h, and its name in JSON errors."""

    code: int
    name: str


FAILED = ExitCode(1, "run-failed")
USAGE = ExitCode(2, "usage")
DATA = ExitCode(65, "data")
NOT_INSTALLED = ExitCode(69, "not-installed")
INTERNAL = ExitCode(70, "internal")
DISK = ExitCode(74, "disk")
INTERRUPTED = ExitCode(130, "interrupted")
BROKEN_PIPE = ExitCode(141, "broken-pipe")
TERMINATED = ExitCode(143, "terminated")


class Terminated(KeyboardInterrupt):
    """Stopped by SIGTERM."""


EXIT_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (Terminated, TERMINATED),
    (KeyboardInterrupt, INTERRUPTED),
    (CycloptsError, USAGE),
    (BrokenPipeError, BROKEN_PIPE),
    (DiskError, DISK),
    (OSError, DISK),
    (WeightsError, DATA),
    (DataError, DATA),
    (ConfigError, DATA),
    (TrainingError, FAILED),
    (ImportError, NOT_INSTALLED),
)
"""The first match applies."""


def exit_code(error: BaseException) -> ExitCode:
    """The exit code of an error; anything unexpected is an internal error.

    >>> exit_code(DiskError("no space left")), exit_code(ZeroDivisionError())
    (ExitCode(code=74, name='disk'), ExitCode(code=70, name='internal'))
    """
    if is_out_of_memory(error):
        return FAILED
    return next((code for error_class, code in EXIT_CODES if isinstance(error, error_class)), INTERNAL)


def error_message(error: BaseException) -> str:
    """The message of an error. Of a config that fails validation, the first invalid field."""
    errors = getattr(error.__cause__, "errors", None)
    if isinstance(error, CycloptsError) and errors is not None:
        first = errors()[0]
        flag = ".".join(map(str, first["loc"])).replace("_", "-")
        return f"--{flag}: {first['msg'][0].lower()}{first['msg'][1:]}; got {first['input']!r:.80}"
    if is_out_of_memory(error):
        return f"out of memory: {str(error) or 'an allocation failed'}. Choose a smaller model or a smaller batch."
    return str(error) or type(error).__name__
