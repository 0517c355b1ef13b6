"""One folder of files per class: reviews/pos/*.txt and reviews/neg/*.txt."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from softlook.base.errors import DataError
from softlook.data.files import FORMATS, PathOrPaths, files_below, format_of, uncompressed_name
from softlook.data.lines import read_lines

TRAIN_FOLDERS = frozenset(("train", "training"))
SPLIT_FOLDERS = TRAIN_FOLDERS | {"test", "testing", "valid", "validation", "val", "dev", "eval"}
"""Names of folders that hold parts of a dataset, not classes."""
UNLABELED_FOLDERS = frozenset(("unsup", "unlabeled", "unlabelled"))
"""Names of folders with texts that have no label, as in the IMDb reviews."""


@dataclass(frozen=True)
class ClassFolders:
    """The files of each class."""

    files: dict[str, list[Path]]
    unlabeled: tuple[str, ...] = ()
    """Folders that are not read."""
    kind: str = "text"
    """What a file holds."""

    def notes(self) -> tuple[str, ...]:
        """What was found, in sentences."""
        counts = [f"{label!r:.40} ({len(paths):,})" for label, paths in list(self.files.items())[:8]]
        more = [f"{len(self.files) - 8:,} more"] * (len(self.files) > 8)
        kind = "an image" if self.kind == "image" else f"a {self.kind}"
        found = f"each folder is a class, each file {kind}: {', '.join(counts + more)}"
        unlabeled = f"not read, because its {self.kind}s have no label: {', '.join(self.unlabeled)}"
        return (found, unlabeled) if self.unlabeled else (found,)


def find_class_folders(
    paths: PathOrPaths, kind: str = "text", holds: Callable[[Path], bool] | None = None
) -> ClassFolders | None:
    """The classes below folders that hold one folder of files per class; None if the data are something else.

    Files beside the class folders are ignored. The label is the name of the folder. `holds` selects the files of this
    `kind`; default: those of text.

    >>> for name in ("pos/1.txt", "pos/2.txt", "neg/1.txt"):
    ...     Path("reviews", name).parent.mkdir(parents=True, exist_ok=True)
    ...     _ = Path("reviews", name).write_text("words")
    >>> {label: len(files) for label, files in find_class_folders("reviews").files.items()}
    {'neg': 1, 'pos': 2}
    """
    given = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not given or not all(path.is_dir() for path in given):
        return None
    classes: dict[str, list[Path]] = {}
    unlabeled: list[str] = []
    for folder in given:
        _check_not_split(folder)
        if any(path.is_file() and _is_table(path) for path in folder.iterdir()):
            return None
        for child in _folders_in(folder):
            if child.name.lower() in UNLABELED_FOLDERS:
                unlabeled.append(str(child))
                continue
            files = list(files_below(child))
            if any(map(_is_table, files)):
                return None
            examples = [path for path in files if (holds or _is_text)(path)]
            if examples:
                classes.setdefault(child.name.strip(), []).extend(examples)
    return ClassFolders(classes, tuple(unlabeled), kind) if len(classes) > 1 else None


def read_whole_text(path: Path, *, max_chars: int) -> str:
    """The text of a file of at most `max_chars` characters, with its line ends as line feeds."""
    parts: list[str] = []
    left = max_chars
    for line in read_lines(path, max_chars=max_chars):
        if line.error is not None:
            raise line.error
        parts.append(line.text)
        left -= len(line.text) + 1
        if left < -1:
            what = f"this file has more than {max_chars:,} characters"
            raise DataError(what, file=path, help="each file is one text: split it, or raise --max-line-chars")
    return "\n".join(parts)


def _check_not_split(folder: Path) -> None:
    """Raise if the folders in a folder are the training and test data."""
    names = {child.name.lower(): child for child in _folders_in(folder)}
    trains = [name for name in names if name in TRAIN_FOLDERS]
    if not trains or not names.keys() <= SPLIT_FOLDERS:
        return
    others = sorted(name for name in names if name not in TRAIN_FOLDERS)
    flags = [f"--data {names[trains[0]]}"]
    flags += [f"--test {names[name]}" for name in others if name.startswith("test")]
    flags += [f"--valid {names[name]}" for name in others if not name.startswith("test")]
    raise DataError(
        f"this folder has parts of a dataset, not classes: {', '.join(child.name for child in names.values())}",
        file=folder,
        help=f"name each of them: {' '.join(flags)}",
    )


def _folders_in(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")))


def _suffix(path: Path) -> str:
    return Path(uncompressed_name(path)).suffix.lower()


def _is_table(path: Path) -> bool:
    return format_of(path) != "text"


def _is_text(path: Path) -> bool:
    """Whether a file counts as text; many collections name their files without a suffix."""
    return format_of(path) == "text" and (_suffix(path) in FORMATS or not _suffix(path))
