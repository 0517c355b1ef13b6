"""Errors say what was wanted, what came, and what to do. All are ValueErrors."""

from os import PathLike, fspath

from softlook.base.excerpt import escaped, pointed


class ShapeError(ValueError):
    """A tensor's sizes do not fit the others.

    >>> import torch, softlook
    >>> query, key, value = torch.randn(1, 4, 2, 8), torch.randn(1, 3, 2, 8), torch.randn(1, 3, 2, 8)
    >>> softlook.attention(query, key, value)
    Traceback (most recent call last):
    softlook.base.errors.ShapeError: 4 query heads cannot share 3 key heads: 4 is not a multiple of 3
    """


class MaskError(ValueError):
    """A mask or a bias does not fit the map it is laid over.

    >>> import softlook
    >>> softlook.masks.window(-1)
    Traceback (most recent call last):
    softlook.base.errors.MaskError: window wants left >= 0, or None for without end; -1 came
    """


class DtypeError(ValueError):
    """A tensor holds a kind of number, or lives on a device, that the operation cannot work with.

    >>> import torch
    >>> from softlook.ops.bias import as_bias
    >>> as_bias(torch.ones(2, 2, dtype=torch.bool))
    Traceback (most recent call last):
    softlook.base.errors.DtypeError: a bias holds numbers to add to the scores; this one holds torch.bool. ...
    """


class BackendError(ValueError):
    """The path asked for cannot answer this question.

    >>> import torch, softlook
    >>> query = key = value = torch.randn(1, 1, 2, 8)
    >>> softlook.attention(query, key, value, softcap=30.0, backend="sdpa")
    Traceback (most recent call last):
    softlook.base.errors.BackendError: backend='sdpa' cannot answer this: torch's kernels have no soft cap. ...
    """


class ConfigError(ValueError):
    """The sizes of a layer or a model do not go together.

    >>> from softlook.blocks import SelfAttention
    >>> SelfAttention(10, heads=4)
    Traceback (most recent call last):
    softlook.base.errors.ConfigError: 4 heads cannot share a width of 10 evenly. Choose a multiple of 4, or other heads
    """


class WeightsError(ValueError):
    """A folder does not hold the weights that were expected of it.

    >>> from softlook import weights
    >>> weights.load("no/such/folder")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder is not a folder...
    """


class DiskError(WeightsError):
    """The disk, not what lies on it, stands in the way: no permission, no room, or a name that is taken.

    >>> from softlook import models, weights
    >>> weights.save(models.GPT(models.GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)), ".")
    Traceback (most recent call last):
    softlook.base.errors.DiskError: . exists already, and softlook overwrites nothing. Choose another name.
    """


class DataError(ValueError):
    """A file does not hold the data that were expected of it: what is wrong, where, why that matters, what to do.

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
        super().__init__(what)  # alone, so that the error survives the way from one process to another
        self.what, self.why, self.help = what, why, help
        self.file = None if file is None else fspath(file)
        self.line, self.column, self.excerpt = line, column, excerpt

    @property
    def place(self) -> str:
        """file, file:line or file:line:column, as editors and terminals know how to follow it."""
        parts = (self.file, self.line, self.column)
        known = parts[: parts.index(None)] if None in parts else parts
        return ":".join(escaped(str(part)) for part in known)

    def __str__(self) -> str:
        told = [": ".join(filter(None, (self.place, _told(self.what))))]
        if self.excerpt:
            told += [f"    {row}" for row in pointed(self.excerpt, self.column).split("\n")]
        told += [f"why: {escaped(self.why)}"] * bool(self.why)
        told += [f"help: {escaped(self.help)}"] * bool(self.help)
        return "\n".join(told)


class TrainingError(ValueError):
    """A run cannot go on: its numbers are no numbers, or its folder belongs to another run."""


OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
"""What torch says on a CPU, where its error is a plain RuntimeError."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that an allocation failed. torch's own class is known by its name: torch may not be loaded.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory")), is_out_of_memory(ValueError())
    (True, False)
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in OUT_OF_MEMORY)


def _told(words: str) -> str:
    return "\n".join(map(escaped, words.split("\n")))
