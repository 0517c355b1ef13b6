"""Triton, where it is installed; elsewhere just enough that kernels can be read, though never run."""
# pyright: reportMissingImports=false

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

if find_spec("triton") is not None:  # it comes with torch for GPUs
    import triton as found
    import triton.language as language
    from triton.language.extra.cuda import gdc_launch_dependents as begin_the_next
    from triton.language.extra.cuda import gdc_wait as wait_for_the_last

    triton: Any = found
    tl: Any = language
else:
    triton = SimpleNamespace(jit=lambda kernel: kernel)
    tl = SimpleNamespace(constexpr=object)
    begin_the_next = wait_for_the_last = None
