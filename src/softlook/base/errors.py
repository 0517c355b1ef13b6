"""Error classes, and text from outside made safe for a terminal.

Messages state what was expected, what was given and what to do. All classes are ValueErrors.
"""

from os import PathLike, fspath
from unicodedata import category, east_asian_width

EXCERPT_WIDTH = 72


class ShapeError(ValueError):
    """The shapes of tensors do not match.

    >>> import torch, softlook
    >>> query, key, value = torch.randn(1, 4, 2, 8), torch.randn(1, 3, 2, 8), torch.randn(1, 3, 2, 8)
    >>> softlook.attention(query, key, value)
    Traceback (most recent call last):
    softlook.base.errors.ShapeError: 4 query heads cannot share 3 key heads: 4 is not a multiple of 3
    """


class MaskError(ValueError):
    """A mask or a bias does not fit the attention map.

    >>> import softlook
    >>> softlook.masks.window(-1)
    Traceback (most recent call last):
    softlook.base.errors.MaskError: window expects left >= 0 or None, got -1
    """


class DtypeError(ValueError):
    """A tensor has an unsupported dtype or device.

    >>> import torch
    >>> from softlook.ops.bias import as_bias
    >>> as_bias(torch.ones(2, 2, dtype=torch.bool))
    Traceback (most recent call last):
    softlook.base.errors.DtypeError: a bias is added to the scores and expects a floating-point dtype, got ...
    """


class BackendError(ValueError):
    """The requested backend does not support the arguments.

    >>> import torch, softlook
    >>> query = key = value = torch.randn(1, 1, 2, 8)
    >>> softlook.attention(query, key, value, softcap=30.0, backend="sdpa")
    Traceback (most recent call last):
    softlook.base.errors.BackendError: backend='sdpa' does not support this: torch's kernels have no softcap. ...
    """


class ConfigError(ValueError):
    """The configuration of a layer, a model or a run is invalid.

    >>> from softlook.blocks import SelfAttention
    >>> SelfAttention(10, heads=4)
    Traceback (most recent call last):
    softlook.base.errors.ConfigError: dim must be a multiple of heads, got dim=10 and heads=4
    """


class WeightsError(ValueError):
    """A checkpoint is missing, damaged or of another architecture.

    >>> from softlook import weights
    >>> weights.load("no/such/run_dir")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/run_dir is not a folder...
    """


class DiskError(WeightsError):
    """The file system refuses: no permission, no space, or an existing file.

    >>> from softlook import models, weights
    >>> weights.save(models.GPT(models.GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)), ".")
    Traceback (most recent call last):
    softlook.base.errors.DiskError: . already exists, and softlook overwrites nothing. Choose another name.
    """


class DataError(ValueError):
    """A data file is invalid: what is wrong, where, why it matters and how to fix it.

    >>> raise DataError("this quote is never closed", file="a.csv", line=3, column=3, excerpt='4,"fine')
    Traceback (most recent call last):
    softlook.base.errors.DataError: a.csv:3:3: this quote is never closed
        4,"fine
          ^
    """

    def __init__(
        self,
        what: str,
        *,
        file: str | PathLike[str] | None = None,
        line: int | None = None,
        column: int | None = None,
        excerpt: str = "",
        why: str = "",
        help: str = "",
    ) -> None:
        super().__init__(what)  # one argument, so that the error can be pickled between processes
        self.what, self.why, self.help = what, why, help
        self.file = None if file is None else fspath(file)
        self.line, self.column, self.excerpt = line, column, excerpt

    @property
    def location(self) -> str:
        """file, file:line or file:line:column, which editors and terminals turn into links."""
        parts = (self.file, self.line, self.column)
        known = parts[: parts.index(None)] if None in parts else parts
        return ":".join(escape_control(str(part)) for part in known)

    def __str__(self) -> str:
        lines = [": ".join(filter(None, (self.location, _escape_lines(self.what))))]
        if self.excerpt:
            lines += [f"    {row}" for row in excerpt_with_caret(self.excerpt, self.column).split("\n")]
        lines += [f"why: {escape_control(self.why)}"] * bool(self.why)
        lines += [f"help: {escape_control(self.help)}"] * bool(self.help)
        return "\n".join(lines)


class TrainingError(ValueError):
    """A training run cannot continue: its loss is not finite, or its run directory belongs to another run."""


OUT_OF_MEMORY_MESSAGES = ("out of memory", "can't allocate memory", "not enough memory")
"""Messages of torch's CPU allocator, which raises a plain RuntimeError."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports a failed allocation. Matches torch's class by name: torch may not be imported.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory")), is_out_of_memory(ValueError())
    (True, False)
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in OUT_OF_MEMORY_MESSAGES)


def _escape_lines(text: str) -> str:
    return "\n".join(map(escape_control, text.split("\n")))


def escape_control(text: str) -> str:
    """Escape every character that is invisible or moves others, so that text cannot act on a terminal.

    >>> print(escape_control("red \\x1b[31m, backwards \\u202e, half \\ud800, and a byte \\udcff"))
    red \\x1b[31m, backwards \\u202e, half \\ud800, and a byte \\xff
    """
    return text if text.isprintable() else "".join(map(_escape_character, text))


def excerpt_with_caret(line: str, column: int | None = None) -> str:
    """Return the part of a line around a column, counted from 1, with a caret below it.

    >>> print(excerpt_with_caret('4,"fine', column=3))
    4,"fine
      ^
    """
    if column is None:
        return _excerpt(line, 0)
    start = max(0, min(column - 1 - EXCERPT_WIDTH // 2, len(line) - EXCERPT_WIDTH))
    before = "..." * (start > 0) + escape_control(line[start : column - 1])
    return f"{_excerpt(line, start)}\n{' ' * sum(map(_cells, before))}^"


def _excerpt(line: str, start: int) -> str:
    stop = start + EXCERPT_WIDTH
    return "..." * (start > 0) + escape_control(line[start:stop]) + "..." * (stop < len(line))


def _escape_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # surrogateescape: a byte that could not be decoded
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character if character.isprintable() else ascii(character)[1:-1]


def _cells(character: str) -> int:
    """Terminal cells that a character takes."""
    if category(character) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
