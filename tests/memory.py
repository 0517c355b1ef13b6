"""Memory in tests: the largest tensor that an operation allocates, and the peak memory of a process."""

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestTensor(TorchDispatchMode):
    """Records the largest storage that an operation returns, and the name of that operation.

    Storages count, not shapes: an expanded tensor occupies the memory of the original.
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
    """Return the peak resident memory of this process in bytes (Linux only)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
