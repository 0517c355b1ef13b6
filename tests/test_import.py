"""Importing softlook uses no network, and imports little besides torch."""

import json
import subprocess
import sys

CHILD = """
import json, sys

def reject(event, args):
    if event in {"socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind"}:
        raise RuntimeError(f"importing softlook must not use the network: {event} {args}")

sys.addaudithook(reject)
import torch
before = set(sys.modules)
import softlook
everything = [getattr(softlook, name) for name in softlook.__all__]  # names are imported on first use
print(json.dumps(sorted(set(sys.modules) - before)))
"""
ALLOWED = {"softlook", "jaxtyping", "wadler_lindig", "typing_extensions", "torch"}
ALLOWED_SUBMODULES = ("numpy.typing", "numpy._typing")  # imported by jaxtyping; torch imports numpy itself
HEAVY = ("torch._dynamo", "torch._inductor", "torch.nn.attention.flex_attention", "torch.onnx", "torch.distributed")


def modules_imported_in_addition_to_torch() -> list[str]:
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def is_in(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_importing_softlook_uses_no_network_and_imports_little_besides_torch() -> None:
    added = modules_imported_in_addition_to_torch()
    assert "softlook" in added

    heavy = [name for name in added if is_in(name, HEAVY)]
    assert not heavy, f"import these where they are used: {heavy}"

    allowed = ALLOWED | sys.stdlib_module_names
    others = [name for name in added if name.partition(".")[0] not in allowed and not is_in(name, ALLOWED_SUBMODULES)]
    assert not others, f"importing softlook also imports {others}"
