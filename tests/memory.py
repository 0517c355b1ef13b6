"""Watching what is allocated: the largest tensor that any operation makes, the most that a process ever held."""

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestTensor(TorchDispatchMode):
    """While it is on, remembers the largest storage that an operation returned, and which operation that was.

    Storages are counted and not shapes: a number that is expanded to a whole map takes up one number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.elements, self.name = 0, ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.numel():
                elements = tensor.untyped_storage().nbytes() // tensor.element_size()
                if elements > self.elements:
                    self.elements, self.name = elements, str(func)
        return result


def peak() -> int:
    """The most bytes that this process has held in memory; Linux alone can say it of one that another one started."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
