"""New files of several kinds, there only once they are whole."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from softlook.base.errors import ConfigError
from softlook.weights.folders import refuse_taken, told


class Closing(Protocol):
    """Whatever is written piece by piece, until there are no more."""

    def close(self) -> None:
        """There are no more."""
        ...


Writer = TypeVar("Writer", bound=Closing)


@contextmanager
def new_file(path: Path, kinds: Mapping[str, Callable[[Path], Writer]], what: str) -> Iterator[Writer]:
    """A new file of the kind that its ending says. Nothing is overwritten, and half a file is not left behind."""
    if path.suffix not in kinds:
        raise ConfigError(f"{what} are written to {', '.join(kinds)}; {path.name!r:.80} came")
    refuse_taken(path)
    made = path.with_name(f".{path.name}.partial")
    with told("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = kinds[path.suffix](made)
        try:
            yield writer
            writer.close()
            refuse_taken(path)
            made.rename(path)
        except BaseException:
            with suppress(Exception):
                writer.close()
            made.unlink(missing_ok=True)
            raise
