"""Importing softlook is cheap: no network, and hardly more than torch itself."""

import json
import subprocess
import sys

CHILD = """
import json, sys

def refuse(event, args):
    if event in {"socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind"}:
        raise RuntimeError(f"importing softlook must not touch the network: {event} {args}")

sys.addaudithook(refuse)
import torch
before = set(sys.modules)
import softlook
everything = [getattr(softlook, name) for name in softlook.__all__]  # names are fetched when they are asked for
print(json.dumps(sorted(set(sys.modules) - before)))
"""
WELCOME = {"softlook", "jaxtyping", "wadler_lindig", "typing_extensions", "torch"}
WELCOME_PARTS = ("numpy.typing", "numpy._typing")  # jaxtyping reads them; numpy itself came with torch
HEAVY = ("torch._dynamo", "torch._inductor", "torch.nn.attention.flex_attention", "torch.onnx", "torch.distributed")


def modules_that_softlook_adds_to_torch() -> list[str]:
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def is_part_of(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_importing_softlook_touches_no_network_and_loads_little_beyond_torch() -> None:
    added = modules_that_softlook_adds_to_torch()
    assert "softlook" in added

    heavy = [name for name in added if is_part_of(name, HEAVY)]
    assert not heavy, f"load these where they are used, not at import: {heavy}"

    known = WELCOME | sys.stdlib_module_names
    strangers = [name for name in added if name.partition(".")[0] not in known and not is_part_of(name, WELCOME_PARTS)]
    assert not strangers, f"importing softlook also loads {strangers}"
