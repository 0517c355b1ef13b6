"""Whether tensors hold values that Python can read, or a transform follows the computation."""

import torch
from torch import Tensor, nn
from torch._C._functorch import maybe_current_level
from torch.jit import is_tracing  # pyright: ignore[reportPrivateImportUsage]  (documented, only not listed)

PLAIN = (Tensor, nn.Parameter)


def is_traced(*tensors: Tensor) -> bool:
    """Whether a transform follows the computation, so that values cannot be read and nothing may be cached.

    True under torch.compile and torch.export, inside `vmap` and the other `torch.func` transforms, while `make_fx` or
    `torch.jit` traces, under FakeTensorMode and any other dispatch mode, and for tensors without data (the meta
    device) or of a subclass.

    >>> is_traced(torch.ones(2)), is_traced(torch.ones(2, device="meta"))
    (False, True)
    """
    if torch.compiler.is_compiling() or is_tracing():
        return True
    if maybe_current_level() is not None or torch._C._len_torch_dispatch_stack():
        return True
    return any(type(tensor) not in PLAIN or tensor.is_meta for tensor in tensors)


def can_read(*tensors: Tensor) -> bool:
    """Whether Python can read the values now: nothing is traced, and there is no device to wait for.

    >>> can_read(torch.ones(2))
    True
    """
    return not is_traced(*tensors) and all(tensor.device.type == "cpu" for tensor in tensors)
